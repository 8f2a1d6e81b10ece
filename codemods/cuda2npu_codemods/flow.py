"""What the variables of a function hold where they are read, followed through assignments.

A function is read from top to bottom; what a later turn of a loop brings back is not seen.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_BODIES = ("body", "orelse", "finalbody")
_LIMIT = 12
"""How many names of one another are followed."""
_WAYS = 6
"""How many bindings a name may have and still be followed: each one doubles the work."""

Block = tuple[int, str]
"""A body of a compound statement: the statement's identity and the name of the body."""


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """An expression, and the number of the statement that evaluates it."""

    node: ast.expr
    at: int

    def part(self, node: ast.expr) -> Value:
        """An expression inside this one."""
        return Value(node, self.at)


class _Binding(NamedTuple):
    at: int
    node: ast.expr | None
    """The expression, or None when the name is changed in a way that no expression shows."""


class Flow:
    """The statements of a function in order, and what each one binds."""

    def __init__(self, body: list[ast.stmt]) -> None:
        self.statements: list[ast.stmt] = []
        self._blocks: list[tuple[Block, ...]] = []
        self._left: set[Block] = set()
        self._bindings: dict[str, list[_Binding]] = {}
        self._augmented: dict[int, ast.BinOp] = {}
        self._walk(body, ())

    def _walk(self, body: list[ast.stmt], blocks: tuple[Block, ...]) -> None:
        for statement in body:
            at = len(self.statements)
            self.statements.append(statement)
            self._blocks.append(blocks)
            if isinstance(statement, _DEFINITIONS):
                self._bind_name(statement.name, at, None)
                continue
            self._bind(statement, at)
            if isinstance(statement, (ast.With, ast.AsyncWith)):
                self._walk(statement.body, blocks)
                continue
            for name in _BODIES:
                self._block(getattr(statement, name, []), blocks, (id(statement), name))
            for inner in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
                self._block(inner.body, blocks, (id(statement), str(id(inner))))

    def _block(self, body: list[ast.stmt], blocks: tuple[Block, ...], block: Block) -> None:
        if body and isinstance(body[-1], _LEAVES):
            self._left.add(block)
        self._walk(body, (*blocks, block))

    def _bind(self, statement: ast.stmt, at: int) -> None:
        if isinstance(statement, ast.AugAssign):
            self._augmented[at] = _written_out(statement)
            self._bind_target(statement.target, self._augmented[at], at)
        elif isinstance(statement, ast.Assign):
            for target in statement.targets:
                self._bind_target(target, statement.value, at)
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            self._bind_target(statement.target, statement.value, at)
        elif isinstance(statement, (ast.For, ast.AsyncFor)):
            self._bind_target(statement.target, None, at)
        elif isinstance(statement, ast.Expr):
            self._bind_in_place(statement.value, at)
        for item in getattr(statement, "items", ()):  # of a with statement
            self._bind_target(item.optional_vars, None, at)
        for alias in getattr(statement, "names", ()):  # of an import, or global
            name = alias if isinstance(alias, str) else alias.asname or alias.name
            self._bind_name(name.partition(".")[0], at, None)
        for part in own_expressions(statement):
            if isinstance(part, ast.NamedExpr):
                self._bind_name(part.target.id, at, None)

    def _bind_in_place(self, call: ast.expr, at: int) -> None:
        """``scores.masked_fill_(mask, value)`` leaves what it returns in its variable."""
        func = call.func if isinstance(call, ast.Call) else None
        if isinstance(func, ast.Attribute) and func.attr.endswith("_"):
            self._bind_target(func.value, call, at)

    def _bind_target(self, target: ast.expr | None, value: ast.expr | None, at: int) -> None:
        if isinstance(target, ast.Name):
            self._bind_name(target.id, at, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            starred = any(isinstance(element, ast.Starred) for element in target.elts)
            for index, element in enumerate(target.elts):
                part = None if starred or value is None else _element(value, index, target)
                self._bind_target(element, part, at)
        elif isinstance(target, ast.Starred):
            self._bind_target(target.value, None, at)
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            self._bind_name(target.value.id, at, None)

    def _bind_name(self, name: str, at: int, value: ast.expr | None) -> None:
        self._bindings.setdefault(name, []).append(_Binding(at, value))

    def reaching(self, name: str, at: int) -> tuple[_Binding | None, ...]:
        """The bindings that a name may have when a statement runs, the latest first.

        None stands for what it has from outside, as a parameter has.
        """
        found: list[_Binding | None] = []
        here = self._blocks[at]
        for binding in reversed(self._bindings.get(name, ())):
            if binding.at >= at:
                continue
            there = self._blocks[binding.at]
            shared = _shared(here, there)
            if any(block in self._left for block in there[shared:]) or _excluded(
                here[shared:], there[shared:]
            ):
                continue
            found.append(binding)
            if shared == len(there):
                return tuple(found)
        return (*found, None)

    def resolved(self, value: Value) -> Value:
        """The value with its name followed to the only expression that can be in it."""
        for _ in range(_LIMIT):
            bound = self.bound_to(value)
            if bound is None:
                break
            value = bound
        return value

    def bound_to(self, value: Value) -> Value | None:
        """The only expression that can be in a name; None for more of them and for no name."""
        if not isinstance(value.node, ast.Name):
            return None
        first, *others = self.reaching(value.node.id, value.at)
        return (
            None if first is None or first.node is None or others else Value(first.node, first.at)
        )

    def sources(self, value: Value) -> list[Value]:
        """Every expression that can be in a name; a name that is not known stays itself."""
        if not isinstance(value.node, ast.Name):
            return [value]
        found = self.reaching(value.node.id, value.at)
        if len(found) > _WAYS:
            return [value]
        return [Value(b.node, b.at) if b and b.node else value for b in found]

    def line(self, at: int) -> int:
        """The line on which a statement begins."""
        return self.statements[at].lineno

    @property
    def bound(self) -> Set[str]:
        """The names that the statements bind."""
        return self._bindings.keys()

    def number(self, statement: ast.AST) -> int | None:
        """The number of a statement; None for one of a function inside."""
        return next((at for at, known in enumerate(self.statements) if known is statement), None)

    def expressions(self, at: int) -> Iterator[Value]:
        """Every expression of a statement, the outer ones first."""
        if at in self._augmented:
            yield Value(self._augmented[at], at)
        for node in own_expressions(self.statements[at]):
            yield Value(node, at)

    @cached_property
    def identifiers(self) -> frozenset[str]:
        """Every name, attribute and keyword that the function speaks of."""
        nodes = (node for statement in self.statements for node in own_expressions(statement))
        names = (getattr(n, "attr", getattr(n, "id", "")) for n in nodes)
        return frozenset(name for name in names if isinstance(name, str))

    def returned(self) -> list[Value]:
        """What the function's ``return`` statements return."""
        return [
            Value(statement.value, at)
            for at, statement in enumerate(self.statements)
            if isinstance(statement, ast.Return) and statement.value is not None
        ]


def _written_out(statement: ast.AugAssign) -> ast.BinOp:
    """``x += y`` as the expression ``x + y``."""
    target = statement.target
    left = ast.Name(target.id, ast.Load()) if isinstance(target, ast.Name) else target
    return ast.copy_location(ast.BinOp(left, statement.op, statement.value), statement)


def own_expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    """The expressions of a statement without those of the statements inside it."""
    if isinstance(statement, _DEFINITIONS):
        return
    pending: list[ast.AST] = [*reversed([*ast.iter_child_nodes(statement)])]
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.stmt, ast.ExceptHandler, ast.match_case, ast.Lambda)):
            continue
        if isinstance(node, ast.expr):
            yield node
        pending += reversed([*ast.iter_child_nodes(node)])


def _element(value: ast.expr, index: int, target: ast.Tuple | ast.List) -> ast.expr | None:
    """One part of a value that is unpacked: ``value[index]`` unless it is written out."""
    if isinstance(value, (ast.Tuple, ast.List)):
        spelt = len(value.elts) == len(target.elts)
        part = value.elts[index] if spelt else None
        return None if isinstance(part, ast.Starred) else part
    place = ast.Constant(index)
    return ast.copy_location(ast.Subscript(value, place, ast.Load()), value)


def _shared(one: tuple[Block, ...], other: tuple[Block, ...]) -> int:
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _excluded(here: tuple[Block, ...], there: tuple[Block, ...]) -> bool:
    """Whether two places are in branches of one statement that do not both run."""
    return bool(here and there) and here[0][0] == there[0][0] and here[0][1] in ("body", "orelse")

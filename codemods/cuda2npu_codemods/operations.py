"""Operations of torch however they are spelt: ``torch.pow(x, 2)``, ``x.pow(2)`` and ``x ** 2``."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from cuda2npu.rule import Site
from cuda2npu_codemods.flow import Flow, Value

_OPERATORS: Mapping[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
}
_SYNONYMS = {
    "concat": "cat",
    "concatenate": "cat",
    "multiply": "mul",
    "divide": "div",
    "true_divide": "div",
    "neg": "negative",
    "swish": "silu",
}
_MODULES = {
    "torch.nn.Softmax": "softmax",
    "torch.nn.SiLU": "silu",
    "torch.nn.GELU": "gelu",
    "torch.nn.Dropout": "dropout",
}
"""Modules without parameters, with the function that they apply."""
_CASTS = frozenset(
    "to float half bfloat16 double type type_as contiguous npu cuda cpu clone".split()
)
NPU = ("npu_", "_npu")
"""Parts of names of code that knows of NPUs; ``input`` has the three letters, too."""
_DEPTH = 8
"""How many operations deep two values are compared, or one is followed back."""
_LONGEST = 120
"""How many characters of an expression are shown in a message."""
UNKNOWN = "…"
"""Stands in a message for what the reader has to put there; no variable can be called so."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Operation(NamedTuple):
    """A call or operator: its name, its operands in order, and what it is given by keyword."""

    name: str
    operands: tuple[Value, ...]
    keywords: Mapping[str, Value]

    def argument(self, position: int, *names: str) -> Value | None:
        """An argument by keyword, else by its position; the tensor itself is the first."""
        for name in names:
            if name in self.keywords:
                return self.keywords[name]
        return self.operands[position] if position < len(self.operands) else None


@dataclass(frozen=True, slots=True, eq=False)
class Reader:
    """Reads the values of one function."""

    flow: Flow
    meaning: Callable[[str], str | None]
    """What a plain name means in the function, from its import."""
    owner: ast.ClassDef | None = None

    def of(self, function: Function, owner: ast.ClassDef | None = None) -> Reader:
        """The reader for another function of the file, in which modules have the same names."""
        flow, arguments = flow_of(function), function.args
        own = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
        return Reader(
            flow, lambda name: None if name in own | flow.bound else self.meaning(name), owner
        )

    def dotted(self, node: ast.expr) -> str | None:
        """The dotted name that a name or attribute chain stands for."""
        if isinstance(node, ast.Attribute):
            head = self.dotted(node.value)
            return f"{head}.{node.attr}" if head else None
        return self.meaning(node.id) if isinstance(node, ast.Name) else None

    def peeled(self, value: Value) -> Value:
        """The value behind names, casts and copies."""
        while True:
            behind = self._without_casts(self.flow.resolved(value))
            if behind is value:
                return value
            value = behind

    def _without_casts(self, value: Value) -> Value:
        while True:
            func = value.node.func if isinstance(value.node, ast.Call) else None
            if not isinstance(func, ast.Attribute) or func.attr not in _CASTS:
                return value
            if self.dotted(func) is not None:
                return value
            value = value.part(func.value)

    def operation(self, value: Value) -> Operation | None:
        """What computes the value, or None for what is no operation of torch."""
        value = self.peeled(value)
        node = value.node
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            name = _OPERATORS[type(node.op)]
            return Operation(name, (value.part(node.left), value.part(node.right)), {})
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return Operation("negative", (value.part(node.operand),), {})
        return self._call(value, node) if isinstance(node, ast.Call) else None

    def operations(self, at: int | None = None) -> Iterator[tuple[Value, Operation]]:
        """Every operation of the function, or of one statement, with its value, in order."""
        for number in range(len(self.flow.statements)) if at is None else (at,):
            for value in self.flow.expressions(number):
                if isinstance(value.node, (ast.BinOp, ast.Call)):
                    operation = self.operation(value)
                    if operation is not None and self.peeled(value).node is value.node:
                        yield value, operation

    def _call(self, value: Value, node: ast.Call) -> Operation | None:
        operands = tuple(value.part(argument) for argument in node.args)
        keywords = {k.arg: value.part(k.value) for k in node.keywords if k.arg is not None}
        func = node.func
        dotted = self.dotted(func)
        if dotted is not None and not dotted.startswith("torch."):
            return None
        if dotted is not None:
            name = dotted.rpartition(".")[2]
        elif module := self._module(func):
            name, given = module
            keywords.update({k.arg: value.part(k.value) for k in given.keywords if k.arg})
        elif isinstance(func, ast.Attribute) and not _is_self(func.value):
            name, operands = func.attr, (value.part(func.value), *operands)
        else:
            return None
        if not operands:
            tensor = keywords.get("input", keywords.get("tensors"))
            operands = (tensor,) if tensor is not None else ()
        name = name.rstrip("_")
        return Operation(_SYNONYMS.get(name, name), operands, keywords)

    def _module(self, func: ast.expr) -> tuple[str, ast.Call] | None:
        """The function that ``self.act(…)`` or ``nn.SiLU()(…)`` applies, and the module's call."""
        made = self.made(func) or (func if isinstance(func, ast.Call) else None)
        name = _MODULES.get(self.dotted(made.func) or "") if made is not None else None
        return (name, made) if name is not None and made is not None else None

    def made(self, attribute: ast.expr) -> ast.Call | None:
        """The call whose result the class keeps in ``self.attribute``, if it is the only one."""
        if not (isinstance(attribute, ast.Attribute) and _is_self(attribute.value)):
            return None
        kept = attributes_of(self.owner).get(attribute.attr, ()) if self.owner else ()
        return kept[0] if len(kept) == 1 and isinstance(kept[0], ast.Call) else None

    def number(self, value: Value | None) -> float | None:
        """The number that a value is written as."""
        if value is None:
            return None
        node = self.flow.resolved(value).node
        sign = 1
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            node, sign = node.operand, -1
        is_number = isinstance(node, ast.Constant) and type(node.value) in (int, float)
        return sign * node.value if is_number else None  # type: ignore[attr-defined]

    def is_last(self, value: Value | None) -> bool:
        """Whether a dimension is the last one, also written as a list of one."""
        if value is not None and isinstance(value.node, (ast.Tuple, ast.List)):
            elements = value.node.elts
            value = value.part(elements[0]) if len(elements) == 1 else None
        return self.number(value) == -1

    def same(self, one: Value, other: Value, depth: int = _DEPTH) -> bool:
        """Whether two values are the same tensor, up to its dtype."""
        one, other = self.peeled(one), self.peeled(other)
        if isinstance(one.node, ast.Name) and isinstance(other.node, ast.Name):
            name = one.node.id
            reaching = self.flow.reaching
            return name == other.node.id and reaching(name, one.at) == reaching(name, other.at)
        if one.node is other.node:
            return True
        if type(one.node) is not type(other.node) or depth == 0:
            return False
        mine, theirs = (list(ast.iter_child_nodes(value.node)) for value in (one, other))
        return (
            len(mine) == len(theirs)
            and _plain(one.node) == _plain(other.node)
            and all(
                self.same(one.part(a), other.part(b), depth - 1)
                if isinstance(a, ast.expr) and isinstance(b, ast.expr)
                else ast.dump(a) == ast.dump(b)
                for a, b in zip(mine, theirs, strict=True)
            )
        )

    def comes_from(self, value: Value, node: ast.expr, depth: int = _DEPTH) -> bool:
        """Whether a value can be what an expression gave, up to its dtype."""
        value = self.peeled(value)
        if value.node is node:
            return True
        sources = self.flow.sources(value) if depth else []
        return any(s is not value and self.comes_from(s, node, depth - 1) for s in sources)

    def pairs(self, operation: Operation | None, name: str) -> Iterator[tuple[Value, Value]]:
        """The operands of a commutative operation in both orders."""
        if operation is not None and operation.name == name and len(operation.operands) == 2:
            left, right = operation.operands
            yield left, right
            yield right, left

    def text(self, value: Value, at: int | None = None) -> str:
        """The source of a value, without casts around it, as a statement can spell it.

        That statement may be another one than the value's own, in which a name holds something
        else: what the value's statement has in it is then written out. ``UNKNOWN`` stands for
        what cannot be, and for what is too long.
        """
        value = self._without_casts(value)
        node = value.node if at is None else self._spelt(value, at, _DEPTH)
        text = UNKNOWN if node is None else ast.unparse(node)
        return text if len(text) <= _LONGEST else UNKNOWN

    def _spelt(self, value: Value, at: int, depth: int) -> ast.expr | None:
        """The expression with the names written out that hold something else in a statement."""
        stale = {
            node.id
            for node in ast.walk(value.node)
            if isinstance(node, ast.Name)
            and self.flow.reaching(node.id, value.at) != self.flow.reaching(node.id, at)
        }
        found: dict[str, ast.expr] = {}
        for name in stale:
            bound = self.flow.bound_to(value.part(ast.Name(name, ast.Load())))
            spelt = self._spelt(bound, at, depth - 1) if bound and depth else None
            if spelt is None:
                return None
            found[name] = spelt
        return _Replaced(found).visit(deepcopy(value.node)) if found else value.node


class _Replaced(ast.NodeTransformer):
    """Puts expressions in the place of names."""

    def __init__(self, found: Mapping[str, ast.expr]) -> None:
        self._found = found

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._found.get(node.id, node)


def reader_of(site: Site) -> Reader | None:
    """The reader for the function around a statement, or for the module outside of any.

    None where the advice would be idle: code without torch, and autograd functions, whose
    gradient is written by hand, too.
    """
    if not site.file.imports("torch"):
        return None
    around = site.enclosing
    if not around:
        return Reader(flow_of(site.file.tree), site.meaning)
    function = around[0]
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return None
    if any(argument.arg == "ctx" for argument in function.args.args[:1]):
        return None
    owner = around[1] if len(around) > 1 and isinstance(around[1], ast.ClassDef) else None
    return Reader(flow_of(function), site.meaning, owner)


@lru_cache(maxsize=64)
def flow_of(node: ast.Module | Function) -> Flow:
    return Flow(node.body)


@lru_cache(maxsize=16)
def attributes_of(owner: ast.ClassDef) -> Mapping[str, tuple[ast.expr, ...]]:
    """What the methods of a class assign to attributes of ``self``."""
    found: dict[str, tuple[ast.expr, ...]] = {}
    for node in ast.walk(owner):
        for target, value in _assigned(node):
            if isinstance(target, ast.Attribute) and _is_self(target.value):
                found[target.attr] = (*found.get(target.attr, ()), value)
    return found


def _assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What a statement assigns to what, also ``a, b = x, y`` part by part."""
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        yield node.target, node.value
    for target in node.targets if isinstance(node, ast.Assign) else ():
        value = node.value  # type: ignore[attr-defined]
        if not isinstance(target, (ast.Tuple, ast.List)):
            yield target, value
        elif isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
            yield from zip(target.elts, value.elts, strict=True)


def mentions(reader: Reader, parts: Iterable[str]) -> bool:
    """Whether the function speaks of a name that holds one of these."""
    return any(part in name for name in reader.flow.identifiers for part in parts)


def _plain(node: ast.expr) -> list[object]:
    """What of a node is no node: the name of an attribute, the value of a constant."""
    fields = (field for _, field in ast.iter_fields(node))
    return [field for field in fields if not isinstance(field, (ast.AST, list))]


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"

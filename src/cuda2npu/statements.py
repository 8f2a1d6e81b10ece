"""The statements of a file that may change, and the scopes around them, found in one walk.

Only statements are visited, not expressions, and most of them are judged by their line
numbers alone: on real files the walk costs a fraction of ``ast.parse``. A unit is a piece of
source that LibCST can parse by itself: a simple statement, the header of a compound one, a
decorator, a handler or a case.
"""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import cast

from cuda2npu.scopes import (
    OPAQUE,
    Function,
    Scope,
    bind_import,
    bind_import_from,
    bind_pattern,
    bind_target,
    declare,
    loaded_module,
    parameters,
)
from cuda2npu.source import Source

_STATEMENT_LISTS = ("body", "orelse", "finalbody")
_TRY: tuple[type[ast.AST], ...] = (ast.Try, getattr(ast, "TryStar", ast.Try))
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_COMPOUND: frozenset[type[ast.AST]] = frozenset(
    (*_DEFINITIONS, *_TRY, ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith)
) | {ast.Match}
_IMPORTS = frozenset((ast.Import, ast.ImportFrom))


@dataclass(frozen=True, slots=True)
class Unit:
    """Source bytes ``start:end`` that LibCST parses between ``prefix`` and ``suffix``."""

    start: int
    end: int
    prefix: str
    suffix: str
    statement: ast.AST
    scope: Scope
    blocks: tuple[ast.AST, ...] = ()
    """The compound statements around, outermost first."""
    following: tuple[ast.stmt, ...] = ()


class Statements:
    """Walks a tree once; afterwards holds scopes, imports and the units with trigger words.

    ``hits`` are the sorted byte offsets of trigger words in the source.
    """

    def __init__(self, tree: ast.Module, source: Source, hits: list[int]) -> None:
        self.source = source
        self.hits = hits
        self.units: list[Unit] = []
        self.imports: list[tuple[ast.Import | ast.ImportFrom, Scope, tuple[ast.AST, ...]]] = []
        self._functions: dict[str, list[Function]] = {}
        self._methods: set[str] = set()
        self._stored_attributes: set[str] = set()
        self.module = Scope("module", tree, None)
        self._blocks: list[ast.AST] = []
        self._defers = True
        self._hit_lines = [*map(source.line_of, hits), _NO_LINE]
        self._walrus_lines = [*map(source.line_of, source.find_all(b":=")), _NO_LINE]
        self._reaching_lines = [*sorted(map(source.line_of, self._reaching())), _NO_LINE]
        self._deferred: list[tuple[Function, Scope]] = []
        self._body(tree.body, self.module)
        self._defers = False

    def _reaching(self) -> Iterator[int]:
        """Offsets of what lets a function say something about the code around it."""
        for word in (b"import", b"global", b"nonlocal"):
            yield from self.source.find_all(word)

    def _complete(self) -> None:
        """Walk the functions that were left out because nothing in them is rewritten."""
        while self._deferred:
            node, scope = self._deferred.pop()
            self._body(node.body, scope)

    @property
    def functions(self) -> Mapping[str, list[Function]]:
        self._complete()
        return self._functions

    @property
    def methods(self) -> Set[str]:
        self._complete()
        return self._methods

    @property
    def stored_attributes(self) -> Set[str]:
        self._complete()
        return self._stored_attributes

    def _body(self, body: list[ast.stmt], scope: Scope) -> None:
        hits, walrus = self._hit_lines, self._walrus_lines
        for index, node in enumerate(body):
            kind = type(node)
            last = node.end_lineno or 0
            if walrus[bisect_left(walrus, node.lineno)] <= last:
                self._bind_walrus(node, scope)
            if kind in _COMPOUND:
                self._compound(node, scope, body, index)
                continue
            if kind in _IMPORTS:
                self._import(cast("ast.Import | ast.ImportFrom", node), scope)
            else:
                self._bind_simple(node, scope)
            if hits[bisect_left(hits, node.lineno)] <= last:
                self._simple(node, scope, body, index)

    def _bind_walrus(self, node: ast.AST, scope: Scope) -> None:
        """Bind what ``:=`` binds in the expressions of a statement, not in its body."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.NamedExpr):
                scope.bind(child.target.id, OPAQUE)
            if not isinstance(child, ast.stmt):
                self._bind_walrus(child, scope)

    def _import(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        self.imports.append((node, scope, tuple(self._blocks)))
        if isinstance(node, ast.Import):
            bind_import(scope, node)
        else:
            bind_import_from(scope, node)

    def _bind_simple(self, node: ast.stmt, scope: Scope) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._bind(scope, target, node.value)
            self._note_load(node, scope)
        elif isinstance(node, ast.AnnAssign):
            self._bind(scope, node.target, node.value)
            self._note_load(node, scope)
        elif isinstance(node, ast.AugAssign):
            self._bind(scope, node.target, None)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            declare(scope, node)

    def _bind(self, scope: Scope, target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, ast.Attribute):
            self._stored_attributes.add(target.attr)
        else:
            bind_target(scope, target, value)

    def _note_load(self, node: ast.Assign | ast.AnnAssign, scope: Scope) -> None:
        """``torch = pytest.importorskip("torch")`` is an import that is written otherwise."""
        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
        module = loaded_module(node.value)
        if module is not None and isinstance(target, ast.Name):
            alias = ast.alias(module, None if module == target.id else target.id)
            same = ast.copy_location(ast.Import([alias]), node)
            self.imports.append((same, scope, tuple(self._blocks)))

    # --- units

    def _simple(self, node: ast.stmt, scope: Scope, body: list[ast.stmt], index: int) -> None:
        start, end = self._span(node)
        if self._hit(start, end) and not _is_text(node):
            self._add(start, end, ("", ""), node, scope, tuple(body[index + 1 :]))

    def _add(
        self,
        start: int,
        end: int,
        wrap: tuple[str, str],
        node: ast.AST,
        scope: Scope,
        following: tuple[ast.stmt, ...] = (),
    ) -> None:
        blocks = tuple(self._blocks)
        self.units.append(Unit(start, end, *wrap, node, scope, blocks, following))

    def _span(self, node: ast.stmt | ast.expr) -> tuple[int, int]:
        offset = self.source.offset
        return (
            offset(node.lineno, node.col_offset),
            offset(node.end_lineno or 0, node.end_col_offset or 0),
        )

    def _hit(self, start: int, end: int) -> bool:
        index = bisect_left(self.hits, start)
        return index < len(self.hits) and self.hits[index] < end

    def _compound(self, node: ast.stmt, scope: Scope, body: list[ast.stmt], index: int) -> None:
        if isinstance(node, _DEFINITIONS):
            self._definition(node, scope, body, index)
            return
        if self._is_touched(node) and not isinstance(node, _TRY):
            self._header(node, scope, tuple(body[index + 1 :]))
        if isinstance(node, (ast.For, ast.AsyncFor)):
            self._bind(scope, node.target, None)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                if item.optional_vars is not None:
                    self._bind(scope, item.optional_vars, None)
        self._blocks.append(node)
        for name in _STATEMENT_LISTS:
            self._body(getattr(node, name, []), scope)
        for handler in getattr(node, "handlers", []):
            self._handler(handler, scope)
        if isinstance(node, ast.Match):
            for case in node.cases:
                self._case(node, case, scope)
        self._blocks.pop()

    def _definition(
        self,
        node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef,
        scope: Scope,
        body: list[ast.stmt],
        index: int,
    ) -> None:
        scope.bind(node.name, OPAQUE)
        if self._is_touched(node):
            following = tuple(body[index + 1 :])
            self._decorators(node, scope, following)
            self._header(node, scope, following)
        inner = Scope("class" if isinstance(node, ast.ClassDef) else "function", node, scope)
        if not isinstance(node, ast.ClassDef):
            self._functions.setdefault(node.name, []).append(node)
            if scope.kind == "class":
                self._methods.add(node.name)
            for parameter in parameters(node.args):
                inner.bind(parameter.arg, OPAQUE)
            if self._defers and not self._is_touched(node) and not self._reaches_out(node):
                self._deferred.append((node, inner))
                return
        self._blocks.append(node)
        self._body(node.body, inner)
        self._blocks.pop()

    def _is_touched(self, node: ast.stmt) -> bool:
        """Whether a trigger word stands on the statement's lines, decorators included."""
        decorators: list[ast.expr] = getattr(node, "decorator_list", [])
        first = decorators[0].lineno if decorators else node.lineno
        return self._hit_lines[bisect_left(self._hit_lines, first)] <= (node.end_lineno or 0)

    def _reaches_out(self, node: ast.stmt) -> bool:
        lines = self._reaching_lines
        return lines[bisect_left(lines, node.lineno)] <= (node.end_lineno or 0)

    def _decorators(
        self,
        node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef,
        scope: Scope,
        following: tuple[ast.stmt, ...],
    ) -> None:
        for decorator in node.decorator_list:
            start, end = self._span(decorator)
            if self._hit(start, end):
                wrap = ("@", "\ndef _(): pass")
                self._add(start, end, wrap, node, scope, following)

    def _header(self, node: ast.stmt, scope: Scope, following: tuple[ast.stmt, ...]) -> None:
        start = self.source.offset(node.lineno, node.col_offset)
        limit = self._body_start(node)
        if not self._hit(start, limit):
            return
        if self.source.utf8.startswith(b"elif", start):
            start += 2  # "if …" is what LibCST can parse by itself
        end = self._colon(_header_children(node), start, limit)
        if self._hit(start, end):
            suffix = "\n case _: pass" if isinstance(node, ast.Match) else " pass"
            self._add(start, end, ("", suffix), node, scope, following)

    def _body_start(self, node: ast.AST) -> int:
        if isinstance(node, ast.Match):
            first: ast.AST = node.cases[0].pattern
        else:
            first = cast(ast.If, node).body[0]  # or another statement with a body
            decorators = getattr(first, "decorator_list", None)
            first = decorators[0] if decorators else first
        return self.source.offset(first.lineno, first.col_offset)  # type: ignore[attr-defined]

    def _colon(self, children: Iterable[ast.AST], start: int, limit: int) -> int:
        """The offset behind the colon that ends a header.

        Behind the last expression only brackets, names and comments can stand before it.
        """
        position = start
        for child in children:
            expression = cast(ast.expr, child)  # or a parameter, keyword: all know their end
            line, column = expression.end_lineno, expression.end_col_offset
            position = max(position, self.source.offset(line or 0, column or 0))
        utf8 = self.source.utf8
        while position < limit:
            if utf8[position] == ord("#"):
                position = self.source.line_end(position)
                continue
            position += 1
            if utf8[position - 1] == ord(":"):
                return position
        return limit

    def _handler(self, handler: ast.ExceptHandler, scope: Scope) -> None:
        if handler.name:
            scope.bind(handler.name, OPAQUE)
        if handler.type is not None:
            # Nodes leave out the brackets around them, so that the text goes up to the colon.
            start = self.source.offset(handler.lineno, handler.col_offset) + len(b"except")
            end = self._colon([handler.type], start, self._body_start(handler)) - len(b":")
            if self._hit(start, end):
                self._add(start, end, ("try: pass\nexcept", ": pass"), handler, scope)
        self._body(handler.body, scope)

    def _case(self, match: ast.Match, case: ast.match_case, scope: Scope) -> None:
        bind_pattern(scope, case.pattern)
        subject = self.source.slice(*self._span(match.subject))
        pattern = self.source.offset(case.pattern.lineno, case.pattern.col_offset)
        start = self.source.utf8.rfind(b"case", 0, pattern) + len(b"case")
        parts = filter(None, (case.pattern, case.guard))
        end = self._colon(parts, start, self._body_start(case)) - len(b":")
        if self._hit(start, end):
            wrap = (f"match ({subject}):\n case", ": pass")
            self._add(start, end, wrap, case, scope)
        self._body(case.body, scope)


_NO_LINE = 1 << 62
"""Behind every line of a file."""


def _is_text(node: ast.stmt) -> bool:
    """A docstring or another string that stands alone."""
    return isinstance(node, ast.Expr) and (
        isinstance(node.value, ast.Constant) and isinstance(node.value.value, (str, bytes))
    )


def _header_children(node: ast.stmt) -> Iterator[ast.AST]:
    for name in ("test", "target", "iter", "subject", "returns"):
        child = getattr(node, name, None)
        if child is not None:
            yield child
    if isinstance(node, (ast.With, ast.AsyncWith)):
        for item in node.items:
            yield item.optional_vars or item.context_expr
    elif isinstance(node, ast.ClassDef):
        yield from node.bases
        yield from node.keywords
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        yield from parameters(node.args)
        yield from node.args.defaults
        yield from (default for default in node.args.kw_defaults if default is not None)
    yield from getattr(node, "type_params", [])

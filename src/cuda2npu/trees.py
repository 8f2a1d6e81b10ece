"""Walking, editing and locating LibCST trees of single statements.

LibCST's own visitors and metadata providers cost more than the parse itself on trees this
small, so the engine walks the fields that hold code and nothing else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import libcst as cst
from libcst._nodes.internal import CodegenState

if TYPE_CHECKING:
    from cuda2npu.rule import Replacement

_NO_CODE = (
    "lpar rpar lbrace rbrace lbracket rbracket comma dot equal colon semicolon "
    "operator leading_lines lines_after_decorators indent header footer star stars "
    "asname_whitespace"
).split()
_FIELDS: dict[type[cst.CSTNode], tuple[str, ...]] = {}


def code_fields(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    """The fields of a node class that can hold expressions or statements."""
    names = _FIELDS.get(kind)
    if names is None:
        every = (field.name for field in dataclasses.fields(kind))
        names = tuple(n for n in every if n not in _NO_CODE and not n.startswith("whitespace"))
        _FIELDS[kind] = names
    return names


def children(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    for name in code_fields(type(node)):
        value = getattr(node, name)
        if isinstance(value, cst.CSTNode):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from value


def parents(root: cst.CSTNode) -> dict[cst.CSTNode, cst.CSTNode]:
    """Every node below ``root`` with its parent, outer nodes first.

    What stands inside an import statement is no expression and is left out.
    """
    found: dict[cst.CSTNode, cst.CSTNode] = {}
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, (cst.Import, cst.ImportFrom)):
            continue
        for child in children(node):
            found[child] = node
            stack.append(child)
    return found


class Editor:
    """Applies replacements to a tree; the original nodes inside a replacement are edited too."""

    def __init__(self, edits: Mapping[cst.CSTNode, Replacement]) -> None:
        self.edits = edits
        self.applied: set[cst.CSTNode] = set()

    def edit(self, root: cst.Module) -> cst.Module:
        edited = self._inside(root, None)
        assert isinstance(edited, cst.Module)
        return edited

    def _replace(self, node: cst.CSTNode, parent: cst.CSTNode | None) -> Replacement:
        # A replacement may hold the node it replaces (`rank` in `f"npu:{rank}"`).
        if node is parent or node not in self.edits:
            return self._inside(node, parent)
        self.applied.add(node)
        new = self.edits[node]
        if new is None:
            return None
        if isinstance(new, tuple):
            return tuple(self._inside(part, node) for part in new)
        return _in_brackets_of(node, self._inside(new, node))

    def _inside(self, node: cst.CSTNode, replaced: cst.CSTNode | None) -> cst.CSTNode:
        changes: dict[str, Any] = {}
        for name in code_fields(type(node)):
            value = getattr(node, name)
            if isinstance(value, cst.CSTNode):
                new = self._replace(value, replaced)
                if new is not value:
                    changes[name] = new
            elif isinstance(value, (tuple, list)) and value:
                items = self._sequence(value, replaced)
                if items is not None:
                    changes[name] = items
        return node.with_changes(**changes) if changes else node

    def _sequence(
        self, nodes: Sequence[cst.CSTNode], replaced: cst.CSTNode | None
    ) -> list[cst.CSTNode] | None:
        """The edited sequence, or None when nothing in it changed."""
        result: list[cst.CSTNode] = []
        changed = False
        for node in nodes:
            new = self._replace(node, replaced)
            changed = changed or new is not node
            if isinstance(new, tuple):
                result.extend(new)
            elif new is not None:
                result.append(new)
        if not changed:
            return None
        _mend_last_comma(nodes, result)
        return result


def _in_brackets_of(old: cst.CSTNode, new: cst.CSTNode) -> cst.CSTNode:
    """The new expression in the old one's brackets, without which ``return(x)`` runs together."""
    brackets = getattr(old, "lpar", ())
    if not brackets or getattr(new, "lpar", True):
        return new
    return new.with_changes(lpar=brackets, rpar=getattr(old, "rpar", ()))


def _mend_last_comma(old: Sequence[cst.CSTNode], new: list[cst.CSTNode]) -> None:
    """Have the new last argument or element end as the old last one did.

    A comment behind it stays, and with it the comma that it stands behind.
    """
    if not new or not hasattr(new[-1], "comma") or new[-1] is old[-1]:
        return
    last: Any = old[-1]
    mine: Any = new[-1]
    space = getattr(mine.comma, "whitespace_after", None)
    if isinstance(space, cst.ParenthesizedWhitespace) and space.first_line.comment is not None:
        ends = [getattr(last.comma, "whitespace_after", None), _space_after(last)]
        closing = next((e for e in ends if isinstance(e, cst.ParenthesizedWhitespace)), space)
        space = space.with_changes(indent=closing.indent, last_line=closing.last_line)
        new[-1] = mine.with_changes(comma=mine.comma.with_changes(whitespace_after=space))
    elif isinstance(mine, cst.Arg):
        new[-1] = mine.with_changes(comma=last.comma, whitespace_after_arg=_space_after(last))
    else:
        new[-1] = mine.with_changes(comma=last.comma)


def _space_after(node: Any) -> cst.BaseParenthesizableWhitespace:
    space = getattr(node, "whitespace_after_arg", None)
    return space if space is not None else cst.SimpleWhitespace("")


@dataclasses.dataclass(frozen=False)
class _Recorder(CodegenState):
    """Generates code and notes at which characters each node starts and ends."""

    spans: dict[int, tuple[int, int]] = dataclasses.field(default_factory=dict)
    length: int = 0

    def add_token(self, value: str) -> None:
        self.length += len(value)
        super().add_token(value)

    def add_indent_tokens(self) -> None:
        self.length += sum(map(len, self.indent_tokens))
        super().add_indent_tokens()

    def before_codegen(self, node: cst.CSTNode) -> None:
        self.spans[id(node)] = (self.length, self.length)

    def after_codegen(self, node: cst.CSTNode) -> None:
        self.spans[id(node)] = (self.spans[id(node)][0], self.length)


def spans(module: cst.Module) -> tuple[str, dict[int, tuple[int, int]]]:
    """``module.code``, and the character offsets of every node in it, by ``id(node)``."""
    state = _Recorder(default_indent=module.default_indent, default_newline=module.default_newline)
    module._codegen(state)
    return "".join(state.tokens), state.spans

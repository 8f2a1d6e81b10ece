"""Imports of torch names that nothing uses any more once the file is rewritten."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import libcst as cst

from cuda2npu.facts import FileFacts


@dataclass(frozen=True, slots=True)
class Change:
    """A unit's span with the text before and after the rules."""

    start: int
    end: int
    old: str
    new: str


def without_unused(facts: FileFacts, changes: list[Change]) -> list[Change]:
    """The changes, with those added that drop imports which the changes made unused.

    A name counts as used when its letters stand anywhere else in the new file, strings and
    comments included: a dropped import that somebody needed costs more than a kept one.
    """
    candidates = _candidates(facts, changes)
    if not candidates or facts.path.endswith("__init__.py"):
        return changes  # the imports of a package are what it offers
    by_start = {change.start: change for change in changes}
    source = facts.source
    for node in _torch_imports(facts):
        start = source.offset(node.lineno, node.col_offset)
        end = source.offset(node.end_lineno or 0, node.end_col_offset or 0)
        change = by_start.get(start) or Change(start, end, *[source.slice(start, end)] * 2)
        dropped = [name for name in candidates if name in bound_names(node)]
        dropped = [name for name in dropped if _uses(name, facts, by_start.values(), start) == 0]
        if dropped:
            by_start[start] = Change(start, end, change.old, _drop(change.new, set(dropped)))
    return list(by_start.values())


def _candidates(facts: FileFacts, changes: list[Change]) -> set[str]:
    """Names from torch imports that some statement used and, rewritten, uses no more."""
    bound = {name for node in _torch_imports(facts) for name in bound_names(node)} - {"torch"}
    return {
        name
        for name in bound
        for change in changes
        if not change.old.startswith(("import ", "from "))
        and _names(name, change.old)
        and not _names(name, change.new)
    }


def _torch_imports(facts: FileFacts) -> Iterator[ast.Import | ast.ImportFrom]:
    for node, _, _ in facts.statements.imports:
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if all(name.partition(".")[0] == "torch" for name in names):
            yield node


def bound_names(node: ast.Import | ast.ImportFrom) -> list[str]:
    return [alias.asname or alias.name.partition(".")[0] for alias in node.names]


def _names(name: str, text: str) -> bool:
    """Whether the text names it; ``x.cuda`` does not name ``cuda``."""
    return re.search(rf"(?<![\w.]){re.escape(name)}\b", text) is not None


def _count(name: str, text: str) -> int:
    return len(re.findall(rf"\b{re.escape(name)}\b", text))


def _uses(name: str, facts: FileFacts, changes: Iterable[Change], own_start: int) -> int:
    """How often the name stands in the new file, its own import left aside."""
    total = _count(name, facts.source.text)
    own = next((c for c in changes if c.start == own_start), None)
    for change in changes:
        total += _count(name, change.new) - _count(name, change.old)
    if own is not None:
        return total - _count(name, own.new)
    source = facts.source
    for node in _torch_imports(facts):
        if source.offset(node.lineno, node.col_offset) == own_start:
            end = source.offset(node.end_lineno or 0, node.end_col_offset or 0)
            return total - _count(name, source.slice(own_start, end))
    return total


def _drop(text: str, names: set[str]) -> str:
    """The import statements without these names; empty when nothing is left."""
    try:
        module = cst.parse_module(text)
    except cst.ParserSyntaxError:
        return text  # several statements on indented lines
    kept = [line for line in (_without(line, names) for line in module.body) if line is not None]
    return module.with_changes(body=kept).code.rstrip("\r\n") if kept else ""


def _without(
    line: cst.SimpleStatementLine | cst.BaseCompoundStatement, names: set[str]
) -> cst.SimpleStatementLine | cst.BaseCompoundStatement | None:
    node = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
    if not isinstance(node, (cst.Import, cst.ImportFrom)) or isinstance(node.names, cst.ImportStar):
        return line
    aliases = [alias for alias in node.names if _bound(alias) not in names]
    if len(aliases) == len(node.names):
        return line
    if not aliases:
        return None
    aliases[-1] = aliases[-1].with_changes(comma=node.names[-1].comma)
    return line.with_changes(body=[node.with_changes(names=aliases)])


def _bound(alias: cst.ImportAlias) -> str:
    if alias.asname is not None and isinstance(alias.asname.name, cst.Name):
        return alias.asname.name.value
    return (alias.evaluated_name or "").partition(".")[0]

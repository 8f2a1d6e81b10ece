"""Plans the imports that rewritten code needs: once per file, where they belong."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from cuda2npu.facts import FileFacts
from cuda2npu.scopes import Scope
from cuda2npu.source import Source

Import = ast.Import | ast.ImportFrom


@dataclass(frozen=True, slots=True)
class Insertion:
    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class _Anchor:
    """An import statement behind which ours may stand."""

    node: Import
    scope: Scope


def plan(
    facts: FileFacts, modules: Iterable[str], scopes: Iterable[Scope], uses_name: bool
) -> list[Insertion]:
    """Where to insert ``import torch_npu`` (and ``import torch`` when it is needed).

    ``modules`` are those that the edited code needs, ``scopes`` those that hold the edits.
    ``uses_name`` says whether the new text names ``torch_npu``, so that no linter comment is
    needed. A file that never imports torch gets none: its importer decides.
    """
    needed = [m for m in ("torch", "torch_npu") if m in set(modules)]
    statements = []
    for module in needed:
        noqa = "" if module != "torch_npu" or uses_name else "  # noqa: F401"
        statements.append(f"import {module}{noqa}")
    insertions = []
    for anchor in _anchors(facts, list(scopes)):
        missing = [
            text
            for module, text in zip(needed, statements, strict=True)
            if not _is_imported(facts, module, anchor.scope)
        ]
        if missing:
            insertions.append(behind(facts.source, anchor.node, missing))
    return insertions


def module_anchor(facts: FileFacts) -> Import | None:
    """The import of torch at module level that runs first."""
    for node, scope, blocks in facts.statements.imports:
        if scope.kind == "module" and not blocks and _brings_torch(node):
            return node
    return next((anchor.node for anchor in _anchors(facts, [])), None)


def _anchors(facts: FileFacts, scopes: list[Scope]) -> list[_Anchor]:
    """The first ``import torch`` of the module, else of each function that needs one."""
    candidates = [
        (node, scope, blocks)
        for node, scope, blocks in facts.statements.imports
        if _brings_torch(node) and not any(map(_is_typing_only, blocks))
    ]
    for wanted in (_is_plain, _brings_torch):
        for unguarded in (True, False):
            for node, scope, blocks in candidates:
                if scope.kind == "module" and wanted(node) and (not blocks or not unguarded):
                    return [_Anchor(node, scope)]
    inner: dict[Scope, _Anchor] = {}
    for node, scope, _ in candidates:
        if any(_is_inside(user, scope) for user in scopes):
            inner.setdefault(scope, _Anchor(node, scope))
    return list(inner.values()) or _star_anchor(facts)


def _star_anchor(facts: FileFacts) -> list[_Anchor]:
    """Behind the last star import, which must be what brings ``torch``."""
    stars = [
        _Anchor(node, scope)
        for node, scope, blocks in facts.statements.imports
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*" and not blocks
    ]
    return stars[-1:] if facts.statements.module.find("torch") is None else []


def _is_plain(node: Import) -> bool:
    """``import torch`` itself."""
    return isinstance(node, ast.Import) and any(alias.name == "torch" for alias in node.names)


def _brings_torch(node: Import) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name.partition(".")[0] == "torch" for alias in node.names)
    return node.level == 0 and (node.module or "").partition(".")[0] == "torch"


def _is_typing_only(block: ast.AST) -> bool:
    return isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test)


def _is_inside(scope: Scope | None, outer: Scope) -> bool:
    while scope is not None:
        if scope is outer:
            return True
        scope = scope.parent
    return False


def _is_imported(facts: FileFacts, module: str, scope: Scope) -> bool:
    return any(
        isinstance(node, ast.Import)
        and any(alias.name == module and alias.asname is None for alias in node.names)
        and _is_inside(scope, holder)
        and not any(map(_is_typing_only, blocks))
        for node, holder, blocks in facts.statements.imports
    )


def behind(source: Source, node: Import, statements: list[str]) -> Insertion:
    """Statements behind an import, each on a line of its own where the import has one."""
    start = source.offset(node.lineno, node.col_offset)
    end = source.offset(node.end_lineno or 0, node.end_col_offset or 0)
    if not source.stands_alone(start, end):
        # The line holds other statements: `try: import torch`, `import torch; torch.f()`.
        plain = [statement.partition("  #")[0] for statement in statements]
        return Insertion(end, "".join(f"; {statement}" for statement in plain))
    line_end = source.line_end(end)
    lines = [f"{source.indent(start)}{statement}" for statement in statements]
    if source.utf8[line_end - 1 : line_end] not in (b"\n", b"\r"):
        return Insertion(line_end, "".join(source.newline + line for line in lines))
    return Insertion(line_end, "".join(line + source.newline for line in lines))


def before(source: Source, node: Import, statements: list[str]) -> Insertion:
    """Statements before an import, each on a line of its own where the import has one."""
    start = source.offset(node.lineno, node.col_offset)
    end = source.offset(node.end_lineno or 0, node.end_col_offset or 0)
    if not source.stands_alone(start, end):
        plain = [statement.partition("  #")[0] for statement in statements]
        return Insertion(start, "".join(f"{statement}; " for statement in plain))
    indent = source.indent(start)
    lines = "".join(f"{indent}{statement}{source.newline}" for statement in statements)
    return Insertion(start - len(indent), lines)

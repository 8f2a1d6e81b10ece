"""Where in its file a statement stands: the first of its kind, behind a guard, called by whom."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator

import libcst as cst

from cuda2npu.rule import Site
from cuda2npu_codemods.expressions import last_name
from cuda2npu_codemods.torch_imports import dotted


def imported(node: cst.Import | cst.ImportFrom) -> tuple[str, ...]:
    """The dotted names that an import statement brings; nothing for a relative one."""
    if isinstance(node, cst.Import):
        return tuple(dotted(alias.name) for alias in node.names)
    if node.relative:
        return ()
    module = dotted(node.module)
    if isinstance(node.names, cst.ImportStar):
        return (module,)
    return tuple(f"{module}.{dotted(alias.name)}" for alias in node.names)


def is_below(name: str, packages: Iterable[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _brings(node: ast.AST, packages: Iterable[str]) -> bool:
    if isinstance(node, ast.Import):
        return any(is_below(alias.name, packages) for alias in node.names)
    if not isinstance(node, ast.ImportFrom) or node.level:
        return False
    return any(is_below(f"{node.module}.{alias.name}", packages) for alias in node.names)


def _statements(
    body: Iterable[ast.stmt], blocks: tuple[ast.AST, ...] = ()
) -> Iterator[tuple[ast.stmt, tuple[ast.AST, ...]]]:
    """Every statement with the blocks whose first branch holds it; expressions are not visited."""
    for node in body:
        yield node, blocks
        yield from _statements(getattr(node, "body", ()), (*blocks, node))
        for other in (getattr(node, "orelse", ()), getattr(node, "finalbody", ())):
            yield from _statements(other, blocks)
        for branch in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            yield from _statements(branch.body, blocks)


def is_first_import(site: Site, packages: Iterable[str]) -> bool:
    """Whether no earlier line of the file imports from these packages."""
    return site.statement is next(
        (node for node, _ in _statements(site.file.tree.body) if _brings(node, packages)), None
    )


def brought_names(tree: ast.Module) -> Iterator[str]:
    """The dotted names that the file's imports bring, those of relative ones left out."""
    for node, _ in _statements(tree.body):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def brings(tree: ast.Module, packages: Iterable[str]) -> bool:
    """Whether any line of the file imports from these packages."""
    return any(_brings(node, packages) for node, _ in _statements(tree.body))


def is_first_read(site: Site, name: str) -> bool:
    """Whether the statement holds the file's first ``name`` or ``anything.name`` that is read."""
    return _holds_first(
        site,
        lambda node: last_name(node) == name and isinstance(getattr(node, "ctx", None), ast.Load),
    )


def is_first_use(site: Site, attributes: Iterable[str]) -> bool:
    """Whether the statement holds the file's first ``anything.name`` for one of the names."""
    return _holds_first(
        site, lambda node: isinstance(node, ast.Attribute) and node.attr in attributes
    )


def _holds_first(site: Site, is_use: Callable[[ast.AST], bool]) -> bool:
    uses = [
        node
        for node in ast.walk(site.file.tree)
        if isinstance(node, (ast.Attribute, ast.Name)) and is_use(node)
    ]
    first = min(uses, key=lambda node: (node.lineno, node.col_offset), default=None)
    return any(inner is first for inner in ast.walk(site.statement))


def is_guarded(site: Site) -> bool:
    """Whether the statement stands in a ``try`` or under an ``if``: it is meant to be absent."""
    return any(isinstance(block, (ast.Try, ast.If)) for block in _blocks(site))


def is_typing_only(site: Site) -> bool:
    return any(
        isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for block in _blocks(site)
    )


def _blocks(site: Site) -> tuple[ast.AST, ...]:
    every = _statements(site.file.tree.body)
    return next((blocks for node, blocks in every if node is site.statement), ())


def looped(node: cst.CSTNode, site: Site) -> Iterator[str]:
    """The literals that a loop's variable takes: ``for s in ["A100", "H100"]``."""
    if not isinstance(node, cst.Name):
        return
    for loop in ast.walk(site.file.tree):
        if not isinstance(loop, (ast.For, ast.comprehension)):
            continue
        if last_name(loop.target) != node.value:
            continue
        values: ast.expr | None = loop.iter
        if isinstance(values, ast.Name):
            values = site.binding(values.id)
        for part in getattr(values, "elts", ()):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                yield part.value


def tests_of(name: str | None, tree: ast.Module) -> list[ast.AST]:
    """The tests and operators of the file that ask for a variable's truth."""
    if name is None:
        return []
    found: list[ast.AST] = []
    for node in ast.walk(tree):
        asked = [getattr(node, "test", None), *getattr(node, "values", ())]
        asked += [node.operand] if isinstance(node, ast.UnaryOp) else []
        if any(last_name(part) == name for part in asked):
            found.append(node)
    return found


def users_of(tree: ast.Module, name: str) -> list[str]:
    """The functions of the file that mention a name, without the function of that name."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name != name:
            inner = (part for statement in node.body for part in ast.walk(statement))
            if any(isinstance(part, ast.Name) and part.id == name for part in inner):
                found.append(node.name)
    return found


def listed(names: Iterable[str], most: int = 4) -> str:
    """``a, b, c and 3 more``."""
    every = list(dict.fromkeys(names))
    if len(every) <= most:
        return ", ".join(every)
    return f"{', '.join(every[:most])} and {len(every) - most} more"

"""The project modules that a script imports, found in the sources; nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

_MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg")
_OUTSIDE = ("site-packages", "dist-packages")


def project_root(script: Path, here: Path) -> Path:
    """The folder that a script belongs to: marked as a project, the working folder, or its own."""
    folder = script.parent
    for parent in (folder, *folder.parents):
        if any((parent / mark).exists() for mark in _MARKS):
            return parent
    return here if folder.is_relative_to(here) and here != Path(here.anchor) else folder


def closure(script: Path, root: Path) -> list[Path]:
    """The script and every file of the project that it imports, directly or not."""
    found = {script: None}
    waiting = [script]
    while waiting:
        path = waiting.pop()
        for imported in _imported(path, _search(script, root)):
            if imported not in found and imported.is_relative_to(root):
                found[imported] = None
                waiting.append(imported)
    return list(found)


def _search(script: Path, root: Path) -> list[Path]:
    """The folders of the project in which a module is looked for."""
    folders = [script.parent, *(p for p in script.parent.parents if p.is_relative_to(root))]
    folders += [root / "src"]
    return [folder for folder in dict.fromkeys(folders) if not set(_OUTSIDE) & set(folder.parts)]


def _imported(path: Path, search: list[Path]) -> Iterator[Path]:
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files(alias.name.split("."), search)
        elif isinstance(node, ast.ImportFrom):
            names = node.module.split(".") if node.module else []
            folders = [path.parents[node.level - 1]] if node.level else search
            yield from _files(names, folders)
            for alias in node.names:
                yield from _files([*names, alias.name], folders)


def _files(names: list[str], search: list[Path]) -> Iterator[Path]:
    """The files that an import of a dotted name runs: each package on the way, and the module."""
    if not names:
        return
    for folder in search:
        found = list(_chain(names, folder))
        if found:
            yield from found
            return


def _chain(names: list[str], folder: Path) -> Iterator[Path]:
    place = folder
    for name in names:
        place = place / name
        module = place.with_name(name + ".py")
        if (place / "__init__.py").is_file():
            yield place / "__init__.py"
        elif module.is_file():
            yield module
            return
        elif not place.is_dir():
            return

"""The project that a script belongs to, and the file of a module; nothing is imported."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

_MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg")


def project_root(script: Path, here: Path) -> Path:
    """The folder that a script belongs to: marked as a project, the working folder, or its own."""
    folder = script.parent
    for parent in (folder, *folder.parents):
        if any((parent / mark).exists() for mark in _MARKS):
            return parent
    return here if folder.is_relative_to(here) and here != Path(here.anchor) else folder


def module_file(name: str, here: Path) -> Path | None:
    """The file that ``python -m NAME`` would run in the folder ``here``."""
    spec = _module(name, here)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = _module(f"{name}.__main__", here)
    if spec is None or not spec.has_location or spec.origin is None:
        return None
    return Path(spec.origin)


def _module(name: str, here: Path) -> ModuleSpec | None:
    parents, _, last = name.rpartition(".")
    if not parents:
        return PathFinder.find_spec(last, [str(here)]) or _installed(last)
    package = _module(parents, here)
    if package is None or package.submodule_search_locations is None:
        return None
    return PathFinder.find_spec(name, list(package.submodule_search_locations))


def _installed(name: str) -> ModuleSpec | None:
    """Looks where Python looks, in editable installs too."""
    finders: Sequence[Any] = sys.meta_path
    found = (finder.find_spec(name, None) for finder in finders if hasattr(finder, "find_spec"))
    return next((spec for spec in found if spec is not None), None)

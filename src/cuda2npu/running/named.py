"""What ``module:callable`` or ``file.py:callable`` stands for. Child side."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from cuda2npu.model import UsageError


def named(target: str) -> Any:
    """The thing itself; raises UsageError where the file or module has none of that name."""
    place, _, attribute = target.rpartition(":")
    found: Any = _file(Path(place)) if place.endswith(".py") else _module(place)
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise UsageError(f"{target}: {place} has no {name}")
        found = getattr(found, name)
    return found


def _file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    sys.path.insert(0, str(path.resolve().parent))
    found = spec_from_file_location(path.stem, path.resolve())
    assert found is not None
    assert found.loader is not None
    module = module_from_spec(found)
    sys.modules[path.stem] = module  # pickle and dataclasses look for it there
    found.loader.exec_module(module)
    return module


def _module(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name + ".").startswith(error.name + "."):
            raise UsageError(
                f"{name}: no such module, seen from {Path.cwd()}; a file is written model.py:build"
            ) from None
        raise

"""Run by the interpreter that is looked at, any from Python 3.8 on: what is installed for it.

The arguments are modules to find and distributions to read; what was found is printed as JSON.
Looking a top-level module up does not import it.
"""

from __future__ import annotations

import sys

# The current folder comes last, for it may hold a json.py; below it is first again, as always.
sys.path.sort(key=bool, reverse=True)

import json
import platform
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.sort(key=bool)

COMPILED = {
    "torch": "_C*.so",
    "torch_npu": "_C*.so",
    "numpy": "*core/*.so",
}
"""A library that lies in the folder of each real package, whatever its release."""


def module(name: str) -> dict[str, Any]:
    """The folder of a package, or the file of a module, and whether it is the compiled package."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return {"place": None, "compiled": False}
    place = next(iter(spec.submodule_search_locations or ()), spec.origin)
    return {"place": place, "compiled": any(Path(str(place)).glob(COMPILED[name]))}


def distribution(name: str) -> dict[str, Any] | None:
    """Version and requirements of a distribution, or why they are not told.

    None if it is not there.
    """
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None
    told = {"place": str(found.locate_file("")), "version": "", "requires": [], "error": ""}
    try:
        return {**told, "version": found.version or "", "requires": found.requires or []}
    except Exception as error:
        return {**told, "error": f"{type(error).__name__}: {error}"}


modules, distributions = (argument.split() for argument in sys.argv[1:3])
found = {
    "python": platform.python_version(),
    "modules": {name: module(name) for name in modules},
    "distributions": {name: distribution(name) for name in distributions},
}
print(json.dumps(found))

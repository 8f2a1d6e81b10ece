"""Run by the interpreter that is looked at, any from Python 3.8 on: what is installed for it.

The arguments are modules to find and distributions to read; what was found is printed as JSON.
Looking a top-level module up does not import it.
"""

from __future__ import annotations

import json
import platform
import sys
from importlib import metadata
from importlib.util import find_spec
from typing import Any


def place(module: str) -> str | None:
    """The folder of a package; None if it is not there."""
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    return next(iter(spec.submodule_search_locations or ()), spec.origin)


def distribution(name: str) -> dict[str, Any] | None:
    """Version and requirements of a distribution; None if it is not there."""
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None
    return {"version": found.version or "", "requires": found.requires or []}


modules, distributions = (argument.split() for argument in sys.argv[1:3])
found = {
    "python": platform.python_version(),
    "modules": {name: place(name) for name in modules},
    "distributions": {name: distribution(name) for name in distributions},
}
print(json.dumps(found))

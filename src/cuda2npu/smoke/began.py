"""What each Python process of a run does first, whoever started it. Child side.

``PYTHONPATH`` names a folder with a ``sitecustomize`` that calls ``began``. It notes which files
are read, and in the run on the NPU it leads to their rewritten copies: modules, wherever
``sys.path`` finds them, scripts that are started by their path, and configs that are opened.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from cuda2npu.simulator import RECORDED
from cuda2npu.smoke.files_read import watch
from cuda2npu.smoke.kept import keep
from cuda2npu.smoke.opened import copy_of, lead
from cuda2npu.smoke.spec import Spec

NAME = "sitecustomize"
TEXT = """\
try:
    from cuda2npu.smoke.began import began
except ImportError:  # another Python, which knows nothing of cuda2npu
    pass
else:
    began(__file__)
"""


def began(own: str) -> None:
    _next_customization(str(Path(own).parent))
    path = Path(os.environ.get(RECORDED, ""))
    if not path.is_file():
        return
    spec = Spec.read(path)
    if spec.copy:
        _start_the_copy(spec)
        sys.meta_path.insert(0, Copies(spec))
        lead(spec)
    if spec.kept:
        keep(Path(spec.kept), spec.folders)
    watch(path.parent, spec.other_run)


def _next_customization(own: str) -> None:
    """The one that ours stands before, as Python would have run it."""
    rest = [entry for entry in sys.path if entry != own]
    found = PathFinder.find_spec(NAME, rest)
    if found is not None and found.loader is not None:
        module = sys.modules[NAME] = module_from_spec(found)
        found.loader.exec_module(module)


def _start_the_copy(spec: Spec) -> None:
    """Become the process that runs the copy, where an original was to be run by its path."""
    copy = copy_of(sys.argv[0], spec)
    if copy is not None and copy != sys.argv[0]:
        before = len(sys.orig_argv) - len(sys.argv)
        os.execv(sys.executable, [*sys.orig_argv[:before], copy, *sys.argv[1:]])


class Copies(MetaPathFinder):
    """Finds what Python finds, and hands out the rewritten copy where there is one."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        others: Sequence[Any] = [finder for finder in sys.meta_path if finder is not self]
        looked = (other.find_spec(name, path, target) for other in others)
        found: ModuleSpec | None = next((spec for spec in looked if spec is not None), None)
        if found is None or not found.has_location or found.origin is None:
            return found
        copy = copy_of(found.origin, self._spec)
        return found if copy is None else spec_from_file_location(name, copy)

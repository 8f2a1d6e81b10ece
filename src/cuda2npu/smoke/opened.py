"""Leads what a script opens by its path to the rewritten copy. Child side, in the run on the NPU.

A config is no module: the script reads ``open("config.yaml")`` wherever the project lies.
"""

from __future__ import annotations

import builtins
import io
import os
import pathlib
from pathlib import Path
from typing import Any

from cuda2npu.smoke.files_read import CONFIGS
from cuda2npu.smoke.spec import Spec


def lead(spec: Spec) -> None:
    """Have ``open`` and what reads by it, as ``Path.read_text`` does, read converted configs."""
    real = io.open

    def led(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        if isinstance(mode, str) and set(mode) <= set("rbtU"):
            file = _converted(file, spec)
        return real(file, mode, *args, **options)

    owners: tuple[Any, ...] = (builtins, io)
    for owner in owners:
        owner.open = led
    accessor: Any = getattr(pathlib, "_NormalAccessor", None)  # Python 3.10
    if accessor is not None:
        accessor.open = staticmethod(led)


def _converted(file: Any, spec: Spec) -> Any:
    """The copy of a config, as long as nobody has written to the one or the other since."""
    if not isinstance(file, (str, os.PathLike)):
        return file
    name = os.fspath(file)
    copy = copy_of(name, spec) if isinstance(name, str) and name.endswith(CONFIGS) else None
    if copy is None:
        return file
    same = os.stat(name).st_mtime_ns == os.stat(copy).st_mtime_ns  # noqa: PTH116
    return copy if same else file


def copy_of(path: str, spec: Spec) -> str | None:
    """The rewritten copy of a file; links stand for files that are as they were."""
    for place in (os.path.abspath(path), os.path.realpath(path)):  # noqa: PTH100
        if place.startswith(spec.root + os.sep):
            copy = spec.copy + place[len(spec.root) :]
            if Path(copy).is_file() and os.path.realpath(copy) == copy:
                return copy
    return None

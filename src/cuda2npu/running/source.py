"""Files that are run: which are there, and which are the user's own."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from cuda2npu.running import RunError

_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")

_BLOCK = 1 << 20


def source_file(path: Path) -> Path:
    """The whole path of a script; raises RunError where there is none that Python could run."""
    if path.is_dir():
        raise RunError(f"{path}: is a folder; name the script in it that runs")
    if not path.is_file():
        raise RunError(f"{path}: no such file")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error.strerror}") from None
    if b"\0" in data:
        raise RunError(f"{path}: is no Python source: it holds null bytes")
    return path.resolve()


def digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            found.update(block)
    return found.hexdigest()


def is_installed(path: str) -> bool:
    return any(part in path for part in _INSTALLED)

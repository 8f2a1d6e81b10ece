"""Where a command may put a file: one rule for all of them, applied before the work is done."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from cuda2npu.model import UsageError


def check_output(
    option: str, path: Path, suffixes: Sequence[str], read: Sequence[Path] = ()
) -> None:
    """Raise UsageError where no file of this kind can be written, or one would be lost.

    A name of the right kind is asked for, so that no source is taken for a result; ``read`` are
    files that the command reads. Links are followed, as they are when the file is written.
    """
    try:
        fault = _fault(path, path.resolve(), suffixes) or _is_read(path, read)
    except (OSError, RuntimeError) as error:  # a name too long, a link to itself
        fault = f"cannot be written: {getattr(error, 'strerror', '') or error}"
    if fault:
        raise UsageError(f"{option} {path}: {fault}")


def _fault(path: Path, target: Path, suffixes: Sequence[str]) -> str:
    if target.is_dir():
        return "is a folder"
    if path.suffix.lower() not in suffixes:
        return f"the name has to end in {suffixes[0]}"
    if target.suffix.lower() not in suffixes:
        return f"is a link to {target}, whose name does not end in {suffixes[0]}"
    if not target.parent.is_dir():
        return f"there is no folder {target.parent if path.is_symlink() else path.parent}"
    if not os.access(target.parent, os.W_OK):
        return f"{target.parent} cannot be written to"
    if not target.exists():
        return ""
    if not target.is_file():
        return "is no file, but a device, pipe or socket"
    return "" if os.access(target, os.W_OK) else "is read-only"


def _is_read(path: Path, read: Sequence[Path]) -> str:
    same = path.exists() and any(each.exists() and path.samefile(each) for each in read)
    return "is read by this very command" if same else ""

"""The temporary folder of a run, gone when it ends; what a killed run left goes with the next."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "cuda2npu-run-"
_YOUNG = 60.0
"""Seconds in which a folder may be too new to be locked yet."""


@contextmanager
def workspace() -> Iterator[Path]:
    """A new folder, locked as long as its run lives."""
    _remove_stale(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as name:
        lock = _locked(Path(name))
        try:
            yield Path(name).resolve()
        finally:
            if lock is not None:
                os.close(lock)


def _remove_stale(folder: Path) -> None:
    for left in folder.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            status = left.lstat()
            if status.st_uid != os.getuid() or time.time() - status.st_mtime < _YOUNG:
                continue
            lock = _locked(left)
            if lock is not None:
                shutil.rmtree(left, ignore_errors=True)
                os.close(lock)


def _locked(folder: Path) -> int | None:
    """Lock a folder: the kernel unlocks it when the process ends, however it does."""
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor

"""Writing files so that each is either the old one or the new one."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cuda2npu.files import Copy


class WriteError(Exception):
    """A file that could not be written. It is as it was."""


def replace_file(path: str, data: bytes, *, expected: bytes, root: str) -> None:
    """Write a file in one step; it holds ``expected`` until then. A link's target is written."""
    target = Path(path).resolve()
    if Path(path).is_symlink() and not target.is_relative_to(root):
        raise WriteError(f"is a link to {target}, which is outside {root}. Left as it was.")
    if not os.access(target, os.W_OK):
        raise WriteError("is read-only. Left as it was.")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise WriteError(f"cannot be replaced: {target.parent} is read-only. Left as it was.")
    try:
        present = target.read_bytes()
        if present == data:  # a worker that died after the write
            return
        if present != expected:
            raise WriteError("was changed by another program meanwhile. Left as it was.")
        _write(target, data, target.stat())
    except OSError as error:
        raise WriteError(f"cannot be written: {error.strerror}. Left as it was.") from None


def write_copy(source: str, output: str, data: bytes, folder: str) -> None:
    """Write ``data`` to ``output``, below ``folder``, with the mode of ``source``."""
    try:
        target = _prepare(Path(output), Path(folder))
        _write(target, data, Path(source).stat())
    except OSError as error:
        raise WriteError(f"cannot be written to {output}: {error.strerror}") from None


def copy_file(copy: Copy) -> None:
    """Copy a file as it is; a link stays a link."""
    import shutil

    try:
        target = _prepare(Path(copy.output), Path(copy.folder))
        source = Path(copy.path)
        with temporary(target.parent) as name:
            if source.is_symlink():
                Path(name).unlink()
                Path(name).symlink_to(source.readlink())
            else:
                shutil.copy2(source, name)
            Path(name).replace(target)
    except OSError as error:
        raise WriteError(f"cannot be copied to {copy.output}: {error.strerror}") from None


def _prepare(target: Path, folder: Path) -> Path:
    """Make the folders of a target; a link among them must not lead out of ``folder``."""
    real = target.parent.resolve()
    if not real.is_relative_to(folder.resolve()):
        raise WriteError(f"not written: {target.parent} leads outside {folder}")
    real.mkdir(parents=True, exist_ok=True)
    return target


_TEMPORARIES: set[str] = set()


def remove_temporaries() -> None:
    """What a process that ends in the middle of its work has to clean up."""
    for name in tuple(_TEMPORARIES):
        with suppress(OSError):
            Path(name).unlink()


@contextmanager
def temporary(folder: Path) -> Iterator[str]:
    """A new file in the folder, gone at the end unless it was renamed."""
    import tempfile

    descriptor, name = tempfile.mkstemp(prefix=".cuda2npu-", suffix=".tmp", dir=folder)
    _TEMPORARIES.add(name)
    os.close(descriptor)
    try:
        yield name
    finally:
        _TEMPORARIES.discard(name)
        with suppress(FileNotFoundError):
            Path(name).unlink()


def put_in_place(name: str, target: Path) -> None:
    """Let a temporary file take its place, with the mode that a new file gets."""
    mask = os.umask(0)
    os.umask(mask)
    Path(name).chmod(0o666 & ~mask)
    Path(name).replace(target.resolve())


def _write(target: Path, data: bytes, like: os.stat_result) -> None:
    with temporary(target.parent) as name:
        with open(name, "wb") as stream:  # noqa: PTH123
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        new = Path(name)
        if hasattr(os, "chown"):
            with suppress(OSError):  # only root may give a file away
                os.chown(name, like.st_uid, like.st_gid)
        new.chmod(stat.S_IMODE(like.st_mode))
        new.replace(target)
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """Make the rename last; not every system can open a folder."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

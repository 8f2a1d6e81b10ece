"""Both runs find the same folders: what the first changed is put back before the second.

Nothing is lost: what the first run made is laid aside, and comes back after the second where that
did not make it again. Nothing is touched but what the first run itself was seen to change.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from cuda2npu.smoke.kept import ABSENT, FILE, FOLDER, LINK


class _Kept(NamedTuple):
    path: Path
    was: str
    target: str
    copy: Path


@contextmanager
def as_before(folder: Path) -> Iterator[None]:
    """While this holds, the user's folders are as they were when ``folder`` was begun."""
    aside: list[tuple[Path, Path]] = []
    try:
        for number, kept in enumerate(_read(folder)):
            with suppress(OSError, shutil.Error):  # what then is read of it is told by its time
                _put_back(kept, folder / f"aside{number}", aside)
        yield
    finally:
        for place, path in aside:
            with suppress(OSError, shutil.Error):
                _bring_back(place, path)


def _read(folder: Path) -> list[_Kept]:
    """Folders before what is in them."""
    found = []
    for file in folder.glob("*.json"):
        with suppress(ValueError):  # the process was ended while it wrote
            entry = json.loads(file.read_text(encoding="utf-8"))
            copy = file.with_suffix(".kept")
            found.append(_Kept(Path(entry["path"]), entry["was"], entry["target"], copy))
    return sorted(found)


def _put_back(kept: _Kept, place: Path, aside: list[tuple[Path, Path]]) -> None:
    path = kept.path
    if kept.was in (ABSENT, LINK) and os.path.lexists(path):
        shutil.move(path, place)
        aside.append((place, path))
    if kept.was == FOLDER:
        path.mkdir(exist_ok=True)
    elif kept.was == LINK:
        path.symlink_to(kept.target)
    elif kept.was == FILE and not path.is_dir():
        _replace(path, kept.copy)


def _replace(path: Path, copy: Path) -> None:
    """With the content, the mode, the owner and the times that it had."""
    descriptor, name = tempfile.mkstemp(prefix=".cuda2npu-", suffix=".tmp", dir=path.parent)
    os.close(descriptor)
    try:
        shutil.copy2(copy, name)
        with suppress(OSError):  # only root may give a file away
            os.chown(name, path.stat().st_uid, path.stat().st_gid)
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)


def _bring_back(place: Path, path: Path) -> None:
    """What the second run made itself is newer."""
    if not os.path.lexists(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(place, path)
    elif place.is_dir() and path.is_dir() and not path.is_symlink():
        for inner in place.iterdir():
            _bring_back(inner, path / inner.name)

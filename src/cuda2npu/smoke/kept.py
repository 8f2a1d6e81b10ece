"""Keeps what a run is about to change in the user's folders. Child side.

A hook on the events that Python audits sees each file before it is written to, removed or renamed,
whichever process of the run does it. ``putback`` is the other half.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

LARGEST = 256 * 2**20
"""Bytes of a file beyond which it is not kept."""
ABSENT, FILE, LINK, FOLDER, LEFT = "absent", "file", "link", "folder", "left"
"""What was at a path; ``LEFT`` is what is better left as the run leaves it."""
_SAVED = "cuda2npu.saved"
"""The event of a file that native code will write."""
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def keep(folder: Path, folders: Sequence[str]) -> None:
    """Keep in ``folder`` what this process and those it forks change below ``folders``."""
    sys.addaudithook(_Keeper(folder, folders).heard)


def announce_saves(torch: Any) -> None:
    """``torch.save`` opens its files in native code, which audits nothing."""
    save = torch.save

    def seen_save(value: Any, file: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(file, (str, os.PathLike)):
            sys.audit(_SAVED, os.fspath(file))
        return save(value, file, *arguments, **options)

    torch.save = seen_save


class _Keeper:
    def __init__(self, folder: Path, folders: Sequence[str]) -> None:
        self._folder = folder
        self._folders = tuple(os.path.realpath(each).rstrip(os.sep) + os.sep for each in folders)
        self._seen: set[str] = set()
        self._own = threading.local()

    def heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if getattr(self._own, "busy", False):
            return
        self._own.busy = True
        try:
            if event == "os.rename":
                self._renamed(*arguments)
            for path in _changed_by(event, arguments):
                self._keep(path)
        except Exception:  # the script goes on, whatever it handed over
            return
        finally:
            self._own.busy = False

    def _renamed(self, old: Any, new: Any, old_folder: int, new_folder: int) -> None:
        """Both ends; where the old one cannot be kept, the new one is all there is of it."""
        source, target = _entry(old, old_folder), _entry(new, new_folder)
        known = self._keep(source)
        if known in (FOLDER, LEFT):
            self._note(source, LEFT)
        self._keep(target, LEFT if known in (FOLDER, LEFT) else "")

    def _keep(self, place: str, was: str = "") -> str:
        """Keep what is at a path, if nobody did so yet; what it was before the run."""
        if not self._is_the_users(place):
            return ""
        if place not in self._seen:
            self._seen.add(place)
            self._note(place, was or _what(place), new=True)
        return str(json.loads(self._file(place).read_text(encoding="utf-8"))["was"])

    def _is_the_users(self, place: str) -> bool:
        """Below the folders; not in hidden ones, which hold caches, histories and environments."""
        if place.startswith(str(self._folder.parent)):
            return False
        inner = next((place[len(f) :] for f in self._folders if place.startswith(f)), "")
        return bool(inner) and not any(part.startswith(".") for part in Path(inner).parts[:-1])

    def _note(self, place: str, was: str, new: bool = False) -> None:
        file = self._file(place)
        if new:
            try:
                file.touch(exist_ok=False)
            except FileExistsError:  # another process was here first
                return
        target = str(Path(place).readlink()) if was == LINK else ""
        entry = {"path": place, "was": was, "target": target}
        if was == FILE:
            shutil.copy2(place, file.with_suffix(".kept"))
        file.write_text(json.dumps(entry), encoding="utf-8")

    def _file(self, place: str) -> Path:
        return self._folder / f"{sha256(os.fsencode(place)).hexdigest()}.json"


def _changed_by(event: str, arguments: tuple[Any, ...]) -> Iterator[str]:
    """The paths that something is about to change, less those of a rename."""
    if event == "open":
        if isinstance(arguments[0], (str, bytes)) and arguments[2] & _WRITES:
            yield os.path.realpath(os.fsdecode(arguments[0]))
    elif event in (_SAVED, "os.truncate", "sqlite3.connect"):
        if not isinstance(arguments[0], int):
            yield os.path.realpath(os.fsdecode(arguments[0]))
    elif event in ("os.mkdir", "os.remove", "os.rmdir"):
        yield _entry(arguments[0], arguments[-1])
    elif event in ("os.link", "os.symlink"):
        yield _entry(arguments[1], arguments[-1])


def _entry(path: Any, folder: int) -> str:
    """A name in its folder, which may be given as an open one; links are not followed."""
    text = os.fsdecode(path)
    if folder >= 0:
        text = str(Path(f"/proc/self/fd/{folder}").readlink() / text)
    parent, name = os.path.split(os.path.abspath(text))  # noqa: PTH100
    return os.path.join(os.path.realpath(parent), name)  # noqa: PTH118


def _what(place: str) -> str:
    path = Path(place)
    if path.is_symlink():
        return LINK
    if path.is_file():
        return FILE if path.stat().st_size <= LARGEST else LEFT
    if path.is_dir():
        return FOLDER
    return LEFT if path.exists() else ABSENT

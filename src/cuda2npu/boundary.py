"""Which files of a folder belong to its project: what git lists, and nobody else's code."""

from __future__ import annotations

import os
import re
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from cuda2npu.exclude import Exclude
from cuda2npu.formats import format_of

MANY = 1000
"""More files of a folder that is left out are not counted."""


class Boundary:
    """Says of each path below a folder whether it is the project's own.

    ``left_out`` is told what is vendored or generated, with the number of its files.
    """

    def __init__(self, folder: Path, exclude: Exclude, left_out: dict[str, int]) -> None:
        self._folder = folder
        self._exclude = exclude
        self._prefix = exclude.prefix(folder)
        self._listed = tracked(folder)
        self._left_out = left_out

    def skips(self, relative: str) -> bool:
        """Whether a folder is left out."""
        path, listed = self._prefix + relative, self._listed
        foreign = bool(self._exclude.vendored(path, folder=True))
        if listed is not None and relative in listed.repositories:
            foreign = not self._exclude.takes_in(path)
        elif listed is not None and not listed.has_folder(relative):
            return True
        if foreign:
            self._leave_out(f"{self._folder / relative}/", _count(self._folder / relative))
        return foreign or self._exclude.matches(path, folder=True)

    def has(self, relative: str) -> bool:
        """Whether a file is the project's own."""
        path = self._prefix + relative
        if self._listed is not None and not self._listed.has(relative):
            return False
        kind = self._exclude.vendored(path, folder=False)
        if kind is not None:
            self._leave_out(kind, 1)
        return not self._exclude.matches(path, folder=False)

    def _leave_out(self, name: str, files: int) -> None:
        if files:
            self._left_out[name] = self._left_out.get(name, 0) + files


def foreign(path: Path, exclude: Exclude) -> str | None:
    """The vendored folder, submodule or kind of files that a named file belongs to, if any."""
    base = exclude.start(path)
    in_git = any((above / ".git").exists() for above in (base, *base.parents))
    for relative, is_folder in exclude.steps(path):
        kind = exclude.vendored(relative, folder=is_folder)
        if is_folder and (kind or (in_git and (base / relative / ".git").exists())):
            if not exclude.takes_in(relative):
                return f"{relative}/"
        elif kind or exclude.matches(relative, folder=is_folder):
            return kind
    return None


def _count(folder: Path) -> int:
    """The files of a folder that would be read, up to a limit that makes the number idle."""
    found = (name for _, _, names in os.walk(folder) for name in names if format_of(name))
    return sum(1 for _ in islice(found, MANY))


class Tracked(NamedTuple):
    """Paths below a folder that git tracks, or would track if they were added."""

    files: frozenset[str]
    folders: frozenset[str]
    repositories: frozenset[str]
    """Folders below that are repositories of their own: submodules, for one."""

    def has(self, name: str) -> bool:
        """Whether a file is one of them; of repositories below, which are taken in, all are."""
        return name in self.files or self._is_nested(name)

    def has_folder(self, name: str) -> bool:
        """Whether a folder holds one of them."""
        return name in self.folders or self._is_nested(name)

    def _is_nested(self, name: str) -> bool:
        return any(name.startswith(f"{each}/") for each in self.repositories)


def tracked(folder: Path) -> Tracked | None:
    """What git lists below a folder; None to look at the files themselves.

    That is the case outside of a work tree, without git, and in a folder that git ignores,
    which somebody who names it means.
    """
    real = folder.resolve()
    if not any((above / ".git").exists() for above in (real, *real.parents)):
        return None
    listed = _list(folder)
    if not listed:
        return None
    nested = {name for name in listed if name.endswith("/") or (folder / name).is_dir()}
    names = {name for name in listed if name not in nested}
    folders = {above.as_posix() for name in listed for above in PurePosixPath(name).parents}
    nested = {name.rstrip("/") for name in nested}
    return Tracked(frozenset(names), frozenset(folders), frozenset(nested))


def _list(folder: Path) -> list[str]:
    import subprocess

    # A hook's own GIT_DIR must not lead elsewhere, nor may the tree's settings start a program.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    command = [
        "git",
        "-c",
        "core.fsmonitor=false",
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, check=False
        )
    except OSError:
        return []
    if done.returncode:
        return []
    return [os.fsdecode(name) for name in done.stdout.split(b"\0") if name]


_HEAD = 2048
_GENERATED = re.compile(rb"(?:\bgenerated\b[^\n]{0,120}\b(?:by|from|with)\b|@generated)", re.I)
_KEEP_OFF = re.compile(rb"\bdo\s+not\s+(?:\w+\s+)?(?:edit|modify|change)\b", re.I)


def is_generated(data: bytes) -> bool:
    """Whether a file says at its head that a program wrote it and that edits would be lost."""
    head = data[:_HEAD]
    return bool(_KEEP_OFF.search(head) and _GENERATED.search(head))

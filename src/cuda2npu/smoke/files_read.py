"""The sources and configs of the user's that the processes of a run read, as modules or otherwise.

What a script imports is known for certain when it has run: names of modules that are made up,
changes of ``sys.path``, plugins and processes that it starts are all seen.
"""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress
from importlib.util import source_from_cache
from pathlib import Path
from typing import Any

from cuda2npu.running.source import is_installed

READ = "files-read"
LEFT_BEHIND = "left-behind"
"""The list of the files that another run had written when they were read."""
CONFIGS = (".yaml", ".yml", ".toml", ".json")
_WRITTEN = os.O_WRONLY | os.O_RDWR
_NOT_THE_USERS = (
    os.path.dirname(os.__file__) + os.sep,  # noqa: PTH120
    str(Path(__file__).parents[1]) + os.sep,
)


def watch(folder: Path, other_run: tuple[float, float] = (0.0, 0.0)) -> None:
    """Note each file that this process and those it forks read from now on.

    Of those that are no sources, only what was written while ``other_run`` took place.
    """
    seen: set[str] = set()
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    sources, left = (os.open(folder / name, flags, 0o600) for name in (READ, LEFT_BEHIND))

    def note(log: int, path: str) -> None:
        if path and path not in seen:
            seen.add(path)
            with suppress(OSError, UnicodeError):  # a daemon closes files that it knows not
                os.write(log, os.fsencode(path) + b"\n")

    def opened(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str):
            note(sources, _source(arguments[0]))
            if not arguments[2] & _WRITTEN:
                note(sources, _config(arguments[0]))
            if other_run[1] and not arguments[2] & os.O_TRUNC:
                note(left, _written_between(arguments[0], *other_run))

    sys.addaudithook(opened)


def _written_between(name: str, began: float, ended: float) -> str:
    """The file, when it was written at that time, or nothing."""
    with suppress(OSError, ValueError):
        status = os.stat(name)  # noqa: PTH116
        if stat.S_ISREG(status.st_mode) and began <= status.st_mtime <= ended:
            return os.path.realpath(name)
    return ""


def _source(name: str) -> str:
    """The source file of the user's that is opened, or nothing."""
    if not name.endswith((".py", ".pyc")) or is_installed(name):
        return ""
    path = os.path.abspath(name)  # noqa: PTH100
    if path.startswith(_NOT_THE_USERS):
        return ""
    if name.endswith(".pyc"):
        with suppress(ValueError):
            return source_from_cache(path)
        return ""
    return path


def _config(name: str) -> str:
    """The config that is read, or nothing."""
    if not name.endswith(CONFIGS) or is_installed(name):
        return ""
    return os.path.abspath(name)  # noqa: PTH100


def files_read(folder: Path, name: str = READ) -> list[Path]:
    """What the processes of a run read, each file once."""
    found: dict[Path, None] = {}
    for log in sorted(folder.rglob(name)):
        for line in log.read_bytes().splitlines():
            found[Path(os.fsdecode(line))] = None
    return [path for path in found if path.is_file()]

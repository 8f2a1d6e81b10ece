"""The files of a project by the dotted names that they are imported under."""

from __future__ import annotations

from collections.abc import Iterable
from posixpath import dirname, join, normpath


class Modules:
    """The files of a project by the dotted names that they are imported under."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = frozenset(path.replace("\\", "/") for path in paths)
        self._by_stem: dict[str, list[str]] = {}
        for path in sorted(self._paths):
            self._by_stem.setdefault(_stem(path).rpartition("/")[2], []).append(path)

    def find(self, importer: str, dotted: str) -> tuple[str, str] | None:
        """The file of the longest leading part of a dotted name that is one, and the rest."""
        level = len(dotted) - len(dotted.lstrip("."))
        parts = [part for part in dotted.lstrip(".").split(".") if part]
        for end in range(len(parts), -1 if level else 0, -1):
            path = self._file(importer, level, parts[:end])
            if path is not None:
                return path, ".".join(parts[end:])
        return None

    def _file(self, importer: str, level: int, parts: list[str]) -> str | None:
        if level:
            folder = dirname(importer)
            for _ in range(level - 1):
                folder = dirname(folder)
            stem = normpath(join(folder, *parts))
            known = (f"{stem}.py", f"{stem}/__init__.py", f"{stem}.pyi")
            return next((path for path in known if path in self._paths), None)
        if not parts:
            return None
        tail = "/" + "/".join(parts)
        fits = [p for p in self._by_stem.get(parts[-1], ()) if ("/" + _stem(p)).endswith(tail)]
        return _nearest(fits, importer)


def _stem(path: str) -> str:
    return path.rpartition(".")[0].removesuffix("/__init__")


def _nearest(paths: list[str], importer: str) -> str | None:
    """The file that shares the most folders with the importer, if it is the only one."""
    shared = sorted(((_shared(path, importer), path) for path in paths), reverse=True)
    if len(shared) > 1 and shared[0][0] == shared[1][0]:
        return None
    return shared[0][1] if shared else None


def _shared(one: str, other: str) -> int:
    count = 0
    for mine, theirs in zip(one.split("/"), other.split("/"), strict=False):
        if mine != theirs:
            break
        count += 1
    return count

"""Which paths a run leaves out: patterns as in .gitignore."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from cuda2npu.model import UsageError

DEFAULT_EXCLUDE = tuple(
    ".git/ .venv/ venv/ __pycache__/ node_modules/ build/ dist/ .tox/ .eggs/ *.egg-info/ "
    "site-packages/".split()
)


class _Pattern(NamedTuple):
    regex: re.Pattern[str]
    folders_only: bool
    negated: bool


class Exclude:
    """Patterns as in .gitignore: the last one that matches decides, ``!`` takes back.

    ``base`` is the folder that patterns with a slash are anchored at; None is the folder that
    the user named on the command line, and the working folder for a path named there.
    """

    def __init__(self, patterns: Iterable[str] = (), base: Path | None = None) -> None:
        self._patterns = _compile_all(tuple(patterns))
        self._base = base

    def prefix(self, folder: Path) -> str:
        """What leads a path relative to ``folder`` to make it relative to the base."""
        if self._base is None:
            return ""
        try:
            relative = folder.resolve().relative_to(self._base.resolve()).as_posix()
        except ValueError:
            return ""
        return "" if relative == "." else relative + "/"

    def matches(self, relative: str, *, folder: bool) -> bool:
        return _matches((*_compile_all(DEFAULT_EXCLUDE), *self._patterns), relative, folder)

    def covers_named(self, path: Path) -> bool:
        """Whether the user's own patterns leave out a path that is named by itself.

        Hooks name every changed file. The default patterns do not count: who names a file
        below ``build/`` means it.
        """
        if not self._patterns:
            return False
        parts = self._parts(path)
        folder = path.is_dir()
        return any(
            _matches(self._patterns, "/".join(parts[:end]), folder or end < len(parts))
            for end in range(1, len(parts) + 1)
        )

    def _parts(self, path: Path) -> tuple[str, ...]:
        real = path.parent.resolve() / path.name if path.name not in ("", "..") else path.resolve()
        base = (self._base or Path()).resolve()
        return real.relative_to(base).parts if real.is_relative_to(base) else (real.name,)

    def folders(self, prefix: str) -> Callable[[str], bool]:
        """Says of a folder whether it is left out."""
        return lambda relative: self.matches(prefix + relative, folder=True)


def _matches(patterns: tuple[_Pattern, ...], relative: str, folder: bool) -> bool:
    for pattern in reversed(patterns):
        if (folder or not pattern.folders_only) and pattern.regex.fullmatch(relative):
            return not pattern.negated
    return False


@cache
def _compile_all(patterns: tuple[str, ...]) -> tuple[_Pattern, ...]:
    compiled = map(_compile, patterns)
    return tuple(pattern for pattern in compiled if pattern is not None)


def _compile(pattern: str) -> _Pattern | None:
    text = pattern.strip()
    if not text or text.startswith("#"):
        return None
    negated = text.startswith("!")
    text = text[negated:]
    folders_only = text.endswith("/")
    text = text.rstrip("/").removeprefix("./")
    anchored = "/" in text
    try:
        regex = _translate(text.lstrip("/"))
        return _Pattern(
            re.compile(regex if anchored else f"(?:.*/)?{regex}"), folders_only, negated
        )
    except re.error as error:
        raise UsageError(f"exclude pattern {pattern!r}: {error}") from None


def _translate(glob: str) -> str:
    """A regular expression for a glob in which ``*`` stays inside one path component."""
    parts = []
    for token in re.findall(r"\*\*/|/\*\*$|\*+|\?|\[!?\]?[^\]]*\]|\\.|.", glob, re.DOTALL):
        if token == "**/":
            parts.append("(?:.*/)?")
        elif token == "/**":
            parts.append("/.+")
        elif token[0] == "*":
            parts.append("[^/]*")
        elif token == "?":
            parts.append("[^/]")
        elif token[0] == "[" and len(token) > 1:
            body = token[1:-1].replace("\\", "\\\\").replace("[", "\\[")
            parts.append("[" + ("^" + body[1:] if body.startswith("!") else body) + "]")
        elif token == "[":
            raise re.error("the bracket [ is never closed; \\[ is the character")
        else:
            parts.append(re.escape(token[-1]))
    return "".join(parts)

"""Which paths a run leaves out: patterns as in .gitignore."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from cuda2npu.model import UsageError

DEFAULT_EXCLUDE = tuple(
    ".git/ .venv/ venv/ __pycache__/ .tox/ .eggs/ *.egg-info/ site-packages/".split()
)
"""What nobody takes for a part of the project."""
VENDORED = tuple(
    "third_party/ third-party/ thirdparty/ 3rdparty/ vendor/ vendors/ vendored/ _vendor/ external/ "
    "externals/ node_modules/ build/ dist/ generated/ *_pb2.py *_pb2.pyi *_pb2_grpc.py".split()
)
"""Other people's code and what programs write: an edit there is lost with the next update."""


class _Pattern(NamedTuple):
    text: str
    regex: re.Pattern[str]
    folders_only: bool
    negated: bool


class Exclude:
    """Patterns as in .gitignore: the last one that matches decides, ``!`` takes back.

    ``base`` is the folder that patterns with a slash are anchored at; None is the folder that
    the user named on the command line, and the working folder for a path named there.
    ``force`` has the default patterns hold for named paths, too.
    """

    def __init__(
        self, patterns: Iterable[str] = (), base: Path | None = None, *, force: bool = False
    ) -> None:
        self._patterns = _compile_all(tuple(patterns))
        self._base = base
        self.force = force

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
        found = self._decisive(relative, folder)
        return found is not None and not found.negated

    def vendored(self, relative: str, *, folder: bool) -> str | None:
        """The pattern of ``VENDORED`` that leaves a path out, if it is one of those."""
        found = self._decisive(relative, folder)
        return found.text if found is not None and found.text in VENDORED else None

    def takes_in(self, folder: str) -> bool:
        """Whether the user's own patterns take a folder back in."""
        found = _decisive(self._patterns, folder, True)
        return found is not None and found.negated

    def _decisive(self, relative: str, folder: bool) -> _Pattern | None:
        return _decisive(self._every(), relative, folder)

    def _every(self) -> tuple[_Pattern, ...]:
        return (*_compile_all(DEFAULT_EXCLUDE), *_compile_all(VENDORED), *self._patterns)

    def covers_named(self, path: Path) -> bool:
        """Whether the patterns leave out a path that is named by itself.

        Hooks name every changed file. The default patterns count only by ``force``: who names
        a file below ``build/`` by hand means it.
        """
        patterns = self._every() if self.force else self._patterns
        return bool(patterns) and any(
            _matches(patterns, part, folder) for part, folder in self.steps(path)
        )

    def steps(self, path: Path) -> Iterator[tuple[str, bool]]:
        """A path and the folders above it, from the base, and whether each one is a folder."""
        parts = self._parts(path)
        for end in range(1, len(parts) + 1):
            yield "/".join(parts[:end]), end < len(parts) or path.is_dir()

    def start(self, path: Path) -> Path:
        """The folder that the steps of a path begin in; by ``force`` they do so beside the base."""
        base, here = (self._base or Path()).resolve(), Path.cwd()
        return here if self.force and not _real(path).is_relative_to(base) else base

    def _parts(self, path: Path) -> tuple[str, ...]:
        real, start = _real(path), self.start(path)
        return real.relative_to(start).parts if real.is_relative_to(start) else (real.name,)

    def folders(self, prefix: str) -> Callable[[str], bool]:
        """Says of a folder whether it is left out."""
        return lambda relative: self.matches(prefix + relative, folder=True)


def _real(path: Path) -> Path:
    """The path with its folders resolved; a link keeps its own name."""
    return path.parent.resolve() / path.name if path.name not in ("", "..") else path.resolve()


def _matches(patterns: tuple[_Pattern, ...], relative: str, folder: bool) -> bool:
    found = _decisive(patterns, relative, folder)
    return found is not None and not found.negated


def _decisive(patterns: tuple[_Pattern, ...], relative: str, folder: bool) -> _Pattern | None:
    """The last pattern that fits."""
    for pattern in reversed(patterns):
        if (folder or not pattern.folders_only) and pattern.regex.fullmatch(relative):
            return pattern
    return None


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
            pattern, re.compile(regex if anchored else f"(?:.*/)?{regex}"), folders_only, negated
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

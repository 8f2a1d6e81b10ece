"""TOML: the standard library says what is TOML, a scan of its own where each piece stands."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable
from functools import partial
from importlib import import_module
from typing import Any

from cuda2npu.formats.document import rewrite_document
from cuda2npu.formats.outline import Outline, Path
from cuda2npu.model import SourceError
from cuda2npu.tokens import Token

_TOML: Any = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
_GAP = re.compile(r"(?:\s|#[^\n]*)*")
_BLANK = re.compile(r"[ \t]*")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|' r"'''.*?'{3,5}|" r'"(?:\\.|[^"\\])*"|' r"'[^']*'", re.S
)
_BARE_KEY = re.compile(r"[\w-]+")
_BARE = re.compile(r"[^,\]}#\n]*[^,\]}#\s]")


def tokens(text: str) -> Iterable[Token]:
    """The keys and values of the text. Raises SourceError for a text that is no TOML."""
    try:
        _TOML.loads(text)
    except _TOML.TOMLDecodeError as error:
        raise SourceError(f"no TOML: {error}. Left as it was.") from None
    except RecursionError:
        raise SourceError("nested too deeply. Left as it was.") from None
    return _Scan(text).tokens()


class _Scan:
    """Walks a text that is known to be TOML."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.outline = Outline(text)
        self._tables: Counter[Path] = Counter()
        """How many tables an array of tables has so far."""

    def tokens(self) -> list[Token]:
        self.outline.table(())
        self._skip(_GAP)
        while self.position < len(self.text):
            if self.text[self.position] == "[":
                self._table()
            else:
                self._pair()
            self._skip(_GAP)
        return self.outline.tokens

    def _table(self) -> None:
        double = self.text.startswith("[[", self.position)
        self.position += 1 + double
        path: Path = ()
        for part in self._key():
            path += (part,)
            if self._tables[path]:  # what follows belongs to the last table of an array
                path += (self._tables[path] - 1,)
        if double:
            path = path[:-1] if path and isinstance(path[-1], int) else path
            self._tables[path] += 1
            path += (self._tables[path] - 1,)
        self.position += 1 + double
        self.outline.table(path)

    def _pair(self) -> None:
        start = self.position
        parts = self._key()
        end = start + len(self.text[start : self.position].rstrip())
        self.outline.key(tuple(parts), start, end)
        self.position += 1  # the equals sign
        self._skip(_BLANK)
        self._value()

    def _key(self) -> list[str]:
        """The parts of a dotted key; the position ends behind it and its blanks."""
        parts = []
        while True:
            self._skip(_BLANK)
            part = _BARE_KEY.match(self.text, self.position)
            parts.append(self._take(part) if part else self._string())
            self._skip(_BLANK)
            if self.text[self.position] != ".":
                return parts
            self.position += 1

    def _value(self) -> None:
        start = self.position
        char = self.text[start]
        if char in "\"'":
            value = self._string()
            self.outline.scalar(start, self.position, value)
        elif char in "[{":
            self._collection(char)
        else:
            value = self._take(_BARE.match(self.text, start))
            self.outline.scalar(start, self.position, value)

    def _collection(self, bracket: str) -> None:
        self.position += 1
        self.outline.begin(is_list=bracket == "[")
        self._skip(_GAP)
        while self.text[self.position] not in "]}":
            if bracket == "[":
                self._value()
            else:
                self._pair()
            self._skip(_GAP)
            if self.text[self.position] == ",":
                self.position += 1
                self._skip(_GAP)
        self.position += 1
        self.outline.end()

    def _string(self) -> str:
        raw = self._take(_STRING.match(self.text, self.position))
        if "\\" not in raw and not raw.startswith(('"""', "'''")):
            return raw[1:-1]
        value = _TOML.loads(f"x = {raw}")["x"]
        assert isinstance(value, str)
        return value

    def _take(self, match: re.Match[str] | None) -> str:
        assert match is not None, f"the TOML at {self.position} was not understood"
        self.position = match.end()
        return match[0]

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self.text, self.position)
        self.position = match.end() if match else self.position


rewrite_bytes = partial(rewrite_document, tokenize=tokens)

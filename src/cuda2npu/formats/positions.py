"""Lines and columns of a text's character offsets."""

from __future__ import annotations

import re
from bisect import bisect_right

_LINE_END = re.compile(r"\r\n?|\n")


class Lines:
    """The lines of a text; lines and columns count from 1, columns in characters."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts = [0, *(match.end() for match in _LINE_END.finditer(text))]

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of a character offset."""
        line = bisect_right(self.starts, offset)
        return line, offset - self.starts[line - 1] + 1

    def offset(self, line: int, column: int) -> int:
        """The character offset of a line and column."""
        return self.starts[line - 1] + column - 1

    def line(self, number: int) -> str:
        """A line without its end; empty when the text has no such line."""
        if number > len(self.starts):
            return ""
        rest = self.text[self.starts[number - 1] :]
        return _LINE_END.split(rest, 1)[0]

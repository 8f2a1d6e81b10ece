"""Source files as bytes and as text: encoding, byte order mark, line ends, positions."""

from __future__ import annotations

import codecs
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from cuda2npu.model import Edit, SourceError

_LINE_END = re.compile(rb"\r\n?|\n")


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a file's bytes become text: codec name and whether a UTF-8 byte order mark leads."""

    name: str
    bom: bool

    def encode(self, text: str) -> bytes:
        data = text.encode(self.name)
        return codecs.BOM_UTF8 + data if self.bom else data


def decode(data: bytes) -> tuple[str, Encoding]:
    """Decode a Python source as Python itself would (PEP 263).

    Raises SourceError when the cookie is unknown, the bytes do not decode, or the codec does
    not give the same bytes back.
    """
    bom = data.startswith(codecs.BOM_UTF8)
    body = data[len(codecs.BOM_UTF8) :] if bom else data
    encoding = Encoding(_cookie(body, bom), bom)
    text = _decode(body, encoding.name)
    # What UTF-8 decodes strictly, it gives back; other codecs need not.
    if encoding.name != "utf-8" and encoding.encode(text) != data:
        raise SourceError(
            f"encoding {encoding.name} does not give the same bytes back. Convert the file to "
            "UTF-8. Left as it was."
        )
    return text, encoding


_COOKIE = re.compile(rb"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_BLANK = re.compile(rb"[ \t\f]*(?:#|$)")


def _cookie(body: bytes, bom: bool) -> str:
    """The encoding that the first two lines ask for, as Python reads them.

    ``tokenize.detect_encoding`` knows neither lone carriage returns nor a cookie that stands
    behind characters of its own encoding.
    """
    for number, line in enumerate(_LINE_END.split(body, 2)[:2], 1):
        match = _COOKIE.match(line)
        if match:
            name = match[1].decode()
            normal = name.lower().replace("_", "-")
            if normal == "utf-8" or normal.startswith("utf-8-"):
                return "utf-8"
            try:
                name = codecs.lookup(name).name
            except LookupError:
                raise _bad_cookie(number, f"unknown encoding {name}") from None
            if bom and name != "utf-8":
                raise _bad_cookie(number, f"the byte order mark says UTF-8, the cookie {name}")
            return name
        if not _BLANK.match(line):
            break
    return "utf-8"


def _bad_cookie(line: int, fault: str) -> SourceError:
    return SourceError(f"line {line}: {fault}. Correct the coding cookie. Left as it was.")


def _decode(body: bytes, name: str) -> str:
    start = 0
    try:
        return body.decode(name)
    except UnicodeDecodeError as error:
        start = error.start
        fault = f"byte 0x{body[start]:02x} is not {name}"
    except (UnicodeError, LookupError) as error:
        fault = f"encoding {name} cannot be used: {error}"
    line = len(_LINE_END.findall(body, 0, start)) + 1
    raise SourceError(
        f"line {line}: {fault}. Convert the file to UTF-8, or name its encoding in a coding "
        "cookie on line 1 or 2. Left as it was."
    )


class Source:
    """A text with byte offsets, as ``ast`` counts them: in UTF-8, lines from 1."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.utf8 = text.encode("utf-8", "surrogatepass")

    @cached_property
    def line_starts(self) -> list[int]:
        starts = list(accumulate(map(len, self.utf8.splitlines(keepends=True)), initial=0))
        if len(starts) > 1 and not self.utf8.endswith((b"\n", b"\r")):
            starts.pop()  # the end of a last line that has no line end
        return starts

    def find_all(self, word: bytes) -> Iterator[int]:
        """The byte offsets of a word, in order."""
        offset = self.utf8.find(word)
        while offset >= 0:
            yield offset
            offset = self.utf8.find(word, offset + 1)

    def line_of(self, offset: int) -> int:
        """The line of a byte offset, from 1."""
        return bisect_right(self.line_starts, offset)

    @cached_property
    def newline(self) -> str:
        """The file's first line end; a line feed when it has none."""
        match = _LINE_END.search(self.utf8)
        return match[0].decode() if match else "\n"

    def offset(self, line: int, column: int) -> int:
        return self.line_starts[line - 1] + column

    def slice(self, start: int, end: int) -> str:
        return self.utf8[start:end].decode("utf-8", "surrogatepass")

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of a byte offset, both from 1, the column in characters."""
        line = self.line_of(offset)
        start = self.line_starts[line - 1]
        return line, len(self.slice(start, offset)) + 1

    def edit(self, start: int, end: int, text: str) -> Edit:
        """A new text for the bytes ``start:end``, with its place in lines and columns."""
        return Edit(*self.position(start), *self.position(end), text)

    def with_pieces(self, pieces: list[tuple[int, int, str]]) -> str:
        """The text with new pieces in the place of ``start:end``, given in order of place."""
        result, position = [], 0
        for start, end, new in pieces:
            result += [self.utf8[position:start], new.encode("utf-8", "surrogatepass")]
            position = end
        result.append(self.utf8[position:])
        return b"".join(result).decode("utf-8", "surrogatepass")

    def line_end(self, offset: int) -> int:
        """The offset behind the line end that follows ``offset``, or the end of the text."""
        match = _LINE_END.search(self.utf8, offset)
        return match.end() if match else len(self.utf8)

    def indent(self, offset: int) -> str:
        """The white space that leads the line of ``offset``."""
        line = self.line_of(offset)
        start = self.line_starts[line - 1]
        match = re.compile(rb"[ \t\f]*").match(self.utf8, start)
        assert match is not None
        return match[0].decode()

    def stands_alone(self, start: int, end: int) -> bool:
        """Whether the lines of ``start:end`` hold nothing else but white space and a comment."""
        line = self.line_of(start)
        before = self.slice(self.line_starts[line - 1], start)
        after = self.slice(end, self.line_end(end)).strip()
        return not before.strip() and (not after or after.startswith("#"))

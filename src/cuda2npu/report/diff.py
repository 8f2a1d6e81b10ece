"""A unified diff in bytes, which ``git apply`` and ``patch -p1`` accept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from difflib import diff_bytes, unified_diff
from pathlib import Path

_STYLES = {b"-": b"\x1b[31m", b"+": b"\x1b[32m", b"@": b"\x1b[36m"}
_BOLD = b"\x1b[1m"
_RESET = b"\x1b[0m"


def diff(path: str, before: bytes, after: bytes, color: bool = False) -> bytes:
    """The change of one file, with the lines and line ends as they are in it."""
    name = _patch_path(path)
    lines = diff_bytes(
        unified_diff,
        _lines(before),
        _lines(after),
        _quoted(b"a/" + name),
        _quoted(b"b/" + name),
    )
    return b"".join(_styled(lines) if color else _ended(lines))


def _lines(data: bytes) -> list[bytes]:
    """A line feed ends a line of a patch; a carriage return before it is part of the line."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _patch_path(path: str) -> bytes:
    """The path from the working folder, if it is below it: patches are applied there."""
    place = Path(os.path.normpath(path))
    if place.is_absolute():
        here = Path.cwd()
        place = (
            place.relative_to(here)
            if place.is_relative_to(here)
            else place.relative_to(place.anchor)
        )
    return os.fsencode(place.as_posix())


def _quoted(name: bytes) -> bytes:
    """The name as git writes it: in C quotes if need be, a tab after one with spaces."""
    if any(byte < 0x20 or byte in b'"\\\x7f' for byte in name):
        return b'"' + b"".join(_escaped(byte) for byte in name) + b'"'
    return name + b"\t" if b" " in name else name


def _escaped(byte: int) -> bytes:
    if byte in b'"\\':
        return b"\\" + bytes([byte])
    return b"\\%03o" % byte if byte < 0x20 or byte > 0x7E else bytes([byte])


def _ended(lines: Iterator[bytes]) -> Iterator[bytes]:
    for line in lines:
        yield line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n"


def _styled(lines: Iterator[bytes]) -> Iterator[bytes]:
    for number, line in enumerate(_ended(lines)):
        style = _BOLD if number < 2 else _STYLES.get(line[:1])
        if style is None:
            yield line
            continue
        body, end, rest = line.partition(b"\n")
        bare = body.removesuffix(b"\r")
        yield style + bare + _RESET + body[len(bare) :] + end + rest

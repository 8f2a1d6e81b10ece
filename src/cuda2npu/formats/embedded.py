"""Python inside another text: what rewriting it changes, as small edits of its characters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher

from cuda2npu.formats.cells import Splice
from cuda2npu.formats.positions import Lines
from cuda2npu.model import Result

_PIECE = re.compile(r"\w+|\s|.", re.S)


def splices(text: str, result: Result) -> Iterator[Splice]:
    """The edits of a source as character offsets, cut down to what differs.

    What is left alone keeps its spelling in the text around: its escapes and line ends.
    """
    lines = Lines(text)
    for edit in result.edits:
        start = lines.offset(edit.line, edit.column)
        end = lines.offset(edit.end_line, edit.end_column)
        yield from _differences(start, text[start:end], edit.text)


def _differences(start: int, old: str, new: str) -> Iterator[Splice]:
    if not old:
        yield Splice(start, start, new)
        return
    before, after = _PIECE.findall(old), _PIECE.findall(new)
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag != "equal":
            begin = start + len("".join(before[:i1]))
            end = begin + len("".join(before[i1:i2]))
            yield Splice(begin, end, "".join(after[j1:j2]))

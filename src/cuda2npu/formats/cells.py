"""The code cells of a notebook, and the edits of their sources in the notebook's JSON text."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from cuda2npu.formats.json_text import (
    Value,
    elements,
    escaped,
    lines,
    members,
    offsets,
    parse,
)
from cuda2npu.model import SourceError

NO_NOTEBOOK = "is no notebook: it holds no list of cells. Left as it was."
_PYTHON = re.compile(r"(i?python|pyspark|sagemath|sage)[\d.]*", re.I)


class Splice(NamedTuple):
    """New text in place of ``start:end``, character offsets of some text."""

    start: int
    end: int
    new: str


@dataclass(frozen=True, eq=False)
class Cell:
    """A code cell: its number among all cells, its source, and where that stands."""

    number: int
    text: str
    source: Value
    strings: tuple[Value, ...]
    """The JSON strings that the source is made of, one for each line or one for all."""

    @property
    def starts(self) -> list[int]:
        """Where each string begins in the cell's text, and where the last one ends."""
        return list(accumulate((len(string.value) for string in self.strings), initial=0))

    def place(self, notebook: str, start: int, end: int) -> tuple[int, int]:
        """Where ``start:end`` of the cell stands in the notebook's text."""
        return self._outside(notebook, start, last=False), self._outside(
            notebook, max(end, start), last=end > start
        )

    def _outside(self, notebook: str, offset: int, *, last: bool) -> int:
        """The place of a character, or the end of the one before it."""
        starts = self.starts
        find = bisect_left if last else bisect_right
        index = min(max(find(starts, offset) - 1, 0), len(self.strings) - 1)
        return offsets(notebook, self.strings[index])[offset - starts[index]]


@dataclass(frozen=True)
class Notebook:
    """A notebook's text with its code cells."""

    text: str
    cells: tuple[Cell, ...]
    is_python: bool
    is_python2: bool


def read(text: str) -> Notebook:
    """The code cells of a notebook of format 3 or 4. Raises SourceError when it is none."""
    top = parse(text)
    if not isinstance(top.value, dict):
        raise SourceError(NO_NOTEBOOK)
    kernel = _kernel(top.value.get("metadata"))
    language = kernel["language"]
    found = members(text, top)
    arrays = [found["cells"]] if "cells" in found else list(_worksheets(text, found))
    if not arrays or not all(isinstance(array.value, list) for array in arrays):
        raise SourceError(NO_NOTEBOOK)
    every = [cell for array in arrays for cell in elements(text, array)]
    cells = []
    for number, value in enumerate(every, 1):
        cell = _code_cell(text, number, value)
        if cell is not None:
            cells.append(cell)
            language = language or str(value.value.get("language") or "")
    old = kernel["name"].startswith("python2") or kernel["version"].startswith("2.")
    return Notebook(text, tuple(cells), bool(_PYTHON.fullmatch(language or "python")), old)


def _kernel(metadata: object) -> dict[str, str]:
    """What the metadata say of the kernel; empty texts for what they leave out."""
    data = metadata if isinstance(metadata, dict) else {}
    spec, info = (
        value if isinstance(value, dict) else {}
        for value in (data.get("kernelspec"), data.get("language_info"))
    )
    return {
        "language": str(info.get("name") or spec.get("language") or ""),
        "name": str(spec.get("name") or ""),
        "version": str(info.get("version") or ""),
    }


def _worksheets(text: str, found: dict[str, Value]) -> Iterator[Value]:
    """The lists of cells of a notebook of format 3."""
    sheets = found.get("worksheets")
    if sheets is not None and isinstance(sheets.value, list):
        for sheet in elements(text, sheets):
            if isinstance(sheet.value, dict) and "cells" in sheet.value:
                yield members(text, sheet)["cells"]


def _code_cell(text: str, number: int, value: Value) -> Cell | None:
    if not isinstance(value.value, dict) or value.value.get("cell_type") != "code":
        return None
    found = members(text, value)
    source = found.get("source") or found.get("input")
    if source is None:
        return None
    if isinstance(source.value, str):
        strings: tuple[Value, ...] = (source,)
    elif isinstance(source.value, list) and all(isinstance(line, str) for line in source.value):
        strings = tuple(elements(text, source))
    else:
        return None
    whole = "".join(string.value for string in strings)
    return Cell(number, whole, source, strings) if whole else None


def in_notebook(notebook: Notebook, changes: dict[Cell, list[Splice]]) -> list[Splice]:
    """Edits of cells as edits of the notebook's text, in order of place."""
    text = notebook.text
    ascii_only = text.isascii() and "\\u" in text
    return sorted(
        splice
        for cell, edits in changes.items()
        for splice in _in_json(text, cell, edits, ascii_only=ascii_only)
    )


def spliced(text: str, splices: Iterable[Splice]) -> str:
    """The text with edits that do not overlap."""
    pieces, position = [], 0
    for splice in sorted(splices):
        pieces += [text[position : splice.start], splice.new]
        position = splice.end
    return "".join((*pieces, text[position:]))


def _in_json(text: str, cell: Cell, edits: list[Splice], *, ascii_only: bool) -> Iterator[Splice]:
    """The edits of a cell as edits of the JSON text: whole strings, as few as can be."""
    bodies = {
        index: _body(text, cell.strings[index], own, ascii_only=ascii_only)
        for index, own in enumerate(_by_string(cell, edits))
        if own
    }
    while bodies:
        first = last = min(bodies)
        body = bodies.pop(first)
        # A line whose end went goes on in the next string; what changed too is one group.
        while last + 1 < len(cell.strings) and (
            last + 1 in bodies or (body and not body.endswith(("\\n", "\\u000a")))
        ):
            last += 1
            body += bodies.pop(last) if last in bodies else _raw(text, cell.strings[last])
        yield _group(text, cell, first, last, body)


def _raw(text: str, string: Value) -> str:
    return text[string.start + 1 : string.end - 1]


def _by_string(cell: Cell, edits: list[Splice]) -> list[list[Splice]]:
    """The edits cut up by the strings that they are in; new text goes to the first of them."""
    starts = cell.starts
    own: list[list[Splice]] = [[] for _ in cell.strings]
    for start, end, new in sorted(edits):
        index = max(bisect_left(starts, start) - 1, 0) if start == end else 0
        if start < end:
            index = bisect_right(starts, start) - 1
        while True:
            limit = starts[index + 1]
            own[index].append(Splice(start - starts[index], min(end, limit) - starts[index], new))
            if end <= limit:
                break
            start, new, index = limit, "", index + 1
    return own


def _body(text: str, string: Value, edits: list[Splice], *, ascii_only: bool) -> str:
    """What stands between the quotes of a string once it is edited."""
    places = offsets(text, string)
    splices = [
        Splice(
            places[start] - string.start - 1,
            places[end] - string.start - 1,
            escaped(new, ascii_only=ascii_only),
        )
        for start, end, new in edits
    ]
    return spliced(_raw(text, string), splices)


def _group(text: str, cell: Cell, first: int, last: int, body: str) -> Splice:
    """Strings ``first`` to ``last`` made into those that a new body asks for."""
    strings = cell.strings
    start, end = strings[first].start, strings[last].end
    if isinstance(cell.source.value, str):
        return Splice(start, end, f'"{body}"')
    if body:
        whole = all(string.value.find("\n") in (-1, len(string.value) - 1) for string in strings)
        parts = lines(body) if whole else [body]
        return Splice(start, end, _separator(text, cell).join(f'"{part}"' for part in parts))
    if last + 1 < len(strings):
        return Splice(start, strings[last + 1].start, "")
    return Splice(strings[first - 1].end if first else start, end, "")


def _separator(text: str, cell: Cell) -> str:
    """What stands between two lines of the source."""
    if len(cell.strings) > 1:
        return text[cell.strings[0].end : cell.strings[1].start]
    lead = text[cell.source.start + 1 : cell.strings[0].start]
    return "," + (lead or " " * ('": ' in text))

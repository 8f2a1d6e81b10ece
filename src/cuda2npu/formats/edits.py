"""The edits of a document, each in its place; where one is, no other comes."""

from __future__ import annotations

from bisect import bisect_left

from cuda2npu.formats.positions import Lines
from cuda2npu.model import Edit
from cuda2npu.tokens import Token


class Edits:
    """New texts for tokens that do not overlap, in order of place."""

    def __init__(self) -> None:
        self._places: list[tuple[int, int]] = []
        self._edits: list[tuple[Token, str]] = []

    def __bool__(self) -> bool:
        return bool(self._edits)

    def meets(self, token: Token) -> bool:
        """Whether an edit has a character of the token."""
        index = bisect_left(self._places, (token.start, token.end))
        near = self._places[max(index - 1, 0) : index + 1]
        return any(start < token.end and token.start < end for start, end in near)

    def add(self, token: Token, new: str) -> None:
        place = (token.start, token.end)
        index = bisect_left(self._places, place)
        self._places.insert(index, place)
        self._edits.insert(index, (token, new))

    def as_tuple(self, lines: Lines) -> tuple[Edit, ...]:
        """The edits with their lines and columns."""
        position = lines.position
        return tuple(Edit(*position(t.start), *position(t.end), new) for t, new in self._edits)

    def applied(self, text: str) -> str:
        """The text with every edit in its place."""
        pieces, position = [], 0
        for token, new in self._edits:
            if text[token.start : token.end] != token.text:  # pragma: no cover - a parser's defect
                raise RuntimeError(f"the place of {token.text!r} was not found")
            pieces += [text[position : token.start], new]
            position = token.end
        return "".join((*pieces, text[position:]))

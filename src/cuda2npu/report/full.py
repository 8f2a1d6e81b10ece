"""Each finding with its source line and a line of carets under the place."""

from __future__ import annotations

import unicodedata

from cuda2npu.model import Finding
from cuda2npu.project import Outcome
from cuda2npu.report import printable, style
from cuda2npu.report.concise import headline

_WIDEST = 160
"""Longer lines are cut to a window around the place."""


class FullReporter:
    def __init__(self, color: bool = False) -> None:
        self._color = color

    def add(self, outcome: Outcome) -> str:
        pairs = zip(outcome.findings, outcome.excerpts, strict=True)
        return "".join(self._finding(finding, line) for finding, line in pairs)

    def end(self) -> str:
        return ""

    def _finding(self, finding: Finding, line: str) -> str:
        place = finding.cell or finding
        start = min(place.column - 1, len(line))
        end = place.end_column - 1 if place.end_line == place.line else len(line)
        source, padding, carets = excerpt(line, start, max(end, start + 1))
        if place.end_line != place.line:
            carets += " ..."
        number = f"{place.line:>5}"
        bar = style("|", "34", self._color)
        return (
            f"{headline(finding, self._color)}\n"
            f"{style(number, '34', self._color)} {bar} {source}\n"
            f"      {bar} {padding}{style(carets, '1;31', self._color)}\n\n"
        )


def excerpt(line: str, start: int, end: int) -> tuple[str, str, str]:
    """The line as shown, and the spaces and carets that stand under ``start:end``."""
    before, after = "", ""
    if len(line) > _WIDEST:
        left = max(0, min(start - _WIDEST // 4, len(line) - _WIDEST))
        right = left + _WIDEST
        before, after = "..." if left else "", "..." if right < len(line) else ""
        line, start, end = line[left:right], start - left, min(end, right) - left
    shown = printable(line)
    padding = "".join("\t" if char == "\t" else " " * _width(char) for char in line[:start])
    carets = "^" * max(1, sum(map(_width, line[start:end])))
    return before + shown + after, " " * len(before) + padding, carets


def _width(char: str) -> int:
    """How many columns a terminal gives the character."""
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1

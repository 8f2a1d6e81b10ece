"""A file's change as rows to look at: removed and added lines, with the findings in place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from itertools import groupby
from typing import Literal, NamedTuple

from cuda2npu.model import Finding

_CONTEXT = 3

_Opcodes = list[tuple[Literal["replace", "delete", "insert", "equal"], int, int, int, int]]


class Row(NamedTuple):
    """One line that both files have (``=``) or one of them, or a gap."""

    kind: Literal["=", "-", "+", "gap"]
    number: int
    """From 1, in the file that has the line; how many lines a gap stands for."""
    text: str = ""
    findings: tuple[Finding, ...] = ()


def diff_rows(before: list[str], after: list[str], findings: Iterable[Finding]) -> Iterator[Row]:
    """The changed lines and those with findings, each with some lines around it."""
    at = {line: tuple(group) for line, group in groupby(findings, lambda found: found.line)}
    opcodes: _Opcodes = SequenceMatcher(None, before, after).get_opcodes()
    every = _every(before, after, opcodes, at, _shown(opcodes, at, len(before)))
    for is_gap, group in groupby(every, lambda row: row is None):
        if is_gap:
            yield Row("gap", len(list(group)))
        else:
            yield from (row for row in group if row is not None)


def _every(
    before: list[str],
    after: list[str],
    opcodes: _Opcodes,
    at: dict[int, tuple[Finding, ...]],
    shown: set[int],
) -> Iterator[Row | None]:
    """A row for each line; None for one that is not shown."""
    for tag, i1, i2, j1, j2 in opcodes:
        for index in range(i1, i2):
            kind: Literal["=", "-"] = "=" if tag == "equal" else "-"
            row = Row(kind, index + 1, before[index], at.get(index + 1, ()))
            yield row if kind == "-" or index in shown else None
        if tag != "equal":
            yield from (Row("+", index + 1, after[index]) for index in range(j1, j2))


def _shown(opcodes: _Opcodes, lines: Iterable[int], total: int) -> set[int]:
    """The old lines, from 0, that stand near a change or a finding."""
    spans = [(i1, i2) for tag, i1, i2, _, _ in opcodes if tag != "equal"]
    spans += [(line - 1, line) for line in lines]
    return {
        index
        for start, end in spans
        for index in range(max(start - _CONTEXT, 0), min(end + _CONTEXT, total))
    }

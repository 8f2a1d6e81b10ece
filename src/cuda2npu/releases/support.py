"""Which native PyTorch APIs a chip lacks, from the support pages of torch_npu and a second look.

The data is ``support.tsv``, whose head says where it comes from and under which licence, and
``tools/chip_support.py`` writes it. Nothing is read before the first question.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from cuda2npu.releases import RELEASES
from cuda2npu.releases.chips import FAMILIES

DATA = Path(__file__).with_name("support.tsv")


class Api(NamedTuple):
    """What is known about an API that a page marks as unsupported on some chip."""

    marks: dict[str, str]
    """By release, a mark for each of ``FAMILIES``; see the head of the data."""
    seen: tuple[str, ...]
    """``cpu aten::x``: an operator without a kernel; other entries say what contradicts a mark."""

    def mark(self, release: str, family: str) -> str:
        marks = self.marks[release]
        return marks[list(FAMILIES).index(family)] if len(marks) == len(FAMILIES) else ""

    @property
    def operators(self) -> tuple[tuple[str, str], ...]:
        """The operators without a kernel, each behind ``cpu``, ``raises`` or ``acl_op``."""
        pairs = (entry.split(" ") for entry in self.seen if " aten::" in entry)
        return tuple((kind, operator) for kind, operator in pairs)


@cache
def table() -> dict[str, Api]:
    """Every API of the data by its dotted name."""
    text = DATA.read_text(encoding="utf-8")
    head, *rows = (line.split("\t") for line in text.splitlines() if not line.startswith("#"))
    releases = head[1:-1]
    return {
        api: Api(dict(zip(releases, marks, strict=True)), tuple(seen.split("; ")))
        for api, *marks, seen in rows
    }


@cache
def page_releases() -> tuple[str, ...]:
    """The releases whose support pages are known, oldest first."""
    return tuple(next(iter(table().values())).marks)


def page_release(release: str) -> str | None:
    """The newest of them that is not newer than a known release; None when all are newer."""
    known = [each for each in page_releases() if RELEASES.index(each) <= RELEASES.index(release)]
    return known[-1] if known else None


@cache
def unsupported(release: str, family: str) -> dict[str, Api]:
    """The APIs that a chip lacks by the page of one of ``page_releases``, and by a second look."""
    return {name: api for name, api in table().items() if api.mark(release, family) == "n"}


@cache
def ever_unsupported() -> tuple[str, ...]:
    """The APIs that some chip lacks in some release, sorted."""
    lacking = (name for name, api in table().items() if any("n" in m for m in api.marks.values()))
    return tuple(sorted(lacking))

"""Which versions of torch_npu, CANN and Python go together, as published.

The tables are ``pairs.tsv``, ``ranges.tsv`` and ``wheels.tsv`` beside this file; their first lines
name source and date, and ``tools/compatibility.py`` writes what it can read from the wheels. What
no source states has no row.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple


class Pair(NamedTuple):
    """A torch_npu package and the CANN that was published with it."""

    torch_npu: str
    product: str
    """The version of the product that the package belongs to, such as 7.3.0 or 26.1.0."""
    cann: str
    """Empty where only the product is stated; ``9.1.X`` is any patch of 9.1."""
    source: str


class Range(NamedTuple):
    """The CANN versions that the release notes call compatible with a product version."""

    product: str
    cann: tuple[str, ...]
    source: str


class Wheel(NamedTuple):
    """What the wheels of one torch_npu package are for."""

    torch_npu: str
    torch: str
    x86_64: tuple[str, ...]
    """The Python versions that have a wheel."""
    aarch64: tuple[str, ...]
    requires: tuple[str, ...]
    """The distributions that it needs beside torch."""

    def pythons(self, architecture: str) -> tuple[str, ...]:
        return self.aarch64 if architecture == "aarch64" else self.x86_64


def _rows(name: str) -> list[list[str]]:
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [line.split("\t") for line in lines[1:]]  # the first line names the columns


@cache
def pairs() -> tuple[Pair, ...]:
    return tuple(Pair(*row) for row in _rows("pairs.tsv"))


@cache
def ranges() -> tuple[Range, ...]:
    return tuple(Range(row[0], tuple(row[1].split()), row[2]) for row in _rows("ranges.tsv"))


@cache
def wheels() -> tuple[Wheel, ...]:
    return tuple(
        Wheel(row[0], row[1], *(tuple(cell.split()) for cell in row[2:5]))
        for row in _rows("wheels.tsv")
    )


def numbers(version: str, count: int = 3) -> tuple[int, ...]:
    """The leading numbers of a version: those of ``2.7.1.post4`` are 2, 7, 1."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in found[1].split(".")[:count]) if found else ()


def is_pair(pair: Pair, cann: str) -> bool:
    """Whether it is the CANN of the pair; patches and release candidates count as the same."""
    return bool(pair.cann) and numbers(pair.cann, 2) == numbers(cann, 2)


def is_compatible(pair: Pair, cann: str) -> bool:
    """Whether release notes call this CANN compatible with the pair's product version."""
    return any(
        numbers(known.product, 2) == numbers(pair.product, 2)
        and any(_covers(one, cann) for one in known.cann)
        for known in ranges()
    )


def _covers(stated: str, cann: str) -> bool:
    if stated.endswith(".X"):
        return numbers(stated, 2) == numbers(cann, 2)
    return re.split(r"\.(?:beta|alpha)", cann, flags=re.IGNORECASE)[0] == stated

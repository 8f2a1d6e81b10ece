"""What ``npu-smi info`` prints, read row by row; its columns differ between chips and releases."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

_BUS_ID = re.compile(r"[0-9A-Fa-fxX]{4}:[0-9A-Fa-fxX]{2}:[0-9A-Fa-fxX]{2}\.[0-9A-Fa-fxX]")
_TITLE = re.compile(r"\|\s*NPU\s+Name\b")
_WORD = re.compile(r"\w")
_USED = re.compile(r"(\d+)\s*/\s*(\d+)")


class Chip(NamedTuple):
    """One device; a card of the 910_93 series and of some 310P has two."""

    npu: int
    """The number of the card."""
    chip: int
    name: str
    health: str
    used: int
    """Megabytes; of HBM where there is HBM."""
    total: int
    """0 where it is not told."""

    @property
    def free(self) -> int:
        return self.total - self.used


class Process(NamedTuple):
    """A process that holds memory of a chip."""

    npu: int
    chip: int
    pid: int
    name: str
    """Empty in a container, which does not see the processes of others."""
    memory: int


@dataclass(frozen=True)
class Listing:
    """What the tool printed."""

    version: str
    chips: tuple[Chip, ...] = ()
    processes: tuple[Process, ...] = ()
    unread: tuple[str, ...] = ()
    """Lines of the table of devices that are not in a known form; without a table all lines, or an
    empty one."""


def parse(text: str) -> Listing:
    """The chips and processes of the table, and what could not be read."""
    lines = [line.strip() for line in text.splitlines() if _WORD.search(line)]
    rows = [line for line in lines if line.startswith("|")]
    title = next((index for index, row in enumerate(rows) if _TITLE.match(row)), None)
    start = 0 if title is None else title + 2  # a title has two lines, as each chip has
    end = next((index for index, row in enumerate(rows) if "Process id" in row), len(rows))
    chips, unread = _chips(rows[start:end])
    if title is None:
        unread = [] if chips else lines or [""]
    processes = (one for row in rows[end:] for one in _process(_cells(row)))
    version = re.search(r"\|\s*npu-smi\s+(\S+)", text)
    return Listing(version[1] if version else "", tuple(chips), tuple(processes), tuple(unread))


def _chips(rows: list[str]) -> tuple[list[Chip], list[str]]:
    """What each two rows tell, and the rows that tell of no chip."""
    chips: list[Chip] = []
    unread: list[str] = []
    first = ""
    for row in rows:
        chip = _chip(_cells(first), _cells(row))
        if chip:
            chips.append(chip)
        elif first:
            unread.append(first)
        first = "" if chip else row
    return chips, [*unread, first] if first else unread


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]


def _chip(first: list[str], second: list[str]) -> Chip | None:
    """A chip has two rows: card, name and health; then chip, bus and memory."""
    card, number = re.match(r"(\d+)\s+(\S.*)", first[0]), re.match(r"\d+", second[0])
    if card is None or number is None or not len(first) == len(second) == 3:
        return None
    if not (_BUS_ID.search(second[1]) or second[1] == "NA"):
        return None
    sizes = [(int(used), int(total)) for used, total in _USED.findall(second[2])]
    used, total = next((size for size in reversed(sizes) if size[1]), (0, 0))
    return Chip(int(card[1]), int(number[0]), card[2], first[1], used, total)


def _process(cells: list[str]) -> list[Process]:
    """``NPU chip | pid | name | memory``; other lines say that there is none."""
    if len(cells) != 4 or not re.fullmatch(r"\d+\s+\d+", cells[0]) or not cells[1].isdigit():
        return []
    npu, chip = cells[0].split()
    memory = int(cells[3]) if cells[3].isdigit() else 0
    return [Process(int(npu), int(chip), int(cells[1]), cells[2], memory)]

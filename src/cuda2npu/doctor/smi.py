"""What ``npu-smi info`` prints, read row by row; its columns differ between chips and releases."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

_BUS_ID = re.compile(r"[0-9A-Fa-fxX]{4}:[0-9A-Fa-fxX]{2}:[0-9A-Fa-fxX]{2}\.[0-9A-Fa-fxX]")
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


def parse(text: str) -> Listing:
    """The chips and processes of the table; without a table there are none."""
    version = re.search(r"\|\s*npu-smi\s+(\S+)", text)
    chips: list[Chip] = []
    processes: list[Process] = []
    first: list[str] | None = None
    in_processes = False
    for line in text.splitlines():
        if not line.lstrip().startswith("|"):
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if "Process id" in line:
            in_processes = True
        elif in_processes:
            processes += _process(cells)
        elif first is None:
            first = cells if len(cells) == 3 and re.match(r"\d+\s+\S", cells[0]) else None
        else:
            chips += _chip(first, cells)
            first = None
    return Listing(version[1] if version else "", tuple(chips), tuple(processes))


def _chip(first: list[str], second: list[str]) -> list[Chip]:
    """A chip has two rows: card, name and health; then chip, bus and memory."""
    number = re.match(r"\d+", second[0])
    if len(second) != 3 or number is None or not (_BUS_ID.search(second[1]) or second[1] == "NA"):
        return []
    npu, name = first[0].split(None, 1)
    sizes = [(int(used), int(total)) for used, total in _USED.findall(second[2])]
    used, total = next((size for size in reversed(sizes) if size[1]), (0, 0))
    return [Chip(int(npu), int(number[0]), name, first[1], used, total)]


def _process(cells: list[str]) -> list[Process]:
    """``NPU chip | pid | name | memory``; other lines say that there is none."""
    if len(cells) != 4 or not re.fullmatch(r"\d+\s+\d+", cells[0]) or not cells[1].isdigit():
        return []
    npu, chip = cells[0].split()
    memory = int(cells[3]) if cells[3].isdigit() else 0
    return [Process(int(npu), int(chip), int(cells[1]), cells[2], memory)]

"""What the user reads: a row per check, then what to do, numbered; or the same as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from textwrap import wrap
from typing import Any

from rich.console import Console
from rich.text import Text

from cuda2npu.doctor.check import Check, Status
from cuda2npu.doctor.examine import Diagnosis
from cuda2npu.report import printable

_STYLES = {
    Status.OK: "green",
    Status.WARNING: "yellow",
    Status.WRONG: "bold red",
    Status.UNCHECKED: "dim",
}
_MACHINE = ("system", "driver", "firmware", "npu-smi", "NPU ", "device files")
"""How the names of rows about the machine begin."""
_GAP = 2
"""Spaces between two columns."""
_INDENT = 4
_READABLE = 40
"""The fewest characters in a line beside the names; where there are less, the text goes below."""


def show(diagnosis: Diagnosis, console: Console) -> None:
    """Print the report."""
    if diagnosis.simulated:
        console.print("The NPU of this environment is simulated.\n", markup=False)
    for line in _rows(diagnosis, console):
        console.print(line, soft_wrap=True)
    steps = todo(diagnosis)
    if steps:
        console.print("\nWhat to do:", markup=False, highlight=False)
    for number, (checks, text) in enumerate(steps, 1):
        names = ", ".join(check.name for check in checks)
        console.print(
            f"{number}. {names}: {printable(text)}", markup=False, highlight=False, soft_wrap=True
        )
    console.print(f"\n{diagnosis.verdict}", markup=False, highlight=False, soft_wrap=True)


def _rows(diagnosis: Diagnosis, console: Console) -> Iterator[Text]:
    """The lines of all checks. No word is broken, so that a path can be copied."""
    first = max(len(status.value) for status in Status) + _GAP
    second = max(len(check.name) for check in diagnosis.checks) + _GAP
    room = console.width - first - second
    beside = room >= _READABLE
    for check in diagnosis.checks:
        head = Text(check.status.value.ljust(first))
        head.stylize(_STYLES[check.status], 0, len(check.status.value))
        head.append(check.name.ljust(second) if beside else check.name)
        width = room if beside else max(console.width - _INDENT, 1)
        indent = " " * (first + second if beside else _INDENT)
        lines = wrap(printable(check.found), width, break_long_words=False, break_on_hyphens=False)
        if beside and lines:
            head.append(lines.pop(0))
        yield head
        yield from (Text(indent + line) for line in lines)


def todo(diagnosis: Diagnosis) -> list[tuple[list[Check], str]]:
    """What to do, in its order; rows with the same cure are one step.

    What is wrong comes before warnings, and the machine before the software for it.
    """
    steps: dict[str, list[Check]] = {}
    for status in (Status.WRONG, Status.WARNING):
        found = diagnosis.having(status)
        for check in sorted(found, key=lambda one: not one.name.startswith(_MACHINE)):
            steps.setdefault(check.todo, []).append(check)
    return [(checks, text) for text, checks in steps.items()]


def as_json(diagnosis: Diagnosis) -> str:
    """The report for programs."""
    data: dict[str, Any] = {
        "can_run": diagnosis.can_run,
        "simulated": diagnosis.simulated,
        "verdict": diagnosis.verdict,
        "checks": [
            {"name": c.name, "status": c.status.value, "found": c.found, "todo": c.todo}
            for c in diagnosis.checks
        ],
        "devices": _devices(diagnosis),
    }
    return json.dumps(data, indent=2) + "\n"


def _devices(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    listing = diagnosis.devices.listing if diagnosis.devices else None
    if listing is None:
        return []
    return [
        {
            "npu": chip.npu,
            "chip": chip.chip,
            "name": chip.name,
            "health": chip.health,
            "memory_used_mb": chip.used if chip.total else None,
            "memory_total_mb": chip.total or None,
            "processes": [
                {"pid": one.pid, "name": one.name, "memory_mb": one.memory}
                for one in listing.processes
                if (one.npu, one.chip) == (chip.npu, chip.chip)
            ],
        }
        for chip in listing.chips
    ]

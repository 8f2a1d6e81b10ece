"""The record of a run as the parent reads it, and the result of a comparison."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from cuda2npu.running.process import RECORD
from cuda2npu.smoke.metrics import Metrics, Values
from cuda2npu.smoke.spec import TENSORS, SmokeError

Event = dict[str, Any]
"""A module call, a backward pass or an optimizer step, as the record has it."""


@dataclass(slots=True)
class Run:
    """What one run left behind."""

    folder: Path
    events: list[Event]
    state: list[dict[str, Any]]
    modules: dict[str, dict[str, str]]
    values: dict[str, Values]
    ended: str = "script"
    steps: int = 0
    error: dict[str, Any] | None = None
    environment: dict[str, str] = field(default_factory=dict)
    marked: bool = False
    """Whether CUDA was led to the CPU, so that marks say what was meant for CUDA."""
    rank: int | None = None
    """Its own rank, where it knows one."""
    started: float = 0.0

    @property
    def trained(self) -> bool:
        return any(event["kind"] != "call" for event in self.events)

    @property
    def timed_out(self) -> bool:
        return self.ended == "timeout"

    @property
    def losses(self) -> list[float]:
        return [event["value"] for event in self.events if event["kind"] == "loss"]


def read_run(folder: Path, *, marked: bool = False) -> Run:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        data = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        values = load_file(folder / TENSORS)
    except (OSError, ValueError, SafetensorError) as error:
        raise SmokeError(f"{folder}: the record cannot be read: {error}") from None
    return Run(
        folder,
        data["events"],
        data["state"],
        data["modules"],
        values,
        data["ended"],
        data["steps"],
        data.get("error"),
        data["environment"],
        marked,
        data.get("rank"),
        data.get("started", 0.0),
    )


class Status(str, Enum):
    """What became of one layer."""

    OK = "ok"
    POINTED = "pointed out"
    DIFFERS = "differs"


@dataclass(slots=True)
class Row:
    """One line of the table: a layer, the losses, the gradients or the final state."""

    name: str
    kind: str
    calls: int = 0
    metrics: Metrics = field(default_factory=Metrics)
    status: Status = Status.OK
    reasons: list[str] = field(default_factory=list)
    rank: int | None = None
    """Whose line it is, where it is not that of the only process or of rank 0."""

    @property
    def title(self) -> str:
        return self.name if self.rank is None else f"rank {self.rank}: {self.name}"

    def add(self, metrics: Metrics, failures: list[str], pointed: list[str]) -> None:
        self.calls += 1
        self.metrics = self.metrics.worst(metrics)
        kinds = {_kind(reason) for reason in self.reasons}
        for reason in (*failures, *pointed):
            if len(self.reasons) < 4 and _kind(reason) not in kinds:
                self.reasons.append(reason)
                kinds.add(_kind(reason))
        if failures:
            self.status = Status.DIFFERS
        elif pointed and self.status is Status.OK:
            self.status = Status.POINTED


def _kind(reason: str) -> str:
    """What a reason says, without its figures: each is told once, as it was first seen."""
    return re.sub(r"[\d.]+(e[+-]?\d+)?", "", reason)


@dataclass(frozen=True, slots=True)
class First:
    """Where two runs part."""

    layer: str
    """The layer whose code is to blame; empty for the script itself."""
    seen: str
    """The event that showed it."""
    text: str
    step: int
    reasons: tuple[str, ...]
    rank: int | None = None


@dataclass(slots=True)
class Comparison:
    """All that is known about how two runs differ."""

    rows: list[Row] = field(default_factory=list)
    losses: list[tuple[float | None, float | None]] = field(default_factory=list)
    first: First | None = None
    early: First | None = None
    """The first event that was pointed out, when it comes before ``first``."""
    problems: list[str] = field(default_factory=list)
    """What is wrong with the run as a whole."""
    limits: list[str] = field(default_factory=list)
    """What kept the comparison from taking in all that was asked for."""
    total: Metrics = field(default_factory=Metrics)
    nothing: bool = False
    """Whether the two runs did nothing that can be compared."""

    @property
    def matches(self) -> bool:
        return not self.problems and all(row.status is not Status.DIFFERS for row in self.rows)

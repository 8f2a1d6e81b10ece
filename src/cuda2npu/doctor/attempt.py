"""Uses the NPU in a child process, and tells how far that came."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuda2npu.doctor.machine import Machine, Ran, read

AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"
IMPORT_TORCH = "import torch"
LAST = "an addition on the NPU"
UNAVAILABLE = "torch.npu.is_available()"


@dataclass(frozen=True)
class Attempt:
    """What the child came to."""

    values: Mapping[str, Any]
    """What each step gave that got to its end."""
    failed: str
    """The step that did not; empty if all did."""
    errors: tuple[str, ...]
    """``type: message`` of the exception and of those that led to it, outermost first."""
    ran: Ran
    autoload_breaks_torch: bool = False
    """``import torch`` fails by itself, and succeeds where it does not load torch_npu."""


def attempt(machine: Machine, timeout: float) -> Attempt:
    """Import, ask and compute. When ``import torch`` fails, try it without torch_npu, too."""
    first = _run(machine, timeout, {})
    if first.failed != IMPORT_TORCH or first.ran.timed_out:
        return first
    second = _run(machine, timeout, {AUTOLOAD: "0"})
    if IMPORT_TORCH not in second.values:
        return first
    # What fails now is torch_npu itself, without torch's words around it.
    cause = second if second.failed else first
    return Attempt(cause.values, cause.failed, cause.errors, cause.ran, True)


def _run(machine: Machine, timeout: float, extra: Mapping[str, str]) -> Attempt:
    script = Path(__file__).with_name("attempt_child.py").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder, "steps.jsonl")
        environment = {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", **extra}
        # As a user's command would: with -c, the current folder comes first on the path.
        ran = machine.run([machine.python, "-c", script, str(record)], timeout, environment)
        lines = [json.loads(line) for line in (read(record) or "").splitlines()]
    return _told(lines, ran)


def _told(lines: list[dict[str, Any]], ran: Ran) -> Attempt:
    values: dict[str, Any] = {}
    step = "the start of Python"
    errors: tuple[str, ...] = ()
    for line in lines:
        if "step" in line:
            step = line["step"]
        elif "value" in line:
            values[step] = line["value"]
        else:
            errors = tuple(f"{one['type']}: {one['message']}" for one in line["error"])
    done = values.get(step) not in (None, False)
    return Attempt(values, "" if done and step == LAST else step, errors, ran)

"""What the tests of the smoke stage share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cuda2npu.smoke.outcome import Run
from cuda2npu.smoke.stage import Report

PROGRAMS = Path(__file__).parent.parent.parent / "fixtures" / "smoke"
TIMEOUT = 240.0

Smoke = Callable[..., Report]
Values = dict[str, Any]


def leaf(key: str, values: Any, device: str = "cpu", dtype: str = "float32") -> dict[str, Any]:
    return {
        "path": "", "shape": list(values.shape), "dtype": dtype, "device": device, "key": key,
        "nan": 0, "inf": 0, "norm": 0.0, "mean": 0.0,
    }  # fmt: skip


def call(name: str, inputs: list[Any], outputs: list[Any], number: int = 1, **more: Any) -> Values:
    return {"kind": "call", "name": name, "call": number, "in": inputs, "out": outputs, **more}


def run_of(events: list[Values], values: Values, **more: Any) -> Run:
    return Run(Path(), events, [], {}, values, **more)

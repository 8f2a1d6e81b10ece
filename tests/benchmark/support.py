"""What the tests of the benchmark share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cuda2npu.benchmark.result import Result
from cuda2npu.benchmark.spec import STEP, Spec
from cuda2npu.running.process import RECORD

EVIL = '<script>document.title="taken"</script><img src=x onerror=alert(1)>&"\'[bold]'


def result(**changes: object) -> Result:
    """Twenty steps of a script; ``changes`` replace its fields."""
    fields: dict[str, object] = {
        "name": "train.py",
        "sha256": "a" * 64,
        "arguments": ["--epochs", "1"],
        "device": "cuda",
        "warmup": 10,
        "iterations": 20,
        "batch": 32,
        "inputs": "",
        "unit": STEP,
        "first_run_ms": 800.0,
        "latencies_ms": [10.0, 10.5] * 10,
        "wall_s": 0.25,
        "memory": {"allocated": 3 * 2**20, "reserved": 2**22},
        "shapes": [{"calls": ["32x64:float32"], "iterations": 20}],
        "varied": False,
        "dtypes": ["float32"],
        "environment": {"python": "3.11.7", "torch": "2.13.0", "device": "A100"},
        "cuda2npu": "0.1.0",
        "made": "2026-01-02T03:04:05Z",
    }
    return Result(**{**fields, **changes})  # type: ignore[arg-type]


def bench(
    *arguments: str, cwd: Path, before: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run the command as it is typed; ``before`` is what it is run by, such as ``simulate``."""
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "160", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "cuda2npu", *before, "bench", *arguments],
        cwd=cwd, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


FIXTURES = Path(__file__).resolve().parent.parent.parent / "fixtures" / "bench"
SIMULATED = ("simulate", "--", sys.executable, "-m", "cuda2npu")


FORKS = """
import os, sys, torch
import torch._dynamo.eval_frame  # an optimizer does, which takes a second
from cuda2npu.benchmark.child import main
for path in sys.argv[1:]:
    if not os.fork():
        try:
            main(path)
        finally:
            os._exit(0)  # to take all of torch apart takes a second
    os.wait()
"""
"""Loads torch once, and measures in a process for each spec."""


def measured(specs: Mapping[str, Spec]) -> dict[str, dict[str, Any]]:
    """The records that the children leave, by the names of the specs."""
    for spec in specs.values():
        Path(spec.folder).mkdir()
        spec.write(Path(spec.folder) / "spec.json")
    paths = [str(Path(spec.folder) / "spec.json") for spec in specs.values()]
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", FORKS, *paths],
        env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    records = {name: Path(spec.folder) / RECORD for name, spec in specs.items()}
    assert all(path.exists() for path in records.values()), done.stderr
    return {name: json.loads(path.read_text()) for name, path in records.items()}

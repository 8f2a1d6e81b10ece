"""The speed figures of the simulated NPU, for ``make bench``."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

Row = tuple[str, str, str]
PROGRAM = str(Path(__file__).with_name("bench_program.py"))
SIMULATE = [sys.executable, "-m", "cuda2npu", "simulate", "--"]
ROUNDS = 3
# Torch alone loads no backend; the simulator asks for its own. One thread, so that what else the
# machine does changes both sides alike.
PLAIN = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"}
LOAD = "import torch, torch_npu; torch.ones(1).npu().sum().item()"


class BenchError(Exception):
    """A command of the measurement failed."""


def timed(command: list[str], **variables: str) -> tuple[float, str]:
    start = time.perf_counter()
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **variables}
    )
    if done.returncode:
        raise BenchError(f"{' '.join(command)} failed:\n{done.stderr[-1000:]}")
    return time.perf_counter() - start, done.stdout


def start_rows() -> Iterator[Row]:
    with TemporaryDirectory() as cache:
        building = [sys.executable, "-c", "from cuda2npu.simulator import build; build.libraries()"]
        first, _ = timed(building, XDG_CACHE_HOME=cache)
        again, _ = timed(building, XDG_CACHE_HOME=cache)
    yield "build of the simulated runtime, once", "", f"{first - again:.1f} s"
    commands = [[sys.executable, "-c", "import torch"], [*SIMULATE, sys.executable, "-c", LOAD]]
    for command in commands:
        timed(command, **PLAIN)  # reads the libraries into memory
    times = [[timed(command, **PLAIN)[0] for command in commands] for _ in range(ROUNDS)]
    bare, simulated = (statistics.median(column) for column in zip(*times, strict=True))
    more = f"{simulated - bare:.1f} s  ({bare:.1f} s, {simulated:.1f} s)"
    yield "simulated NPU in use - import torch", "≤ 2 s", more


def step_rows() -> Iterator[Row]:
    commands = [[sys.executable, PROGRAM, "cpu"], [*SIMULATE, sys.executable, PROGRAM, "npu"]]
    rounds = [
        [json.loads(timed(command, **PLAIN)[1]) for command in commands] for _ in range(ROUNDS)
    ]
    for name in rounds[0][0]:
        cpu, npu = (statistics.median(one[side][name] for one in rounds) for side in (0, 1))
        text = f"{cpu / npu:.2f}  ({1 / npu:.0f}, {1 / cpu:.0f} steps/s)"
        yield f"small {name}: steps/s simulated / CPU", "≥ 0.5", text


def rows() -> Iterator[Row]:
    if find_spec("torch") is None or find_spec("torch_npu") is None:
        yield "simulated NPU", "", "not measured: pip install '.[smoke]'"
        return
    yield from start_rows()
    yield from step_rows()

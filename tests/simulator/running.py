"""Runs a file of cases in a process with the simulated NPU, once for all its tests."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

CASES = Path(__file__).with_name("cases")


def names(file: str) -> list[str]:
    tree = ast.parse((CASES / file).read_text("utf-8"))
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [name for name in functions if name.startswith("case_")]


def simulate(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    start = [sys.executable, "-m", "cuda2npu", "simulate", "--devices", "2", "--", sys.executable]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(
        [*start, *command], capture_output=True, text=True, check=False, timeout=300, env=environ
    )


@cache
def outcomes(file: str, processes: int = 1) -> dict[str, str]:
    launcher = [] if processes == 1 else ["-m", "torch.distributed.run", "--standalone"]
    if processes > 1:
        launcher += ["--nproc_per_node", str(processes)]
    done = simulate(*launcher, str(CASES / file))
    for line in done.stdout.splitlines():
        if line.startswith("OUTCOMES "):
            found: dict[str, str] = json.loads(line.removeprefix("OUTCOMES "))
            return found
    raise AssertionError(f"{file} ended with {done.returncode}:\n{done.stderr[-3000:]}")

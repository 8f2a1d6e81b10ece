"""Runs a file of cases in a process with the simulated NPU, once for all its tests."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

CASES = Path(__file__).with_name("cases")


def names(file: str) -> list[str]:
    tree = ast.parse((CASES / file).read_text("utf-8"))
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [name for name in functions if name.startswith("case_")]


def simulate(
    *command: str, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    start = [sys.executable, "-m", "cuda2npu", "simulate", "--devices", "2", "--", sys.executable]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(
        [*start, *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=environ,
        cwd=cwd,
    )


@cache
def outcomes(file: str, processes: int = 1, folder: Path | None = None) -> dict[str, str]:
    """What went wrong in each case, of every rank; ``folder`` is the working folder."""
    launcher = [] if processes == 1 else ["-m", "torch.distributed.run", "--standalone"]
    if processes > 1:
        launcher += ["--nproc_per_node", str(processes)]
    with TemporaryDirectory() as kept:
        done = simulate(*launcher, str(CASES / file), cwd=folder, OUTCOMES=kept)
        ranks = [json.loads(one.read_text("utf-8")) for one in sorted(Path(kept).iterdir())]
    if done.returncode or len(ranks) != processes:
        raise AssertionError(f"{file} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return {name: "".join(rank[name] for rank in ranks) for name in ranks[0]}

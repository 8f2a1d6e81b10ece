"""Starts the children of a run, set up so that they are led and recorded."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from cuda2npu.running.process import PROGRESS, SPEC, Ended, Start, Tell, run_all
from cuda2npu.simulator import RECORDED
from cuda2npu.smoke import began
from cuda2npu.smoke.child import BOOTSTRAP
from cuda2npu.smoke.spec import Spec

START = "start"
"""The folder from which each Python process of a run is set up."""


def run_child(
    spec: Spec, environment: Mapping[str, str], timeout: float, tell: Tell = lambda _: None
) -> Ended:
    """Run the script of ``spec``; raises KeyboardInterrupt after the whole group is gone."""
    return run_children([(spec, environment)], timeout, tell)[0]


def run_children(
    runs: Sequence[tuple[Spec, Mapping[str, str]]], timeout: float, tell: Tell = lambda _: None
) -> list[Ended]:
    """Run all at once. They end together: some seconds after one fails, the others are ended."""
    return run_all([_start(*run) for run in runs], timeout, tell, _progress)


def _start(spec: Spec, extra: Mapping[str, str]) -> Start:
    folder = Path(spec.folder)
    spec.write(folder / SPEC)
    command = [sys.executable, "-c", BOOTSTRAP, str(folder / SPEC)]
    return Start(command, environment(extra, folder, spec.device != "npu"), folder)


def environment(extra: Mapping[str, str], folder: Path, hidden: bool) -> dict[str, str]:
    """That of a child: its record is kept in ``folder``."""
    found = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
        RECORDED: str(folder / SPEC),
        **extra,
    }
    start = folder / START
    start.mkdir(exist_ok=True)
    (start / f"{began.NAME}.py").write_text(began.TEXT, encoding="utf-8")
    if hidden:
        _hide_torch_npu(start)
    search = [str(start), found.get("PYTHONPATH", "")]
    found["PYTHONPATH"] = os.pathsep.join(part for part in search if part)
    return found


def _hide_torch_npu(start: Path) -> None:
    """On the search path, hides the entry point by which torch loads torch_npu."""
    metadata = start / "torch_npu-0.dist-info" / "METADATA"
    metadata.parent.mkdir(exist_ok=True)
    metadata.write_text("Metadata-Version: 2.1\nName: torch_npu\nVersion: 0\n", encoding="utf-8")


def _progress(folder: Path) -> str:
    try:
        done = json.loads((folder / PROGRESS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "starting"
    steps = f"step {done['steps']}, " if done["steps"] else ""
    return f"{steps}{done['calls']} events"

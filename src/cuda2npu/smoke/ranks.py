"""The processes of one run: starts its ranks, reads their records, and compares rank by rank."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from cuda2npu.running.process import RECORD, Ended, Tell
from cuda2npu.smoke.outcome import Comparison, Row, Run, Status, read_run
from cuda2npu.smoke.process import run_child, run_children
from cuda2npu.smoke.spec import Spec

LOCALHOST = "127.0.0.1"


def run_ranks(
    spec: Spec, nproc: int, environment: Mapping[str, str], timeout: float, tell: Tell
) -> list[Ended]:
    """Run a script in as many processes as torchrun would; 0 is without it."""
    if not nproc:
        return [run_child(spec, environment, timeout, tell)]
    port = _free_port()
    runs = []
    for rank in range(nproc):
        folder = rank_folder(Path(spec.folder), rank)
        folder.mkdir()
        own = replace(spec, folder=str(folder))
        runs.append((own, {**environment, **_launched(rank, nproc, port)}))
    return run_children(runs, timeout, tell)


def rank_folder(folder: Path, rank: int) -> Path:
    return folder / f"rank{rank}"


def _launched(rank: int, nproc: int, port: int) -> dict[str, str]:
    """What torchrun sets on one node."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "ROLE_RANK": str(rank),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(nproc),
        "LOCAL_WORLD_SIZE": str(nproc),
        "ROLE_WORLD_SIZE": str(nproc),
        "GROUP_WORLD_SIZE": "1",
        "ROLE_NAME": "default",
        "MASTER_ADDR": LOCALHOST,
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOCALHOST, 0))
        return int(probe.getsockname()[1])


def read_runs(folder: Path, nproc: int, *, marked: bool = False) -> list[Run | None]:
    """The run of each rank, or of the one process; None where it left no record.

    A process that failed is among them, even if it computed nothing.
    """
    if not nproc:
        return [*_numbered(_of_process(folder, marked))] or [None]
    found: list[Run | None] = []
    for rank in range(nproc):
        runs = _of_process(rank_folder(folder, rank), marked)
        found.append(replace(runs[0], rank=rank) if runs else None)
    return found


def _of_process(folder: Path, marked: bool) -> list[Run]:
    """The runs of a process and of those it started, as far as they did what the script is for."""
    own = [read_run(folder, marked=marked)] if (folder / RECORD).exists() else []
    places = sorted(path.parent for path in folder.glob(f"*/{RECORD}"))
    runs = own + [read_run(place, marked=marked) for place in places]
    wanted: Callable[[Run], bool]
    for wanted in (_trained, _computed):
        chosen = [run for run in runs if wanted(run) or (run not in own and run.error)]
        if any(map(wanted, runs)):
            failed = [run for run in own if run not in chosen and run.error]
            return chosen + ([] if _stopped(chosen) else failed)
    failed = [run for run in runs if run.error and run not in own]
    return failed or own


def _trained(run: Run) -> bool:
    return run.trained


def _computed(run: Run) -> bool:
    return bool(run.events)


def _stopped(runs: list[Run]) -> bool:
    """After the steps that were asked for a script may miss what the rest would have done."""
    return any(run.ended == "steps" for run in runs) and not any(run.error for run in runs)


def _numbered(runs: list[Run]) -> list[Run]:
    """In the order of their ranks; by their start where they know none."""
    if len(runs) < 2:
        return [replace(run, rank=None) for run in runs]
    known = {run.rank for run in runs}
    if None in known or len(known) < len(runs):
        ordered = sorted(runs, key=lambda run: run.started)
        return [replace(run, rank=number) for number, run in enumerate(ordered)]
    return sorted(runs, key=lambda run: run.rank or 0)


def across(compared: Mapping[int, Comparison]) -> Comparison:
    """One comparison for all ranks: that of the first, and what is wrong in the others."""
    first, *others = sorted(compared)
    whole = replace(compared[first], rows=list(compared[first].rows))
    whole.problems, whole.limits = [*whole.problems], [*whole.limits]
    if whole.first is not None:
        whole.first = replace(whole.first, rank=first)
    whole.nothing = all(one.nothing for one in compared.values())
    for rank in others:
        one = compared[rank]
        whole.rows += [_row(row, rank) for row in one.rows if row.status is Status.DIFFERS]
        whole.problems += [f"rank {rank}: {problem}" for problem in one.problems]
        whole.limits += [text for text in one.limits if text not in whole.limits]
        whole.total = whole.total.worst(one.total)
        if one.first is not None and (whole.first is None or one.first.step < whole.first.step):
            whole.first = replace(one.first, rank=rank)
    return whole


def _row(row: Row, rank: int) -> Row:
    return replace(row, rank=rank)

"""What a run over real packages costs: ``python tools/measure.py`` prints a table in Markdown.

Each package is copied and rewritten there with one and with two worker processes, as a user
would. Memory is the proportional set size of the command and its workers together, sampled in a
run of its own: taking samples keeps a processor busy that a worker could use.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from corpus import PACKAGES, CorpusError, fetch, python_files

_INTERVAL = 0.05
_RUNS = 1


class Cost(NamedTuple):
    """What one run took: seconds of wall time, and the peak of its memory in bytes."""

    seconds: float
    peak: int


class Row(NamedTuple):
    """One line of the table."""

    name: str
    files: int
    findings: int
    edits: int
    one: Cost
    """With ``--jobs 1``, the median of the runs."""
    two: Cost


def measured(name: str, folders: list[Path]) -> Row:
    found = _findings(folders)
    one, two = (_median([_rewritten(folders, jobs) for _ in range(_RUNS)]) for jobs in ("1", "2"))
    edits = sum(finding["fix"] in ("safe", "numerics") for finding in found)
    return Row(name, len(python_files(folders)), len(found) - edits, edits, one, two)


def _findings(folders: list[Path]) -> list[dict[str, object]]:
    command = [*_command("check", "2"), "--format", "json", *map(str, folders)]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode not in (0, 1):
        raise CorpusError(done.stderr.decode())
    found: list[dict[str, object]] = json.loads(done.stdout)["findings"]
    return found


def _rewritten(folders: list[Path], jobs: str) -> Cost:
    command = _command("rewrite", jobs)
    return Cost(_run(command, folders, sample=False).seconds, _run(command, folders).peak)


def _run(command: list[str], folders: list[Path], sample: bool = True) -> Cost:
    with tempfile.TemporaryDirectory() as scratch:
        copies = [shutil.copytree(each, Path(scratch) / each.name) for each in folders]
        return _cost([*command, *map(str, copies)], sample)


def _command(name: str, jobs: str) -> list[str]:
    return [sys.executable, "-m", "cuda2npu", name, "--jobs", jobs]


def _cost(command: list[str], sample: bool) -> Cost:
    start = time.perf_counter()
    with tempfile.TemporaryFile() as told:  # a pipe that nobody reads would fill up
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=told)
        peak = 0
        while sample and process.poll() is None:
            peak = max(peak, sum(map(_memory, _family(process.pid))))
            time.sleep(_INTERVAL)
        process.wait()
        seconds = time.perf_counter() - start
        if process.returncode:
            told.seek(0)
            raise CorpusError(told.read().decode())
    return Cost(seconds, peak)


def _family(pid: int) -> Iterator[int]:
    """A process and everything that it started."""
    yield pid
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = tasks.read_text().split()
        except OSError:  # it ended meanwhile
            continue
        for child in children:
            yield from _family(int(child))


def _memory(pid: int) -> int:
    """Bytes of a process; pages that several share count to each in part."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def _median(costs: list[Cost]) -> Cost:
    return Cost(statistics.median(cost.seconds for cost in costs), max(cost.peak for cost in costs))


def table(rows: list[Row]) -> Iterator[str]:
    yield "| package | files | findings | edits | s, 1 job | s, 2 jobs | MB, 1 job | MB, 2 jobs |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|"
    for row in rows:
        yield (
            f"| {row.name} | {row.files} | {row.findings} | {row.edits} | {row.one.seconds:.1f} "
            f"| {row.two.seconds:.1f} | {row.one.peak / 1e6:.0f} | {row.two.peak / 1e6:.0f} |"
        )


def main() -> None:
    try:
        rows = [
            measured(f"{package.name} {package.version}", fetch((package.name,)))
            for package in PACKAGES
        ]
        rows.append(measured("all together", fetch()))
    except CorpusError as error:
        sys.exit(f"error: {error}")
    largest, every = max(rows[:-1], key=lambda row: row.files), rows[-1]
    print(*table(rows), sep="\n")
    print(f"\nwall time, 2 jobs / 1 job, all: {every.two.seconds / every.one.seconds:.2f}")
    for jobs, all_of_them, one in (("1", every.one, largest.one), ("2", every.two, largest.two)):
        ratio = all_of_them.peak / one.peak
        print(f"peak memory, all / {largest.name}, {jobs} jobs: {ratio:.2f}")


if __name__ == "__main__":
    main()

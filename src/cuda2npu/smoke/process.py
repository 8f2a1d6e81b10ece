"""Runs each child in a process group of its own, and leaves nothing of any behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from cuda2npu.simulator import RECORDED
from cuda2npu.smoke import began
from cuda2npu.smoke.child import BOOTSTRAP
from cuda2npu.smoke.spec import PROGRESS, RECORD, Spec

GRACE = 15.0
"""Seconds a child has to write its record once its time is up, or to end once it is written."""
_POLL = 0.1
SPEC = "spec.json"
OUTPUT = "output.txt"
START = "start"
"""The folder from which each Python process of a run is set up."""

Tell = Callable[[str], None]


class Ended(NamedTuple):
    """How a child ended."""

    code: int
    timed_out: bool
    seconds: float
    output: str
    """The end of what it printed."""


def run_child(
    spec: Spec, environment: Mapping[str, str], timeout: float, tell: Tell = lambda _: None
) -> Ended:
    """Run the script of ``spec``; raises KeyboardInterrupt after the whole group is gone."""
    return run_children([(spec, environment)], timeout, tell)[0]


def run_children(
    runs: Sequence[tuple[Spec, Mapping[str, str]]], timeout: float, tell: Tell = lambda _: None
) -> list[Ended]:
    """Run all at once. They end together: some seconds after one fails, the others are ended."""
    began = time.monotonic()
    with ExitStack() as stack:
        stack.enter_context(signals_stop())
        children = [stack.enter_context(_started(*run)) for run in runs]
        timed_out = _wait(children, began + timeout, tell)
    seconds = time.monotonic() - began
    return [
        Ended(child.process.returncode, timed_out, seconds, _tail(child.folder / OUTPUT))
        for child in children
    ]


class _Child(NamedTuple):
    process: subprocess.Popen[bytes]
    folder: Path


@contextmanager
def _started(spec: Spec, extra: Mapping[str, str]) -> Iterator[_Child]:
    folder = Path(spec.folder)
    spec.write(folder / SPEC)
    command = [sys.executable, "-c", BOOTSTRAP, str(folder / SPEC)]
    variables = environment(extra, folder, spec.device != "npu")
    with _own_group(command, variables, folder / OUTPUT) as process:
        yield _Child(process, folder)


@contextmanager
def _own_group(
    command: Sequence[str], environment: Mapping[str, str], output: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """The process; at the end, however it comes, none of its group is left."""
    with output.open("wb") as stream:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            _signal_group(process, signal.SIGKILL)
            process.wait()


def run_command(
    command: Sequence[str], environment: Mapping[str, str], output: Path, timeout: float
) -> Ended:
    """Run any command, its output in a file; what is left of it when the time is up is killed."""
    began = time.monotonic()
    timed_out = False
    with signals_stop(), _own_group(command, environment, output) as process:
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            timed_out = True
    return Ended(process.returncode, timed_out, time.monotonic() - began, _tail(output))


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


def _wait(children: Sequence[_Child], end: float, tell: Tell) -> bool:
    """Wait for the end of the children or of their time; whether the time was up."""
    timed_out = False
    limits: dict[Path, float] = {}  # when a child is killed
    while running := [child for child in children if child.process.poll() is None]:
        now = time.monotonic()
        failed = any(child.process.returncode for child in children)
        late = [child for child in running if now >= end and not _written(child)]
        if late and not timed_out:
            timed_out = True
            for child in late:
                _signal_group(child.process, signal.SIGTERM)
        for child in running:
            if failed or timed_out or _written(child):
                limits.setdefault(child.folder, now + GRACE)
            if now >= limits.get(child.folder, now + 1):
                _signal_group(child.process, signal.SIGKILL)
        tell(_progress(children[0].folder))
        with suppress(subprocess.TimeoutExpired):
            running[0].process.wait(_POLL)
    if timed_out:
        _wait_for_groups(children)
    return timed_out


def _written(child: _Child) -> bool:
    return (child.folder / RECORD).exists()


def _wait_for_groups(children: Sequence[_Child]) -> None:
    """Processes below a child were told to end too, and write what they recorded."""
    end = time.monotonic() + GRACE / 3
    while time.monotonic() < end and any(_signal_group(child.process, 0) for child in children):
        time.sleep(_POLL)


def _signal_group(process: subprocess.Popen[bytes], number: int) -> bool:
    """Whether there was a process left in the group."""
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _progress(folder: Path) -> str:
    try:
        done = json.loads((folder / PROGRESS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "starting"
    steps = f"step {done['steps']}, " if done["steps"] else ""
    return f"{steps}{done['calls']} events"


@contextmanager
def signals_stop() -> Iterator[None]:
    """Signals that end this process unwind it, so that the children are ended first.

    What the caller has ignored, as nohup does, stays ignored.
    """

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    heard = [n for n in numbers if signal.getsignal(n) is not signal.SIG_IGN]
    previous = {}
    with suppress(ValueError):  # not the main thread
        previous = {n: signal.signal(n, stop) for n in heard}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _tail(log: Path, size: int = 20_000) -> str:
    data = log.read_bytes()
    return data[-size:].decode("utf-8", "replace")

"""Runs each child in a process group of its own, and leaves nothing of any behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

GRACE = 15.0
"""Seconds a child has to write its record once its time is up, or to end once it is written."""
_POLL = 0.1
RECORD = "record.json"
"""What a child leaves in its folder when it has done what it was asked for."""
PROGRESS = "progress"
SPEC = "spec.json"
OUTPUT = "output.txt"

Tell = Callable[[str], None]
Read = Callable[[Path], str]


class Ended(NamedTuple):
    """How a child ended."""

    code: int
    timed_out: bool
    seconds: float
    output: str
    """The end of what it printed."""


class Start(NamedTuple):
    """A process to be started."""

    command: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    """Where it leaves its record, and what it prints is kept."""


def run_all(starts: Sequence[Start], timeout: float, tell: Tell, progress: Read) -> list[Ended]:
    """Run all at once. They end together: some seconds after one fails, the others are ended.

    ``tell`` is given what ``progress`` reads in the folder of the first. Raises KeyboardInterrupt
    after all the groups are gone.
    """
    began = time.monotonic()
    with ExitStack() as stack:
        stack.enter_context(signals_stop())
        children = [stack.enter_context(_started(start)) for start in starts]
        timed_out = _wait(children, began + timeout, lambda: tell(progress(starts[0].folder)))
    seconds = time.monotonic() - began
    return [
        Ended(child.process.returncode, timed_out, seconds, _tail(child.folder / OUTPUT))
        for child in children
    ]


class _Child(NamedTuple):
    process: subprocess.Popen[bytes]
    folder: Path


@contextmanager
def _started(start: Start) -> Iterator[_Child]:
    with _own_group(start.command, start.environment, start.folder / OUTPUT) as process:
        yield _Child(process, start.folder)


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


def _wait(children: Sequence[_Child], end: float, tell: Callable[[], None]) -> bool:
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
        tell()
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

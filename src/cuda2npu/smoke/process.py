"""Runs a child in a process group of its own, and leaves nothing of it behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from cuda2npu.smoke.child import BOOTSTRAP
from cuda2npu.smoke.spec import PROGRESS, RECORD, Spec

GRACE = 15.0
"""Seconds a child has to write its record once its time is up, or to end once it is written."""
_POLL = 0.1

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
    folder = Path(spec.folder)
    spec.write(folder / "spec.json")
    log = folder / "output.txt"
    began = time.monotonic()
    with log.open("wb") as stream:
        child = subprocess.Popen(
            [sys.executable, "-c", BOOTSTRAP, str(folder / "spec.json")],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=_environment(environment),
            start_new_session=True,
        )
        with _all_gone(child):
            timed_out = _wait(child, folder, began + timeout, tell)
    seconds = time.monotonic() - began
    return Ended(child.returncode, timed_out, seconds, _tail(log))


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
        **extra,
    }


def _wait(child: subprocess.Popen[bytes], folder: Path, end: float, tell: Tell) -> bool:
    """Wait for the end of the child or of its time; whether the time was up."""
    timed_out = False
    written: float | None = None
    while child.poll() is None:
        now = time.monotonic()
        if written is None and (folder / RECORD).exists():
            written = now
        if not timed_out and written is None and now >= end:
            timed_out = True
            end = now + GRACE
            child.terminate()
        elif (timed_out and now >= end) or (written is not None and now - written > GRACE):
            break
        tell(_progress(folder))
        with suppress(subprocess.TimeoutExpired):
            child.wait(_POLL)
    return timed_out


def _progress(folder: Path) -> str:
    try:
        done = json.loads((folder / PROGRESS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "starting"
    steps = f"step {done['steps']}, " if done["steps"] else ""
    return f"{steps}{done['calls']} events"


@contextmanager
def _all_gone(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """At the end, however it comes, no process of the group is left."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    previous = {}
    with suppress(ValueError):  # not the main thread
        previous = {n: signal.signal(n, stop) for n in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        for number, handler in previous.items():
            signal.signal(number, handler)


def _tail(log: Path, size: int = 20_000) -> str:
    data = log.read_bytes()
    return data[-size:].decode("utf-8", "replace")

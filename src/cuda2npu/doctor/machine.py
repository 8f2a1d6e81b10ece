"""All that is asked of the system: files, variables, and programs run in a group of their own."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from cuda2npu.simulator import SWITCH


class Ran(NamedTuple):
    """How a program ended."""

    code: int
    """Negative for a signal."""
    timed_out: bool
    output: str
    """What it printed, both streams together."""


def _may_use(path: Path) -> bool:
    return os.access(path, os.R_OK | os.W_OK)


@dataclass(frozen=True)
class Machine:
    """The machine that is looked at; a test gives it another root folder, or other variables."""

    root: Path = Path("/")
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    python: str = sys.executable
    """The interpreter whose packages are looked at."""
    system: str = field(default_factory=platform.system)
    architecture: str = field(default_factory=platform.machine)
    may_use: Callable[[Path], bool] = _may_use
    """Whether this user may open a device file."""

    @property
    def simulated(self) -> bool:
        """Whether the NPU of this environment is the simulated one."""
        return bool(self.environ.get(SWITCH))

    def at(self, path: str) -> Path:
        """An absolute path of the machine."""
        return self.root / path.lstrip("/")

    def shown(self, path: Path) -> str:
        """The path as it is on the machine."""
        return f"/{path.relative_to(self.root)}" if path.is_relative_to(self.root) else str(path)

    def program(self, name: str, *places: str) -> str | None:
        """A program of PATH, or one that stands at one of the places."""
        found = shutil.which(name, path=self.environ.get("PATH", os.defpath))
        there = (str(self.at(place)) for place in places if os.access(self.at(place), os.X_OK))
        return found or next(there, None)

    def run(
        self, command: Sequence[str], timeout: float, extra: Mapping[str, str] | None = None
    ) -> Ran:
        """Run a program to its end, or for so many seconds; nothing of its group is left.

        Raises:
            OSError: if it cannot be started.
        """
        with tempfile.TemporaryFile() as stream:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env={**self.environ, **(extra or {})},
                start_new_session=True,
            )
            try:
                timed_out = _wait(process, timeout)
            finally:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            stream.seek(0)
            output = stream.read().decode("utf-8", "replace")
        return Ran(process.returncode, timed_out, output)


def _wait(process: subprocess.Popen[bytes], timeout: float) -> bool:
    """Whether the time was up first."""
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        return True
    return False


def read(path: Path) -> str | None:
    """The text of a file; None if there is none that can be read. A pipe has no end."""
    try:
        if not path.is_file():
            return None
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None

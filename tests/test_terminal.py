"""Runs on a terminal, a real pseudo-terminal: the bar, what comes between, and Ctrl-C."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
import time
from pathlib import Path

import pytest

FILES = 40
STATEMENTS = 120
LINES = "\n".join(f"x{number} = torch.ones({number}).cuda()" for number in range(STATEMENTS))
SOURCE = f"import torch\n{LINES}\n"
WIPE = "\r\x1b[K"


class Terminal:
    """A command that runs on a terminal of 100 columns, and what it has written there."""

    def __init__(self, folder: Path, *arguments: str, stdout: Path | None = None) -> None:
        self.text = ""
        self.status: int | None = None
        self.pid, self._screen = pty.fork()
        if self.pid == 0:
            try:
                os.chdir(folder)
                if stdout is not None:
                    os.dup2(os.open(stdout, os.O_WRONLY | os.O_CREAT), 1)
                environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
                environment.pop("NO_COLOR", None)
                command = [sys.executable, "-m", "cuda2npu", *arguments]
                os.execve(sys.executable, command, environment)
            finally:
                os._exit(127)
        fcntl.ioctl(self._screen, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))

    def read_until(self, pattern: str) -> None:
        """Read until the pattern is there, or the end if it never is."""
        deadline = time.monotonic() + 120
        while not (pattern and re.search(pattern, self.text)):
            assert time.monotonic() < deadline, self.text
            if not select.select([self._screen], [], [], 1)[0]:
                continue
            try:
                data = os.read(self._screen, 1 << 16)
            except OSError:  # the other end is closed
                data = b""
            if not data:
                break
            self.text += data.decode("utf-8", "replace")

    def type(self, keys: bytes) -> None:
        os.write(self._screen, keys)

    def end(self) -> int:
        self.read_until("")
        os.close(self._screen)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def screen(self) -> list[str]:
        """The lines that stay: what a carriage return and an erased line leave of each."""
        plain = re.sub(r"\x1b\[[0-9;]*m", "", self.text)
        lines = plain.replace("\r\n", "\n").split("\n")
        return [line.split(WIPE)[-1].rpartition("\r")[2] for line in lines]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    for number in range(FILES):
        (tmp_path / "work" / f"file{number:02}.py").write_text(SOURCE)
    return tmp_path / "work"


BAR = r"━.* *\d+/40.*left .*file\d\d\.py"


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize("command", ["check", "rewrite"])
def test_a_bar_that_leaves_nothing(folder: Path, tmp_path: Path, command: str, jobs: str) -> None:
    terminal = Terminal(folder, command, ".", "--jobs", jobs, stdout=tmp_path / "stdout")
    status = terminal.end()
    assert status == (1 if command == "check" else 0)
    assert re.search(BAR, terminal.text)
    counts = [int(count) for count in re.findall(r"(\d+)/40", terminal.text)]
    assert counts == sorted(counts)
    assert len(set(counts)) > 2
    screen = "\n".join(terminal.screen())
    assert "━" not in screen
    assert "40 files looked at" in screen
    assert "\x1b" not in (tmp_path / "stdout").read_text()


def test_findings_between(folder: Path) -> None:
    terminal = Terminal(folder, "check", ".", "--jobs", "1", "--format", "concise")
    assert terminal.end() == 1
    assert "━" in terminal.text
    screen = terminal.screen()
    assert sum(line.startswith("file") for line in screen) == STATEMENTS * FILES
    assert not any("━" in line for line in screen)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_ctrl_c(folder: Path, jobs: str) -> None:
    terminal = Terminal(folder, "rewrite", ".", "--jobs", jobs)
    terminal.read_until(r"[1-9]\d?/40")
    terminal.type(b"\x03")
    assert terminal.end() == 130
    after = [path.read_text() != SOURCE for path in sorted(folder.glob("*.py"))]
    done = sum(after)
    assert 0 < done < FILES
    assert after == [True] * done + [False] * (FILES - done), "files are done in order"
    screen = terminal.screen()
    assert "Finishing the files in work; Ctrl-C again stops at once." in screen
    told = f"Stopped: {done} file(s)? done, up to file{done - 1:02}.py; {FILES - done} not begun"
    assert any(re.match(told.replace("(s)?", "s?"), line) for line in screen)
    assert not any("━" in line for line in screen)


def test_a_dumb_terminal_gets_no_bar(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(folder, "check", "file00.py", "--format", "concise")
    assert terminal.end() == 1
    assert "━" not in terminal.text  # a short run

"""``cuda2npu simulate`` becomes the command, and its children get the simulated NPU too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from needs import needs

from cuda2npu.simulator import command
from cuda2npu.simulator.environment import Simulation

pytestmark = needs("torch_npu")
SIMULATE = [sys.executable, "-m", "cuda2npu", "simulate"]
BANNER = "names, placement, dtypes and control flow are checked; kernel accuracy and speed are not"


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*SIMULATE, *arguments], capture_output=True, text=True, check=False)


def test_the_exit_code_is_the_commands() -> None:
    done = simulate("--", "python", "-c", "raise SystemExit(7)")
    assert done.returncode == 7
    assert done.stdout == ""
    assert done.stderr == f"cuda2npu: simulated NPU (1 x Ascend910B1): {BANNER}\n"


def test_options_after_the_command_are_the_commands() -> None:
    probe = "import os, sys; print(sys.argv[1:], os.environ['CUDA2NPU_SIMULATE_DEVICES'])"
    done = simulate("--devices", "2", "python", "-c", probe, "--devices", "9", "--", "-h")
    assert done.stdout == "['--devices', '9', '--', '-h'] 2\n"


def test_python_is_the_one_beside_torch_npu() -> None:
    probe = "import sys; print(sys.prefix)"
    environ = {**os.environ, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [*SIMULATE, "--", "python", "-c", probe], env=environ, capture_output=True, text=True
    )
    assert Path(done.stdout.strip()) == Path(sys.prefix)


def test_no_such_command() -> None:
    done = simulate("--", "no-such-command")
    assert done.returncode == 127
    assert "no-such-command: command not found" in done.stderr


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--chip", "H100", "torch_npu knows no chip 'H100'"),
        ("--memory", "lots", "'lots' is no size of memory"),
        ("--devices", "0", "0 devices: must be 1 to 64"),
    ],
)
def test_what_cannot_be_simulated(option: str, value: str, words: str) -> None:
    done = simulate(option, value, "--", "python")
    assert done.returncode == 2
    assert f"error: {words}" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_the_command(number: signal.Signals, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    probe = (
        "import pathlib, signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *_: sys.exit(40))\n"
        f"pathlib.Path({str(ready)!r}).touch()\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([*SIMULATE, "--", "python", "-c", probe]) as process:
        end = time.monotonic() + 60
        while not ready.exists() and time.monotonic() < end:
            time.sleep(0.05)
        process.send_signal(number)
        assert process.wait(60) == 40


class _BecameError(Exception):
    pass


def _catch(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    seen: dict[str, str] = {}

    def execve(_: str, __: list[str], environ: dict[str, str]) -> None:
        seen.update(environ)
        raise _BecameError

    monkeypatch.setattr(os, "execve", execve)
    monkeypatch.setattr(command, "real_npus", lambda: ["/dev/davinci0"])
    return seen


def test_a_real_npu_is_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = _catch(monkeypatch)
    with pytest.raises(_BecameError):
        command.simulate(["true"], 1, "Ascend910B1", None, force=False)
    assert "CUDA2NPU_SIMULATE" not in seen
    assert "real NPU found (/dev/davinci0)" in capsys.readouterr().err


def test_a_real_npu_is_passed_over_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _catch(monkeypatch)
    with pytest.raises(_BecameError):
        command.simulate(["true"], 1, "Ascend910B1", None, force=True)
    assert seen["CUDA2NPU_SIMULATE"] == "1"


def test_the_banner_says_simulated() -> None:
    assert command.banner(Simulation(2)).startswith("simulated NPU (2 x Ascend910B1): ")

"""The commands as they are typed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from smoke.support import Smoke


def cuda2npu(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "160"}
    return subprocess.run(
        [sys.executable, "-m", "cuda2npu", *arguments],
        cwd=cwd, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("missing.py",), "no such file"),
        (("cnn.py", "--device", "cpu"), "is not npu"),
        (("cnn.py", "--reference", "missing"), "no such folder"),
        (("cnn.py", "--rewritten", "missing"), "no such file or folder"),
    ],
)
def test_what_cannot_run_is_2(
    folder: Path, torch_npu: str, arguments: tuple[str, ...], message: str
) -> None:
    done = cuda2npu("smoke", *arguments, cwd=folder)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_capture_then_smoke(folder: Path, torch_npu: str) -> None:
    kept = cuda2npu("capture", "cnn.py", "-o", "kept", "--steps", "2", "--", "--epochs", "2",
                    cwd=folder)  # fmt: skip
    assert kept.returncode == 0, kept.stderr
    other = cuda2npu("smoke", "cnn.py", "--reference", "kept", "--steps", "2", cwd=folder)
    assert other.returncode == 2
    assert "captured with arguments" in other.stderr
    page = folder / "smoke.html"
    done = cuda2npu("smoke", "cnn.py", "--reference", "kept", "--steps", "2", "--json",
                    "--report", str(page), "--", "--epochs", "2", cwd=folder)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    data = json.loads(done.stdout)
    assert data["verdict"] == "match"
    assert data["reference"].startswith("captured on CPU")
    assert data["environment"]["npu"]["torch_npu"].startswith("2.")
    if data["simulated"]:
        assert "simulated" in done.stderr
        assert "simulated" in page.read_text()


def test_a_reference_that_fails_is_told_as_such(run: Smoke, folder: Path) -> None:
    (folder / "fails.py").write_text("import torch\nraise ValueError('no data here')\n")
    report = run("fails.py")
    assert report.code == 2
    assert report.failures[0].which == "reference"
    assert report.failures[0].summary == "ValueError: no data here"
    assert "smoke/child.py" not in report.failures[0].traceback


SHORT = "import torch\ntorch.nn.Linear(2, 2).cuda()(torch.ones(1, 2).cuda())\n"
NOTICE = b"simulated NPU: names, placement"


def test_a_terminal_is_told_once_that_it_is_simulated(folder: Path, torch_npu: str) -> None:
    """At the start; a report that is read elsewhere says it too."""
    (folder / "short.py").write_text(SHORT)
    command = [sys.executable, "-m", "cuda2npu", "smoke", "short.py"]
    terminal, other = os.openpty()
    with subprocess.Popen(command, cwd=folder, stdout=other, stderr=other) as started:
        os.close(other)
        shown = b"".join(iter(lambda: _read(terminal), b""))
    assert started.returncode == 0, shown
    assert shown.count(NOTICE) == 1
    assert shown.index(NOTICE) < shown.index(b"layer")
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False, timeout=300)
    assert (done.stdout.count(NOTICE), done.stderr.count(NOTICE)) == (1, 1)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # nobody writes any more
        return b""


def test_a_capture_is_not_replaced_unasked(folder: Path, torch_npu: str) -> None:
    (folder / "short.py").write_text(SHORT)
    command = ("capture", "short.py", "-o", "kept")
    assert cuda2npu(*command, cwd=folder).returncode == 0
    made = (folder / "kept" / "manifest.json").stat().st_ino
    refused = cuda2npu(*command, cwd=folder)
    assert refused.returncode == 2
    assert "--force replaces it" in refused.stderr
    assert (folder / "kept" / "manifest.json").stat().st_ino == made
    assert cuda2npu(*command, "--force", cwd=folder).returncode == 0
    assert (folder / "kept" / "manifest.json").stat().st_ino != made

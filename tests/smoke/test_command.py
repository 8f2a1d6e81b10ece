"""The commands as they are typed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cuda2npu.smoke.data import verdict, verdict_in_words
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
        (("kept",), "is a folder; name the script in it"),
        (("null.py",), "null.py: is no Python source: it holds null bytes"),
        (("cnn.py", "--report", "missing/a.html"), "there is no folder missing"),
        (("cnn.py", "--report", "a.txt"), "has to end in .html"),
        (("cnn.py", "--nproc", "0"), "--nproc"),
        (("cnn.py", "--devices", "0"), "--devices"),
        (("cnn.py", "--cosine", "2"), "--cosine"),
        (("cnn.py", "--max-abs", "-1"), "--max-abs"),
        (("cnn.py", "--mean-abs", "nan"), "--mean-abs"),
        (("cnn.py", "--timeout", "inf"), "--timeout"),
    ],
)
def test_what_cannot_run_is_2(
    folder: Path, torch_npu: str, arguments: tuple[str, ...], message: str
) -> None:
    (folder / "kept").mkdir()
    (folder / "null.py").write_bytes(b"import torch\0\n")
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
    assert report.failures[0].cause is not None
    assert report.failures[0].cause.name == "reference on the CPU"
    words = verdict_in_words(report)
    assert words.startswith("could not run the original on the CPU")
    assert words.endswith("failed, too,")
    assert "running/program.py" not in report.failures[0].traceback


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


def test_a_reader_that_goes_away_and_a_full_disk(folder: Path, torch_npu: str) -> None:
    (folder / "short.py").write_text(SHORT)
    command = [sys.executable, "-m", "cuda2npu", "smoke", "short.py"]
    reading, writing = os.pipe()
    os.close(reading)
    gone = subprocess.run(command, cwd=folder, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (gone.returncode, b"Traceback" in gone.stderr) == (141, False)
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, cwd=folder, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2
    assert b"error: the output cannot be written: No space left" in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_narrow_terminal_shows_the_figures(
    folder: Path, torch_npu: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "short.py").write_text(SHORT)
    command = [sys.executable, "-m", "cuda2npu", "smoke", "short.py"]
    environment = {**os.environ, "COLUMNS": "30"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert "1.000000  0.00e+00  0.00e+00  0.00e+00" in done.stdout


def test_a_script_without_cuda_is_nothing_to_compare(run: Smoke, folder: Path) -> None:
    (folder / "plain.py").write_text(SHORT.replace(".cuda()", ""))
    report = run("plain.py")
    assert (report.code, verdict(report)) == (2, "nothing to compare")
    assert report.comparison is not None
    assert "nor did any module of the original run on CUDA" in report.comparison.problems[1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import torch\n", "called no module and no backward"),
        ("1 / 0\n", "nothing is kept in kept"),
    ],
)
def test_a_capture_of_nothing(folder: Path, torch_npu: str, text: str, message: str) -> None:
    (folder / "script.py").write_text(text)
    done = cuda2npu("capture", "script.py", "-o", "kept", cwd=folder)
    assert done.returncode == 2
    assert message in done.stderr
    assert "NPU" not in done.stderr
    assert not (folder / "kept").exists()


HIDDEN = """
import sys
class Hiding:
    def __init__(self, finder): self.finder = finder
    def find_spec(self, name, *rest):
        return None if name == {name!r} else self.finder.find_spec(name, *rest)
sys.meta_path[:] = [Hiding(finder) for finder in sys.meta_path]
from cuda2npu.__main__ import main
main()
"""


@pytest.mark.parametrize(
    ("name", "command", "message"),
    [
        ("numpy", ("smoke", "cnn.py"), "do: pip install 'cuda2npu[smoke]'"),
        ("torch_npu", ("smoke", "cnn.py"), "do: pip install 'cuda2npu[smoke]'"),
        ("numpy", ("capture", "cnn.py", "-o", "kept"), "do: pip install 'cuda2npu[capture]'"),
        ("torch", ("capture", "cnn.py", "-o", "kept"), "the release that the script runs with"),
    ],
)
def test_without_the_packages_of_the_extra(
    folder: Path, name: str, command: tuple[str, ...], message: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN.format(name=name), *command],
        cwd=folder, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {name} is not installed; ")
    assert message in done.stderr


INTERRUPTED = """
import os, signal, sys
class Interrupting:
    def find_spec(self, name, *rest):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from cuda2npu.__main__ import main
main()
"""


@pytest.mark.parametrize("name", ["typer", "cuda2npu.smoke.command", "cuda2npu.smoke.table"])
def test_ctrl_c_while_it_is_loaded(folder: Path, torch_npu: str, name: str) -> None:
    (folder / "short.py").write_text(SHORT)
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED.format(name=name), "smoke", "short.py"],
        cwd=folder, capture_output=True, text=True, timeout=300,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert done.returncode == 130
    assert "Traceback" not in done.stderr


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

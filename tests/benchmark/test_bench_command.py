"""The command as it is typed, on the CPU and on the simulated NPU."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from needs import needs
from processes import gone

from benchmark.support import FIXTURES, SIMULATED, bench

pytestmark = needs("torch")
SHORT = ("--iterations", "20", "--warmup", "2")
A_TIME = re.compile(r"\d ?(ms|µs|s)\b|/s\b|_ms\b|_s\b")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs, a result of the script in ``a.json``, and one twice as slow in ``b.json``."""
    folder = tmp_path_factory.mktemp("bench")
    shutil.copytree(FIXTURES, folder, dirs_exist_ok=True)
    done = bench("train.py", *SHORT, "--batch", "32", "--output", "a.json", "--report", "a.html",
                 cwd=folder)  # fmt: skip
    assert done.returncode == 0, done.stderr
    (folder / "a.txt").write_text(done.stdout)
    data = json.loads((folder / "a.json").read_text())
    slow = {"latencies_ms": [2 * v for v in data["latencies_ms"]], "wall_s": 2 * data["wall_s"]}
    (folder / "b.json").write_text(json.dumps({**data, **slow}))
    return folder


def test_a_script(folder: Path) -> None:
    data: dict[str, Any] = json.loads((folder / "a.json").read_text())
    assert (data["format"], data["version"], data["unit"]) == (
        "cuda2npu-bench", 1, "optimizer step",
    )  # fmt: skip
    assert len(data["latencies_ms"]) == 20
    assert all(value > 0 for value in data["latencies_ms"])
    assert data["wall_s"] >= sum(data["latencies_ms"]) / 1e3 * 0.999
    assert data["first_run_ms"] > 0
    assert data["samples_per_s"] == pytest.approx(32 * 20 / data["wall_s"])
    figures = data["latency_ms"]
    order = [figures[name] for name in ("least", "p50", "p90", "p99", "most")]
    assert order == sorted(order)
    assert data["memory"]["resident"] > 50 * 2**20
    assert data["shapes"] == [{"calls": ["32x64:float32"], "iterations": 20}]
    assert data["sha256"] == sha256((folder / "train.py").read_bytes()).hexdigest()
    assert {"python", "torch", "device", "threads"} <= data["environment"].keys()
    assert data["simulated"] is False


def test_what_is_printed(folder: Path) -> None:
    text = (folder / "a.txt").read_text()
    assert text.startswith("train.py on cpu (")
    for words in ("first run ", "p50 ", "p90 ", "p99 ", "optimizer steps/s, ", "samples/s", "MiB"):
        assert words in text
    assert "train.py on cpu" in (folder / "a.html").read_text()


def test_two_results(folder: Path) -> None:
    done = bench("--compare", "a.json", "b.json", "--report", "ab.html", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    ratios = {ratio["what"]: (ratio["b_to_a"], ratio["a_to_b"]) for ratio in data["ratios"]}
    assert ratios["latency p50"] == pytest.approx((2, 0.5))
    assert ratios["throughput"] == pytest.approx((0.5, 2))
    assert ratios["peak resident memory"] == (1, 1)
    assert "train.py: cpu and cpu" in (folder / "ab.html").read_text()


def test_two_results_in_words(folder: Path) -> None:
    done = bench("--compare", "a.json", "b.json", cwd=folder)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    (latency,) = [line for line in lines if line.startswith("latency p50")]
    times = r"(2\.00|about 2\.0) times as"  # the second where they are unsteady
    assert re.search(rf"2\.000  0\.500  B takes {times} long as A$", latency)
    assert any(re.search(rf"A does {times} much as B$", line) for line in lines)


def test_results_that_cannot_be_compared(folder: Path) -> None:
    other = json.loads((folder / "b.json").read_text())
    other["shapes"][0]["calls"] = ["64x64:float32"]
    (folder / "other.json").write_text(json.dumps(other))
    done = bench("--compare", "a.json", "other.json", "--report", "no.html", cwd=folder)
    assert done.returncode == 2
    assert "error: the two results cannot be compared: different input shapes" in done.stderr
    assert "B/A" not in done.stdout
    assert not (folder / "no.html").exists()


def test_a_factory(folder: Path) -> None:
    done = bench("functions:build", *SHORT, "--inputs", "4x16", "--inputs", "4x16", "--json",
                 cwd=folder)  # fmt: skip
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert (data["name"], data["unit"]) == ("functions:build", "function call")
    assert len(data["latencies_ms"]) == 20
    assert data["shapes"] == [{"calls": ["4x16:float32, 4x16:float32"], "iterations": 20}]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "name a script or a function"),
        (("",), "name a script or a function"),
        (("missing.py",), "missing.py: no such file"),
        (("train.py", "--device", "tpu"), "is none of npu, cuda, cpu"),
        (("train.py", "--inputs", "3"), "--inputs is for functions"),
        (("functions.py:step", "--", "x"), "a function is called without arguments"),
        (("train.py", "--output", "train.py"), "--output train.py: the name has to end in .json"),
        (("train.py", "--output", "none/a.json"), "there is no folder none"),
        (("train.py", "--dry-run", "--output", "a.json"), "--dry-run tells no times"),
        (("train.py", "--compare", "a.json", "b.json"), "--compare takes two saved results"),
        (("--compare", "a.json", "missing.json"), "missing.json: no such file"),
    ],
)
def test_what_cannot_be_measured(folder: Path, arguments: tuple[str, ...], words: str) -> None:
    done = bench(*arguments, cwd=folder)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("device", ["npu", "cuda"])
def test_nothing_else_is_measured_in_its_place(folder: Path, device: str) -> None:
    if list(Path("/dev").glob("davinci[0-9]*" if device == "npu" else "nvidia[0-9]*")):
        pytest.skip(f"there is a real {device} device")
    done = bench("train.py", "--device", device, cwd=folder)
    assert done.returncode == 2
    assert "in its place" in done.stderr or "is not installed" in done.stderr


def test_a_failure_is_shown_with_its_line(folder: Path) -> None:
    done = bench("functions.py:fails", "--output", "fails.json", cwd=folder)
    assert done.returncode == 2
    path = (folder / "functions.py").resolve()
    line = path.read_text().splitlines().index('    raise ValueError("no data <here>")') + 1
    assert f'File "{path}", line {line}, in fails' in done.stderr
    assert done.stderr.startswith("reading <here>\nTraceback")
    assert done.stderr.count("Traceback") == 1
    assert f"error: {path}:{line}: ValueError: no data <here>" in done.stderr
    assert "cuda2npu/" not in done.stderr
    assert not (folder / "fails.json").exists()


@pytest.mark.slow
def test_what_a_script_prints_when_it_leaves(folder: Path) -> None:
    done = bench("train.py", "--", "--unknown", cwd=folder)
    assert done.returncode == 2
    assert "unrecognized arguments: --unknown" in done.stderr
    assert "error: train.py: SystemExit: 2" in done.stderr


def test_interrupted(tmp_path: Path) -> None:
    script, pids = tmp_path / "script.py", tmp_path / "pids"
    script.write_text(
        "import os, pathlib, subprocess, sys, time\n"
        "helper = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"pathlib.Path({str(pids)!r}).write_text(f'{{os.getpid()}} {{helper.pid}}.')\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, "-m", "cuda2npu", "bench", str(script)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + 60
        while not (pids.exists() and pids.read_text().endswith(".")) and time.monotonic() < end:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "nothing is left running" in errors
    assert all(gone(int(pid)) for pid in pids.read_text().rstrip(".").split())


CLOCK = """
import json, torch, torch_npu
from cuda2npu.benchmark.clock import clock_of
from cuda2npu.benchmark.meter import Meter
clock = clock_of("npu")
meter = Meter(clock, 1, 3, chained=True)
meter.begin()
while not meter.full:
    torch.randn(64, 64, device="npu") @ torch.randn(64, 64, device="npu")
    meter.end()
print(json.dumps({**meter.times(), **clock.memory(), **clock.describe()}))
"""
"""All that is called on an NPU, ``elapsed_time`` too."""


@needs("torch_npu")
def test_the_clock_of_an_npu() -> None:
    command = [sys.executable, "-m", "cuda2npu", "simulate", "--", sys.executable, "-c", CLOCK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert len(data["latencies_ms"]) == 3
    assert all(value > 0 for value in (*data["latencies_ms"], data["first_run_ms"], data["wall_s"]))
    assert data["reserved"] >= data["allocated"] >= 64 * 64 * 4
    assert data["device"].startswith("Ascend")
    assert data["cann"]


@needs("torch_npu")
def test_no_speed_of_a_simulated_npu(folder: Path) -> None:
    done = bench("train.py", *SHORT, "--output", "npu.json", "--report", "npu.html", "--",
                 "--device", "npu", cwd=folder, before=SIMULATED)  # fmt: skip
    assert done.returncode == 2
    assert "train.py: ran 23 optimizer steps, but the NPU is simulated" in done.stderr
    assert done.stdout == ""
    assert not A_TIME.search(done.stderr.partition("error:")[2])
    assert not (folder / "npu.json").exists()
    assert not (folder / "npu.html").exists()


@needs("torch_npu")
def test_a_dry_run_on_a_simulated_npu(folder: Path) -> None:
    done = bench("train.py", *SHORT, "--dry-run", "--json", "--", "--device", "npu", cwd=folder,
                 before=SIMULATED)  # fmt: skip
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)["dry_run"]
    assert (data["device"], data["simulated"], data["count"]) == ("npu", True, 23)
    assert data["shapes"] == [{"calls": ["32x64:float32"], "iterations": 20}]
    assert data["memory"]["reserved"] >= data["memory"]["allocated"] > 0
    assert not A_TIME.search(done.stdout)


@pytest.mark.slow
@needs("torch_npu")
def test_a_script_that_stays_on_the_cpu(folder: Path) -> None:
    done = bench("train.py", *SHORT, "--dry-run", cwd=folder, before=SIMULATED)
    assert done.returncode == 2
    assert "no tensor was ever on the npu" in done.stderr

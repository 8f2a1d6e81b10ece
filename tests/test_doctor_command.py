"""The command ``doctor`` as a process, on Pythons with packages that are broken in known ways."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from consoles import Step, steps
from doctor_machines import (
    TORCH,
    TORCH_NPU,
    Venv,
    cann_of,
    machine,
    program,
    recorded,
    root,
    sourced,
)
from needs import needs
from rich.console import Console

from cuda2npu.doctor import packages
from cuda2npu.doctor.check import Status, ok, warning, wrong
from cuda2npu.doctor.examine import Diagnosis, examine
from cuda2npu.doctor.machine import Machine
from cuda2npu.doctor.report import show, todo
from cuda2npu.model import UsageError
from cuda2npu.simulator.environment import real_npus

MakeVenv = Callable[[], Venv]


@pytest.fixture
def venv(tmp_path: Path) -> MakeVenv:
    return lambda: Venv(tmp_path / "venv")


def doctor(
    *arguments: str, cwd: Path | None = None, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The command in an environment that has nothing of Ascend's but what is given."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ASCEND", "TORCH_DEVICE"))}
    return subprocess.run(
        [sys.executable, "-m", "cuda2npu", "doctor", *arguments],
        cwd=cwd,
        env={**kept, "NO_COLOR": "1", **(environ or {})},
        capture_output=True,
        text=True,
        check=False,
    )


def told(
    python: str,
    *arguments: str,
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The rows of the JSON report by their names, each with its verdict; it exits with 1."""
    done = doctor("--python", python, "--json", *arguments, cwd=cwd, environ=environ)
    assert done.returncode == 1, done.stderr
    data = json.loads(done.stdout)
    assert data["can_run"] is False
    return {row["name"]: row for row in data["checks"]}


# --- broken environments ----------------------------------------------------------------------


def test_nothing_is_installed(venv: MakeVenv) -> None:
    rows = told(venv().python)
    assert rows["torch"]["status"] == "wrong"
    assert rows["torch_npu"]["todo"].startswith("pip install torch==")
    assert rows["import torch"] == {
        "name": "import torch",
        "status": "not checked",
        "found": "torch and torch_npu are not both here",
        "todo": "",
    }


def test_torch_of_another_release(venv: MakeVenv) -> None:
    made = venv()
    symbol = "_ZNK3c1010TensorImpl20is_contiguous_customENS_12MemoryFormatE"
    made.package("torch", "2.12.0", TORCH)
    made.package(
        "torch_npu",
        "2.8.0.post2",
        f"raise ImportError('libtorch_npu.so: undefined symbol: {symbol}')",
        ("torch==2.8.0+cpu",),
    )
    rows = told(made.python)
    assert rows["torch"]["status"] == "wrong"
    assert "torch_npu 2.8.0.post2 needs 2.8.0" in rows["torch"]["found"]
    assert rows["import torch"]["found"].startswith("it loads torch_npu, which fails")
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in rows["import torch"]["todo"]
    assert rows["import torch_npu"]["found"].startswith("torch and torch_npu do not match")
    assert symbol in rows["import torch_npu"]["found"]


def test_a_cuda_build_that_ends_the_process(venv: MakeVenv) -> None:
    made = venv().pair(torch_npu="import os; print('Duplicated key', flush=True); os.abort()")
    (made.packages / "torch" / "version.py").write_text("cuda: str = '12.8'\n")
    rows = told(made.python)
    assert "built for CUDA 12.8" in rows["torch"]["found"]
    assert rows["torch"]["status"] == "wrong"
    assert rows["import torch_npu"]["found"].startswith("CUDA build of torch")


def test_the_source_folder_of_torch_npu(venv: MakeVenv, tmp_path: Path) -> None:
    made = venv().pair()
    source = tmp_path / "pytorch" / "torch_npu"
    source.mkdir(parents=True)
    (source / "__init__.py").write_text("from torch_npu import _C\n")
    rows = told(made.python, cwd=source.parent)
    assert str(source) in rows["torch_npu"]["found"]
    assert rows["import torch_npu"]["found"].startswith("torch_npu's source folder")


def test_a_folder_that_only_has_the_name(venv: MakeVenv, tmp_path: Path) -> None:
    made = venv()
    made.package("torch", "2.8.0+cpu", TORCH)
    (tmp_path / "work" / "torch_npu").mkdir(parents=True)
    rows = told(made.python, cwd=tmp_path / "work")
    assert rows["torch_npu"]["found"].endswith("no package, only a folder")
    assert rows["torch.npu.is_available()"]["found"].startswith("torch knows no NPU")


def test_files_with_the_names_of_packages(venv: MakeVenv, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    for name in ("torch", "numpy"):
        (work / f"{name}.py").write_text("")
    rows = told(venv().pair().python, cwd=work)
    for name, version in (("torch", "2.8.0+cpu"), ("numpy", "1.26.4")):
        place = work / f"{name}.py"
        assert rows[name]["status"] == "wrong"
        assert rows[name]["found"].startswith(f"{version}, but Python takes it from {place}, ")
    assert rows["import torch"]["found"].startswith("another torch: ")
    assert rows["import torch"]["todo"] == rows["torch"]["todo"]


def test_a_folder_with_the_names_of_standard_modules(
    venv: MakeVenv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = venv().pair()
    (tmp_path / "work").mkdir()
    for name in ("json", "platform", "numpy"):
        (tmp_path / "work" / f"{name}.py").write_text("")
    monkeypatch.chdir(tmp_path / "work")
    found = packages.look_up(Machine(python=made.python))
    assert found.versions["torch"] == "2.8.0+cpu"
    assert found.strangers == {"numpy"}


def test_metadata_that_cannot_be_read(venv: MakeVenv) -> None:
    made = venv().pair()
    (made.packages / "torch-2.8.0+cpu.dist-info" / "METADATA").write_bytes(b"\xff\xfe\x00")
    made.package("scipy", "1.0")
    (made.packages / "pyyaml-6.0.2.dist-info" / "METADATA").unlink()
    file = made.packages / "torch_npu-2.8.0.dist-info" / "METADATA"
    file.write_text(file.read_text().replace("Version: 2.8.0", "Version: banana"))
    rows = told(made.python)
    for name, said in {
        "torch": f"its metadata in {made.packages} cannot be read: UnicodeDecodeError",
        "torch_npu": f"its metadata in {made.packages} names no version, but 'banana'",
        "pyyaml": "its metadata",
    }.items():
        assert (rows[name]["status"], rows[name]["found"][: len(said)]) == ("wrong", said)


def test_a_python_that_gives_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nsleep 600\n")
    python.chmod(0o755)
    monkeypatch.setattr(packages, "_SECONDS", 0.2)
    with pytest.raises(UsageError, match="python: gave no answer in 0 s"):
        packages.look_up(Machine(python=str(python)))


def test_a_missing_requirement(venv: MakeVenv) -> None:
    made = venv().pair(torch_npu="import yaml")
    shutil.rmtree(next(made.packages.glob("pyyaml*")))
    rows = told(made.python)
    assert rows["torch_npu's packages"]["todo"] == "pip install pyyaml"
    assert rows["import torch_npu"]["todo"] == "pip install pyyaml"


def test_an_import_that_never_ends(venv: MakeVenv, tmp_path: Path) -> None:
    beacon = tmp_path / "alive"
    child = tmp_path / "child.py"
    child.write_text(
        "import pathlib, time\n"
        f"while True: pathlib.Path({str(beacon)!r}).touch(); time.sleep(0.02)\n"
    )
    hang = (
        "import subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, {str(child)!r}])\n"
        "time.sleep(600)\n"
    )
    rows = told(venv().pair(torch_npu=hang).python, "--timeout", "1")
    assert rows["import torch"]["found"].startswith("no end: it did not come to an end in time")
    beacon.unlink()
    time.sleep(0.2)
    assert not beacon.exists()  # what it had started is gone, too


@needs("torch", "torch_npu")
def test_the_real_torch_npu_without_cann(tmp_path: Path) -> None:
    if real_npus():
        pytest.skip("this machine has an NPU")
    done = doctor(cwd=tmp_path, environ={"LD_LIBRARY_PATH": "", "COLUMNS": "100"})
    assert done.returncode == 1
    assert "libhccl.so" in done.stdout
    shown = _on_the_page("cuda2npu doctor")
    assert shown.prints(done.stdout), done.stdout


def _on_the_page(command: str) -> Step:
    page = Path(__file__).resolve().parent.parent / "docs" / "doctor.md"
    return next(x for x in steps(page.read_text(encoding="utf-8")) if x.command == command)


def test_another_system(tmp_path: Path) -> None:
    found = examine(Machine(tmp_path, {}, "/gone/python", "Darwin", "arm64"), 60)
    assert [check.status for check in found.checks] == [Status.WRONG, Status.UNCHECKED]
    assert "Linux alone" in found.checks[0].found
    assert not found.can_run


# --- machines with an NPU ---------------------------------------------------------------------


def _healthy(tmp_path: Path, made: Venv, listing: str = "910b", **environ: str) -> Diagnosis:
    folder = root(tmp_path / "root", "cann-8.3")
    for name in ("decorator", "scipy", "attrs", "psutil", "cython", "sympy", "cffi", "pathlib2"):
        made.package(name, "1.0")
    for name in ("protobuf", "requests", "absl_py"):
        made.package(name, "1.0")
    path = program(tmp_path / "bin", recorded(listing))
    variables = {**sourced(cann_of(folder)), **environ}
    variables["PATH"] = f"{path}:/bin:/usr/bin"
    return examine(machine(made, folder, path, **variables), 60)


def test_a_healthy_machine(tmp_path: Path, venv: MakeVenv) -> None:
    found = _healthy(tmp_path, venv().pair())
    assert [check for check in found.checks if check.status is not Status.OK] == []
    assert found.can_run
    assert found.verdict == "NPU code can run here"


def test_an_operation_ran_but_a_chip_is_in_a_critical_state(tmp_path: Path, venv: MakeVenv) -> None:
    found = _healthy(tmp_path, venv().pair(), "unhealthy")
    assert (found.ran, found.can_run) == (True, False)
    assert found.verdict == "an operation ran on the NPU, but 1 thing is wrong"


def test_no_device_for_a_list_that_does_not_ascend(tmp_path: Path, venv: MakeVenv) -> None:
    unavailable = TORCH_NPU.replace("is_available=lambda: True", "is_available=lambda: False")
    found = _healthy(tmp_path, venv().pair(torch_npu=unavailable), ASCEND_RT_VISIBLE_DEVICES="1,0")
    wrong = {check.name: check for check in found.having(Status.WRONG)}
    assert set(wrong) == {"visible devices", "torch.npu.is_available()"}
    assert not found.can_run


def test_a_wrong_result(tmp_path: Path, venv: MakeVenv) -> None:
    found = _healthy(tmp_path, venv().pair(torch=TORCH.replace("* 4", "* 3")))
    assert [check.name for check in found.having(Status.WRONG)] == ["an addition on the NPU"]


def test_a_process_on_a_machine_with_an_npu(tmp_path: Path, venv: MakeVenv) -> None:
    """All that a process can be shown without a driver of its own."""
    folder = root(tmp_path / "root", "cann-8.3")
    path = program(tmp_path / "bin", recorded("910_93"))
    environ = {**sourced(cann_of(folder)), "PATH": f"{path}{os.pathsep}{os.environ['PATH']}"}
    rows = told(venv().pair().python, environ=environ)
    assert rows["CANN toolkit"]["status"] == "ok"
    assert rows["set_env.sh"]["status"] == "ok"
    assert rows["LD_LIBRARY_PATH"]["status"] == "ok"
    assert rows["npu-smi info"]["found"] == "4 x Ascend910, driver tool 25.2.1"
    assert rows["an addition on the NPU"]["status"] == "ok"
    wrong = {name for name, row in rows.items() if row["status"] == "wrong"}
    assert wrong <= {"driver", "device files"}  # of the machine that runs the test


@needs("torch", "torch_npu")
def test_a_simulated_npu(tmp_path: Path) -> None:
    ours = [sys.executable, "-m", "cuda2npu"]
    done = subprocess.run(
        [*ours, "simulate", "--", *ours, "doctor"],
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "100"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert _on_the_page("cuda2npu simulate -- cuda2npu doctor").prints(done.stdout), done.stdout


@needs("torch", "torch_npu")
def test_a_simulated_npu_that_is_not_visible(tmp_path: Path) -> None:
    ours = [sys.executable, "-m", "cuda2npu"]
    done = subprocess.run(
        [*ours, "simulate", "--", *ours, "doctor", "--json"],
        cwd=tmp_path,
        env={**os.environ, "ASCEND_RT_VISIBLE_DEVICES": "7"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    steps = {row["name"]: row["todo"] for row in json.loads(done.stdout)["checks"] if row["todo"]}
    assert steps.pop("visible devices") == "export ASCEND_RT_VISIBLE_DEVICES=0"
    assert steps.pop("torch.npu.is_available()").startswith("do what is said of visible devices;")
    assert steps == {}


# --- the command line -------------------------------------------------------------------------


def test_the_report(venv: MakeVenv) -> None:
    done = doctor("--python", venv().python)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    start = lines.index("What to do:")
    assert lines[start + 1].startswith("1. ")
    assert lines[-1].startswith("NPU code cannot run here: ")
    steps = [line.partition(": ")[2] for line in lines[start + 1 : -2]]
    assert len(set(steps)) == len(steps)
    assert "\x1b" not in done.stdout
    assert done.stderr == ""


def test_what_to_do_begins_with_the_machine() -> None:
    rows = ("CANN toolkit", "device files", "import torch_npu", "driver", "NPU 0 chip 0")
    cures = {"device files": "use another machine", "driver": "use another machine"}
    cures["NPU 0 chip 0"] = "ask what is wrong"
    checks = [warning("firmware", "old", "replace it")]
    checks += [wrong(name, "not found", cures.get(name, "install CANN")) for name in rows]
    steps = todo(Diagnosis(tuple(checks), False, ran=False))
    assert [([check.name for check in found], text) for found, text in steps] == [
        (["device files", "driver"], "use another machine"),
        (["NPU 0 chip 0"], "ask what is wrong"),
        (["CANN toolkit", "import torch_npu"], "install CANN"),
        (["firmware"], "replace it"),
    ]


@pytest.mark.parametrize(("width", "beside"), [(40, False), (60, False), (80, True)])
def test_the_report_in_a_narrow_terminal(width: int, beside: bool) -> None:
    words = "leads to /usr/local/Ascend/ascend-toolkit/latest/aarch64-linux/lib64 and to others"
    checks = (warning("torch.npu.is_available()", words, "do it"), ok("torch", ""))
    text = StringIO()
    show(Diagnosis(checks, False, ran=True), Console(file=text, width=width))
    lines = text.getvalue().splitlines()
    head = "warning      torch.npu.is_available()"
    rows = lines[: next(n for n, line in enumerate(lines) if line.startswith("ok  "))]
    assert rows[0].startswith(f"{head}  leads" if beside else head)
    assert " ".join(rows).split() == [*head.split(), *words.split()]  # no word is broken
    assert beside or {line[:5] for line in rows[1:]} == {"    l", "    /", "    a"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--python", "/gone/python"), "--python /gone/python: No such file or directory"),
        (("--python", "/bin/true"), "--python /bin/true: is no Python 3.8"),
        (("--python", ""), "is empty"),
        (("--python", "/etc"), "--python /etc: Permission denied"),
        (("--timeout", "0"), "--timeout"),
        (("--timeout", "nan"), "--timeout"),
        (("--timeout", "soon"), "--timeout"),
        (("--chip", "910B"), "--chip"),
        (("train.py",), "train.py"),
    ],
)
def test_bad_input(arguments: tuple[str, ...], said: str) -> None:
    done = doctor(*arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_torch_is_not_imported_by_the_command_itself(venv: MakeVenv) -> None:
    code = (
        "import sys\n"
        "from cuda2npu.doctor.command import run_doctor\n"
        f"run_doctor({venv().python!r}, 60, False)\n"
        "print([m for m in ('torch', 'torch_npu', 'numpy') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"

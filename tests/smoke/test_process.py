"""The end of a child, whatever brings it: nothing is left running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from needs import needs
from processes import gone

from cuda2npu.running import process
from cuda2npu.running.process import RECORD
from cuda2npu.smoke.failure import failure
from cuda2npu.smoke.npu import reference_environment
from cuda2npu.smoke.process import run_child
from cuda2npu.smoke.spec import Spec

CALLS = 200

pytestmark = [
    needs("torch"),
    pytest.mark.skipif(os.name != "posix", reason="process groups are POSIX"),
]


def spec_of(folder: Path, text: str, **options: object) -> Spec:
    script = folder / "script.py"
    script.write_text(text)
    (folder / "run").mkdir(exist_ok=True)
    return Spec(
        str(script),
        (),
        str(folder / "run"),
        "cpu",
        cuda_on_cpu=True,
        **options,  # type: ignore[arg-type]
    )


def run(spec: Spec, timeout: float = 120.0) -> process.Ended:
    return run_child(spec, reference_environment(), timeout)


def record(spec: Spec) -> dict[str, object]:
    data: dict[str, object] = json.loads((Path(spec.folder) / RECORD).read_text())
    return data


FOREVER = (
    "import subprocess, sys, pathlib, time, torch\n"
    "helper = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    "pathlib.Path({!r}).write_text(str(helper.pid))\n"
    "net = torch.nn.Linear(2, 2).cuda()\n"
    "net(torch.ones(1, 2).cuda())\n"
    "while True:\n"
    "    time.sleep(0.05)\n"
)


def test_time_is_up(tmp_path: Path) -> None:
    """What was recorded until then is kept, and the processes it started are gone."""
    pid = tmp_path / "pid"
    spec = spec_of(tmp_path, FOREVER.format(str(pid)))
    ended = run(spec, timeout=8)
    assert ended.timed_out
    found = record(spec)
    assert found["ended"] == "timeout"
    assert [event["name"] for event in found["events"]] == ["Linear"]  # type: ignore[attr-defined]
    assert gone(int(pid.read_text()))


def test_a_script_that_does_not_listen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GRACE", 1.0)
    text = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)\n"
    began = time.monotonic()
    ended = run(spec_of(tmp_path, text), timeout=6)
    assert ended.timed_out
    assert time.monotonic() - began < 30


def test_time_is_up_while_torch_is_loaded(tmp_path: Path) -> None:
    ended = run(spec_of(tmp_path, "import torch"), timeout=0.3)
    found = failure("reference", None, ended, None)
    assert found is not None
    assert "before torch was loaded and the script began" in found.summary


@pytest.mark.parametrize(("status", "how"), [(0, "script"), (3, "error")])
def test_a_script_that_leaves_at_once(tmp_path: Path, status: int, how: str) -> None:
    text = (
        "import os, torch\n"
        "torch.nn.Linear(2, 2).cuda()(torch.ones(1, 2).cuda())\n"
        "if os.fork() == 0:\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        f"os._exit({status})\n"
    )
    spec = spec_of(tmp_path, text)
    assert run(spec).code == status
    found = record(spec)
    assert found["ended"] == how
    assert [event["name"] for event in found["events"]] == ["Linear"]  # type: ignore[attr-defined]
    assert "environment" in found
    assert not list(Path(spec.folder).glob(f"*/{RECORD}")), "nothing of a child without events"


def test_a_loop_without_end(tmp_path: Path) -> None:
    """Without an optimizer it ends after many calls that are not recorded; else it goes on."""
    text = (
        "import torch\n"
        "net = torch.nn.Linear(2, 2).cuda()\n"
        "while True:\n"
        "    net(torch.ones(1, 2).cuda())\n"
    )
    spec = spec_of(tmp_path, text, steps=5)
    ended = run(spec)
    assert (ended.code, ended.timed_out) == (0, False)
    found = record(spec)
    assert (found["ended"], len(found["events"])) == ("steps", CALLS)  # type: ignore[arg-type]
    finite = text.replace("while True", "for _ in range(2000)") + "raise SystemExit(7)\n"
    whole = spec_of(tmp_path, finite, steps=0)
    assert run(whole).code == 1
    assert record(whole)["ended"] == "error", "--steps 0 is to the end of the script"


def test_interrupted(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = tmp_path / "script.py"
    script.write_text(FOREVER.format(str(pid)))
    command = [
        sys.executable,
        "-m",
        "cuda2npu",
        "capture",
        str(script),
        "-o",
        str(tmp_path / "kept"),
    ]
    # A shell lets what it starts in the background ignore SIGINT, this test run among it.
    with subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as capture:
        for _ in range(600):
            if pid.exists() and pid.read_text():
                break
            time.sleep(0.1)
        capture.send_signal(signal.SIGINT)
        _, errors = capture.communicate(timeout=60)
    assert capture.returncode == 130, errors
    assert b"nothing is left running" in errors
    assert gone(int(pid.read_text()))
    assert not (tmp_path / "kept").exists()


def test_the_script_sees_what_python_would_show_it(tmp_path: Path) -> None:
    text = (
        "import sys, os, pathlib\n"
        "assert __name__ == '__main__' and __file__ == sys.argv[0]\n"
        "assert sys.modules['__main__'].__dict__ is globals()\n"
        "assert sys.path[0] == str(pathlib.Path(__file__).parent), sys.path\n"
        "assert '' not in sys.path and sys.argv[1:] == [], sys.argv\n"
        "import pickle\n"
        "class A: pass\n"
        "pickle.loads(pickle.dumps(A()))\n"
    )
    spec = spec_of(tmp_path, text)
    ended = run(spec)
    assert ended.code == 0, ended.output
    assert record(spec)["ended"] == "script"


def test_an_exit_code_is_an_error(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "import sys\nsys.exit('bad arguments')\n")
    assert run(spec).code == 1
    assert record(spec)["error"]["message"] == "bad arguments"  # type: ignore[index]


def test_steps_end_the_run(tmp_path: Path) -> None:
    text = (
        "import torch\n"
        "net = torch.nn.Linear(2, 2)\n"
        "never = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "used = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "while True:\n"
        "    net(torch.ones(1, 2)).sum().backward()\n"
        "    used.step()\n"
    )
    spec = spec_of(tmp_path, text, steps=2)
    assert run(spec).code == 0
    assert record(spec)["ended"] == "steps"
    assert record(spec)["steps"] == 2


def test_a_script_that_catches_everything_is_ended_all_the_same(tmp_path: Path) -> None:
    text = (
        "import torch\n"
        "net = torch.nn.Linear(2, 2)\n"
        "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "while True:\n"
        "    try:\n"
        "        net(torch.ones(1, 2)).sum().backward()\n"
        "        optimizer.step()\n"
        "    except:\n"
        "        print('caught')\n"
    )
    spec = spec_of(tmp_path, text, steps=2)
    assert run(spec).code == 0
    assert record(spec)["steps"] == 2
    assert record(spec)["ended"] == "steps"


def test_the_reference_sees_no_npu_package(tmp_path: Path) -> None:
    text = (
        "import importlib.util\n"
        "assert importlib.util.find_spec('torch_npu') is None\n"
        "try:\n"
        "    import torch_npu\n"
        "except ImportError:\n"
        "    pass\n"
        "else:\n"
        "    raise AssertionError\n"
    )
    ended = run(spec_of(tmp_path, text))
    assert ended.code == 0, ended.output

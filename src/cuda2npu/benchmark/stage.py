"""One benchmark: the device that is measured, the process on it, and what came of it."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cuda2npu import __version__
from cuda2npu.benchmark.child import BOOTSTRAP
from cuda2npu.benchmark.result import Result, short, uneven, varying
from cuda2npu.benchmark.spec import DEVICES, BenchError, Spec, parse_inputs, parse_target
from cuda2npu.model import UsageError
from cuda2npu.running.devices import has_gpu, has_npu
from cuda2npu.running.process import RECORD, SPEC, Ended, Start, Tell, run_all
from cuda2npu.running.source import is_installed
from cuda2npu.running.traces import own_frames
from cuda2npu.running.workspace import workspace
from cuda2npu.simulator import SWITCH

SIMULATED = (
    "the NPU is simulated: how long that takes says nothing of a real one, so that no time is "
    "printed or saved"
)


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked for."""

    target: str
    arguments: tuple[str, ...] = ()
    device: str = ""
    """The best one there is where it is empty."""
    warmup: int = 10
    iterations: int = 100
    batch: int | None = None
    inputs: str = ""
    timeout: float = 600.0
    dry: bool = False


class ScriptError(BenchError):
    """The script itself failed."""

    def __init__(self, summary: str, trace: str = "") -> None:
        super().__init__(summary)
        self.trace = trace


class Simulated(BenchError):  # noqa: N818
    """It ran, on a device whose speed is not to be told."""


@dataclass(frozen=True, slots=True)
class DryRun:
    """What can be said of a run without its times."""

    name: str
    device: str
    simulated: bool
    unit: str
    count: int
    """With the first run and those to warm up."""
    measured: int
    shapes: list[dict[str, Any]]
    varied: bool
    dtypes: list[str]
    memory: dict[str, int]
    environment: dict[str, str]
    iterations: int
    """As many as were to be measured."""

    @property
    def warnings(self) -> list[str]:
        missing = short(self.measured, self.iterations)
        return [*missing, *varying(self.shapes, self.varied, self.unit)]

    @property
    def notes(self) -> list[str]:
        simulated = [SIMULATED] if self.simulated else []
        return [*uneven(self.shapes, self.varied, self.unit), *simulated]


def bench(request: Request, tell: Tell = lambda _: None) -> Result | DryRun:
    """Measure; raises RunError where there is nothing to tell, ScriptError where it failed,
    UsageError for inputs that are none."""
    device = choose(request.device)
    target = parse_target(request.target)
    if request.inputs and target.is_script:
        raise BenchError("--inputs is for functions; a script makes its own")
    if request.arguments and not target.is_script:
        raise BenchError(f"{target.name}: a function is called without arguments, and -- has some")
    with workspace() as folder:
        spec = Spec(
            target,
            request.arguments,
            str(folder),
            device,
            request.warmup,
            request.iterations,
            parse_inputs(request.inputs),
            request.dry,
        )
        record = _run(spec, request.timeout, tell)
    if request.dry:
        return _dry(spec, record)
    if record["simulated"]:
        raise Simulated(
            f"{target.name}: ran {_counted(record)}, but {SIMULATED}; --dry-run tells the rest, "
            "and a real NPU the speed"
        )
    return _result(request, spec, record)


def choose(asked: str) -> str:
    """The device that is asked for, which must be there; raises BenchError."""
    there = {
        "npu": has_npu() or bool(os.environ.get(SWITCH)),
        "cuda": has_gpu(),
        "cpu": True,
    }
    device = asked or next(name for name in DEVICES if there[name])
    if device not in DEVICES:
        raise BenchError(f"--device {device}: is none of {', '.join(DEVICES)}")
    for package in ("torch", "torch_npu") if device == "npu" else ("torch",):
        if find_spec(package) is None:
            raise BenchError(f"{package} is not installed, which --device {device} needs")
    if not there[device]:
        raise BenchError(f"--device {device}: {_MISSING[device]}")
    return device


_MISSING = {
    "npu": "there is no NPU here (no /dev/davinci*), and nothing else is measured in its place; "
    "`cuda2npu simulate -- cuda2npu bench … --dry-run` checks that the benchmark runs",
    "cuda": "there is no GPU here that the installed torch was built for, and nothing else is "
    "measured in its place",
}


def _environment(device: str) -> dict[str, str]:
    """On the CPU and on CUDA nothing of an NPU is loaded; on the CPU no other device is seen."""
    found = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
    if device != "npu":
        found.update({"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", SWITCH: ""})
    if device == "cpu":
        found["CUDA_VISIBLE_DEVICES"] = ""
    return found


def _run(spec: Spec, timeout: float, tell: Tell) -> dict[str, Any]:
    folder = Path(spec.folder)
    spec.write(folder / SPEC)
    command = [sys.executable, "-c", BOOTSTRAP, str(folder / SPEC)]
    start = Start(command, _environment(spec.device), folder)
    words = f"{spec.target.name} on {spec.device}"
    (ended,) = run_all([start], timeout, tell, lambda _: words)
    try:
        record: dict[str, Any] = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise ScriptError(f"{spec.target.name} {_how(ended)}", ended.output) from None
    if record.get("error"):
        raise _failed(spec, record, ended)
    _check(spec, record, timeout)
    return record


def _how(ended: Ended) -> str:
    """The end of a process that left no record."""
    if ended.timed_out:
        return f"was ended by --timeout after {ended.seconds:.0f} s and told nothing"
    if ended.code < 0:
        return f"was ended by signal {-ended.code} ({signal.strsignal(-ended.code)})"
    return f"ended with code {ended.code} before it could be measured"


def _failed(spec: Spec, record: Mapping[str, Any], ended: Ended) -> BenchError:
    error = record["error"]
    if error["type"] in (BenchError.__name__, UsageError.__name__):
        return BenchError(error["message"])
    kind = f"{error['type']}: {error['message']}".rstrip(": ")
    if error["type"] == "SystemExit":  # the reason is what the script printed, as argparse does
        return ScriptError(f"{spec.target.name}: {kind}", ended.output)
    trace = own_frames(error["text"])
    printed = own_frames(ended.output)
    shown = printed if trace.strip() in printed else f"{printed}\n{trace}".lstrip()
    return ScriptError(f"{_place(error, trace) or spec.target.name}: {kind}", shown)


def _place(error: Mapping[str, Any], trace: str) -> str:
    """The innermost line of the user's own files, else of any file in the traceback."""
    shown = [frame for frame in error["frames"] if f'"{frame["file"]}"' in trace]
    files = [frame for frame in shown if not frame["file"].startswith("<")]
    mine = [frame for frame in files if not is_installed(frame["file"])] or files
    return f"{mine[-1]['file']}:{mine[-1]['line']}" if mine else ""


def _check(spec: Spec, record: Mapping[str, Any], timeout: float) -> None:
    """Raise BenchError where the run is not what was to be measured."""
    name = spec.target.name
    if not record["count"]:
        late = f" within --timeout {timeout:.0f}" if record["ended"] == "timeout" else ""
        raise BenchError(
            f"{name}: no optimizer step and no call of a module was seen{late}; a script that "
            "computes in processes that it starts, or without modules, cannot be measured: write "
            "a function, and name it as file.py:function"
        )
    if not record["measured"]:
        raise BenchError(
            f"{name}: ended after {_counted(record)}, which are the first run and those to warm "
            f"up; take fewer than --warmup {spec.warmup}, or let the script run longer"
        )
    if spec.device != "cpu" and not record["memory"]["allocated"]:
        raise BenchError(
            f"{name}: no tensor was ever on the {spec.device} that was to be measured, so that it "
            "computes somewhere else; `cuda2npu check` finds what keeps it away"
        )


def _counted(record: Mapping[str, Any]) -> str:
    count, unit = record["count"], record["unit"]
    return f"{count} {unit}{'' if count == 1 else 's'}"


def _dry(spec: Spec, record: Mapping[str, Any]) -> DryRun:
    kept = ("simulated", "unit", "count", "measured", "shapes", "varied", "dtypes", "memory",
            "environment")  # fmt: skip
    return DryRun(
        spec.target.name,
        spec.device,
        iterations=spec.iterations,
        **{name: record[name] for name in kept},
    )


def _result(request: Request, spec: Spec, record: Mapping[str, Any]) -> Result:
    kept = ("sha256", "unit", "first_run_ms", "latencies_ms", "wall_s", "memory", "shapes",
            "varied", "dtypes", "environment")  # fmt: skip
    return Result(
        name=spec.target.name,
        arguments=list(spec.arguments),
        device=spec.device,
        warmup=spec.warmup,
        iterations=spec.iterations,
        batch=request.batch,
        inputs=request.inputs,
        cuda2npu=__version__,
        made=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **{name: record[name] for name in kept},
    )

"""The process that measures: ``python -c BOOTSTRAP SPEC``. It leaves a record of plain data."""

from __future__ import annotations

import faulthandler
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cuda2npu.benchmark.spec import BenchError, Spec
from cuda2npu.running import program
from cuda2npu.running.process import RECORD
from cuda2npu.running.source import digest

if TYPE_CHECKING:
    from cuda2npu.benchmark.clock import Clock
    from cuda2npu.benchmark.functions import FunctionRun
    from cuda2npu.benchmark.scripts import ScriptRun

BOOTSTRAP = program.BOOTSTRAP.format("cuda2npu.benchmark.child")


def main(spec_path: str) -> None:
    faulthandler.enable()
    spec = Spec.read(Path(spec_path))
    try:
        clock = _clock(spec.device)
    except BenchError as error:
        _write(spec, program.ended_by(error))
        sys.exit(1)
    job = _job(spec, clock)
    _forget_in_forks(job)
    ended = program.how_it_ends(job.run)
    finish(spec, clock, job, ended)
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(1 if ended.get("error") else 0)


def _clock(device: str) -> Clock:
    """Import torch, for an NPU with torch_npu, in a way that an error says what to do."""
    try:
        import torch  # noqa: F401

        if device == "npu":
            import torch_npu  # noqa: F401
    except (ImportError, OSError, RuntimeError) as error:
        cure = "; `cuda2npu doctor` says what to do" if device == "npu" else ""
        raise BenchError(f"torch cannot be loaded for {device}: {error}{cure}") from None
    from cuda2npu.benchmark.clock import clock_of

    return clock_of(device)


def _job(spec: Spec, clock: Clock) -> ScriptRun | FunctionRun:
    if not spec.target.is_script:
        from cuda2npu.benchmark.functions import FunctionRun

        return FunctionRun(spec, clock)
    from cuda2npu.benchmark.scripts import ScriptRun

    job = ScriptRun(spec, clock, lambda ended: finish(spec, clock, job, ended))
    return job


def finish(spec: Spec, clock: Clock, job: ScriptRun | FunctionRun, ended: dict[str, Any]) -> None:
    """Write the record: what was counted and, unless it is not to be told, how long it took."""
    import torch

    meter = job.meter
    if ended.get("error"):
        _write(spec, {**ended, "count": meter.count})
        return
    simulated = _simulated()
    times = {} if simulated or spec.dry else meter.times()
    _write(
        spec,
        {
            **ended,
            **times,
            "unit": job.unit,
            "count": meter.count,
            "measured": meter.measured,
            "shapes": _readable(meter.shapes),
            "varied": meter.varied,
            "dtypes": sorted(job.outermost.dtypes),
            "memory": clock.memory(),
            "simulated": simulated,
            "environment": {**program.environment_of(torch), **clock.describe()},
            "sha256": _digest(spec),
        },
    )


def _write(spec: Spec, record: dict[str, Any]) -> None:
    folder = Path(spec.folder)
    temporary = folder / f"{RECORD}.tmp"
    temporary.write_text(json.dumps(record), encoding="utf-8")
    temporary.replace(folder / RECORD)


def _readable(shapes: Counter[Any]) -> list[dict[str, Any]]:
    """``[{"calls": ["64x784:float32"], "iterations": 100}]``, the most frequent first."""
    return [
        {"calls": [_call(*each) for each in calls], "iterations": times}
        for calls, times in shapes.most_common()
    ]


def _call(call: Any, times: int) -> str:
    tensors = (f"{'x'.join(map(str, shape)) or 'scalar'}:{dtype}" for shape, dtype in call)
    return ", ".join(tensors) + (f" ({times} calls)" if times > 1 else "")


def _simulated() -> bool:
    """Whether operators are computed by the simulator in this process."""
    simulator = sys.modules.get("cuda2npu.simulator.activate")
    return simulator is not None and simulator.is_active()


def _digest(spec: Spec) -> str:
    """Of the file that is measured; of a module, the one it was loaded from, if there is one."""
    if spec.target.is_file:
        return digest(Path(spec.target.place))
    file = getattr(sys.modules.get(spec.target.place), "__file__", None)
    return digest(Path(file)) if file and Path(file).is_file() else ""


def _forget_in_forks(job: ScriptRun | FunctionRun) -> None:
    """A process that the script forks, such as a worker of a DataLoader, measures nothing."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=job.close)

"""The stage as a whole: reference run, rewriting, NPU run, comparison."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cuda2npu.model import Options
from cuda2npu.smoke import captured, npu
from cuda2npu.smoke.closure import closure, project_root
from cuda2npu.smoke.compare import compare
from cuda2npu.smoke.failure import Failure, failure
from cuda2npu.smoke.notes import Note, read_notes
from cuda2npu.smoke.outcome import Comparison, Run, read_run
from cuda2npu.smoke.overlay import Overlay, rewritten
from cuda2npu.smoke.process import Ended, run_child
from cuda2npu.smoke.spec import (
    NPU,
    RECORD,
    REFERENCE,
    SIMULATOR_NOTES,
    SmokeError,
    Spec,
    Tolerance,
)
from cuda2npu.smoke.suspects import Edit, edits, suspects

_LOST_DOUBLES = "float64"

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked for."""

    script: Path
    arguments: tuple[str, ...] = ()
    steps: int = 5
    timeout: float = 600.0
    seed: int = 0
    dropout: bool = True
    reference: Path | None = None
    rewritten: Path | None = None
    tolerance: Tolerance = field(default_factory=Tolerance)
    options: Options = field(default_factory=Options)


@dataclass(slots=True)
class Report:
    """What came of it."""

    request: Request
    reference_name: str = ""
    """Where the reference comes from, in words."""
    simulated: bool = False
    comparison: Comparison | None = None
    failures: list[Failure] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)
    suspects: list[Edit] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    """What the simulator saw that a real chip does slowly or refuses."""
    environment: dict[str, dict[str, str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    steps: int = 0

    @property
    def code(self) -> int:
        if self.failures or self.comparison is None:
            return 2
        return 0 if self.comparison.matches else 1


def smoke(request: Request, tell: Tell = lambda _: None) -> Report:
    """Run and compare; raises SmokeError where that cannot even begin."""
    script = _script(request.script)
    with _workspace() as folder:
        for name in (REFERENCE, NPU):
            (folder / name).mkdir()
        machine = npu.machine(folder)
        report = Report(request, simulated=machine.simulated)
        root = project_root(script, Path.cwd())
        overlay = _overlay(request, script, root, folder / "copy")
        report.edits = edits(overlay)
        old = _reference(request, script, folder / REFERENCE, report, tell)
        new = _npu_run(request, script, overlay, folder, report, machine, tell)
        report.notes = read_notes(folder / SIMULATOR_NOTES, overlay)
        if old is not None and new is not None and not report.failures:
            _compare(report, old, new, overlay)
        return report


def capture(request: Request, target: Path, tell: Tell = lambda _: None) -> Report:
    """Run the original script and keep its record at ``target``."""
    script = _script(request.script)
    captured.check_target(target)
    with _workspace() as folder:
        report = Report(request)
        run = _reference(request, script, folder, report, tell)
        if run is not None and not report.failures:
            spec = _reference_spec(request, script, folder)
            captured.keep(folder, target.resolve(), spec, run)
        return report


def _script(path: Path) -> Path:
    if not path.is_file():
        raise SmokeError(f"{path}: no such file")
    return path.resolve()


@contextmanager
def _workspace() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cuda2npu-smoke-", ignore_cleanup_errors=True) as name:
        yield Path(name).resolve()


def _overlay(request: Request, script: Path, root: Path, copy: Path) -> Overlay:
    given = request.rewritten
    if given is not None and not given.exists():
        raise SmokeError(f"{given}: no such file or folder")
    overlay = rewritten(closure(script, root), root, copy, request.options, given=given)
    if overlay.errors:
        raise SmokeError("\n".join(overlay.errors))
    return overlay


def _reference_spec(request: Request, script: Path, folder: Path) -> Spec:
    gpu = npu.has_gpu()
    return Spec(
        str(script),
        request.arguments,
        str(folder),
        "cuda" if gpu else "cpu",
        cuda_on_cpu=not gpu,
        steps=request.steps,
        seed=request.seed,
        dropout=request.dropout,
    )


def _reference(
    request: Request, script: Path, folder: Path, report: Report, tell: Tell
) -> Run | None:
    spec = _reference_spec(request, script, folder)
    if request.reference is not None:
        run, manifest = captured.load(request.reference, script, spec)
        where = "CPU" if manifest["device"] == "cpu" else "CUDA"
        report.reference_name = f"captured on {where} at {manifest['made']}"
        report.environment[REFERENCE] = run.environment
        return run
    where = "the CPU, CUDA calls led there" if spec.cuda_on_cpu else "CUDA"
    report.reference_name = f"the original on {where}"
    ended = run_child(
        spec,
        npu.reference_environment(),
        request.timeout,
        lambda text: tell(f"reference on {'CPU' if spec.cuda_on_cpu else 'CUDA'}: {text}"),
    )
    overlay = Overlay(script.parent, script.parent)
    return _ended(REFERENCE, folder, ended, overlay, report, marked=spec.cuda_on_cpu)


def _npu_run(
    request: Request, script: Path, overlay: Overlay, folder: Path, report: Report,
    machine: npu.Machine, tell: Tell,
) -> Run | None:  # fmt: skip
    spec = Spec(
        str(overlay.copy / script.relative_to(overlay.root)),
        request.arguments,
        str(folder / NPU),
        "npu",
        steps=request.steps,
        seed=request.seed,
        dropout=request.dropout,
        mapped=((str(overlay.root), str(overlay.copy)),),
    )
    environment = {**machine.environment, **_python_path(overlay)}
    where = "simulated NPU" if machine.simulated else "NPU"
    ended = run_child(
        spec, environment, request.timeout, lambda text: tell(f"rewritten on {where}: {text}")
    )
    return _ended(NPU, folder / NPU, ended, overlay, report)


def _python_path(overlay: Overlay) -> dict[str, str]:
    """Processes that the script starts find the copies first, as the script itself does."""
    given = os.environ.get("PYTHONPATH")
    if not given:
        return {}
    copies = []
    for entry in given.split(os.pathsep):
        place = Path(entry).resolve()
        if entry and place.is_relative_to(overlay.root):
            copy = overlay.copy / place.relative_to(overlay.root)
            copies += [str(copy)] if copy.exists() and copy.resolve() == copy else []
        copies.append(entry)
    return {"PYTHONPATH": os.pathsep.join(copies)}


def _ended(
    which: str, folder: Path, ended: Ended, overlay: Overlay, report: Report, marked: bool = False
) -> Run | None:
    run = read_run(folder, marked=marked) if (folder / RECORD).exists() else None
    report.seconds[which] = ended.seconds
    if run is not None:
        report.environment[which] = run.environment
        report.steps = run.steps
    failed = failure(which, run, ended, overlay)
    if failed is not None:
        report.failures.append(failed)
    return run


def _compare(report: Report, old: Run, new: Run, overlay: Overlay) -> None:
    doubles = any(finding.fix.value == "numerics" and _is_double(finding.name)
                  for finding in overlay.applied)  # fmt: skip
    report.comparison = compare(old, new, report.request.tolerance, lost_doubles=doubles)
    first = report.comparison.first
    if first is not None:
        report.suspects = suspects(first.layer, report.edits, new, overlay)


def _is_double(name: str) -> bool:
    return _LOST_DOUBLES in name or "double" in name

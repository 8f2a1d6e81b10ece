"""The stage as a whole: reference run, rewriting, NPU run, comparison."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from cuda2npu.formats import has_trigger
from cuda2npu.model import Options
from cuda2npu.running.devices import has_gpu
from cuda2npu.running.process import Ended, Tell
from cuda2npu.running.source import is_installed, source_file
from cuda2npu.running.workspace import workspace
from cuda2npu.smoke import captured, npu
from cuda2npu.smoke.compare import NOTHING, compare
from cuda2npu.smoke.failure import Failure, failure, of_rule, printed
from cuda2npu.smoke.files_read import CONFIGS, LEFT_BEHIND, files_read
from cuda2npu.smoke.notes import Note, read_notes
from cuda2npu.smoke.outcome import Comparison, Run
from cuda2npu.smoke.overlay import Overlay, not_rewritten, rewritten
from cuda2npu.smoke.project import module_file, project_root
from cuda2npu.smoke.putback import as_before
from cuda2npu.smoke.ranks import across, read_runs, run_ranks
from cuda2npu.smoke.spec import (
    NPU,
    REFERENCE,
    SIMULATED,
    SmokeError,
    Spec,
    Tolerance,
)
from cuda2npu.smoke.suspects import Edit, edits, suspects

KEPT = "kept"
_LOST_DOUBLES = "float64"


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked for."""

    script: Path
    """Or the name of a module, where ``module`` says so."""
    arguments: tuple[str, ...] = ()
    steps: int = 5
    timeout: float = 600.0
    seed: int = 0
    dropout: bool = True
    reference: Path | None = None
    rewritten: Path | None = None
    tolerance: Tolerance = field(default_factory=Tolerance)
    options: Options = field(default_factory=Options)
    nproc: int = 0
    """Processes to start as torchrun does; 0 is the script alone."""
    devices: int = 0
    """Devices the script sees where they are simulated; 0 is one for each process."""
    module: bool = False

    @property
    def seen_devices(self) -> int:
        return self.devices or max(self.nproc, 1)


@dataclass(slots=True)
class Report:
    """What came of it."""

    request: Request
    reference_name: str = ""
    """Where the reference comes from, in words."""
    simulated: bool = False
    comparison: Comparison | None = None
    failures: list[Failure] = field(default_factory=list)
    printed: dict[str, Failure] = field(default_factory=dict)
    """By the run, an error that it printed and went on."""
    edits: list[Edit] = field(default_factory=list)
    suspects: list[Edit] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    """What the simulator saw that a real chip does slowly or refuses."""
    environment: dict[str, dict[str, str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    steps: int = 0
    ranks: dict[int, Comparison] = field(default_factory=dict)
    """By rank, where the run had several."""
    reference_time: tuple[float, float] = (0.0, 0.0)
    """When the reference began and ended, if it was run here."""
    left_behind: list[str] = field(default_factory=list)
    """Files that the reference wrote and the run on the NPU read."""
    not_rewritten: list[str] = field(default_factory=list)
    """Files that ran on the NPU as they are although there is something to rewrite in them."""

    @property
    def went_on(self) -> list[Failure]:
        """Errors that may be why the runs part: what both printed alike is the script's own way."""
        if self.code == 0:
            return []
        alike = len({failure.summary for failure in self.printed.values()}) < len(self.printed)
        nothing = self.comparison is not None and self.comparison.nothing
        failed = {failure.which for failure in self.failures}
        found = [failure for failure in self.printed.values() if failure.which not in failed]
        return [] if alike and not nothing else found

    @property
    def code(self) -> int:
        compared = self.comparison
        if self.failures or compared is None or compared.nothing or not compared.rows:
            return 2
        return 0 if compared.matches else 1


def smoke(request: Request, tell: Tell = lambda _: None, notice: Tell = lambda _: None) -> Report:
    """Run and compare; raises SmokeError where that cannot even begin.

    ``tell`` is given each state of the run, ``notice`` what must be read: that it is simulated.
    """
    script, given = _script(request), request.rewritten
    if given is not None and not given.exists():
        raise SmokeError(f"{given}: no such file or folder")
    with workspace() as folder:
        for name in (REFERENCE, NPU, KEPT):
            (folder / name).mkdir()
        machine = npu.machine(folder, request.seen_devices)
        report = Report(request, simulated=machine.simulated)
        if machine.simulated:
            notice(SIMULATED)
        old, files = _reference(request, script, folder / REFERENCE, report, tell, folder / KEPT)
        root = project_root(script, Path.cwd())
        with as_before(folder / KEPT):
            overlay = rewritten(files, root, folder / "copy", request.options, given=given)
            report.edits = edits(overlay)
            new = _npu_run(request, script, overlay, folder, report, machine, tell)
        report.left_behind = _left_behind(folder)
        report.not_rewritten = not_rewritten(files_read(folder / NPU), overlay, request.options)
        report.notes = read_notes(folder, overlay)
        if not report.failures:
            _compare(report, old, new, overlay)
        return report


def capture(
    request: Request, target: Path, force: bool = False, tell: Tell = lambda _: None
) -> Report:
    """Run the original script and keep its records at ``target``."""
    script = _script(request)
    captured.check_target(target, force)
    with workspace() as folder:
        report = Report(request)
        runs, files = _reference(request, script, folder, report, tell)
        if not report.failures and not any(run.events for run in runs):
            if not report.printed:
                raise SmokeError(f"{request.script}: {NOTHING}")
            report.failures += report.printed.values()
        if not report.failures:
            spec = _reference_spec(request, script, folder)
            captured.keep(target.resolve(), spec, request.nproc, runs, files)
        return report


def _script(request: Request) -> Path:
    """The file that runs."""
    path = request.script
    if not request.module:
        return source_file(path)
    found = module_file(str(path), Path.cwd())
    if found is None:
        raise SmokeError(
            f"{path}: no such module, seen from {Path.cwd()}; write the name that "
            "`python -m` takes, and start in the folder in which it is found"
        )
    if is_installed(str(found)):
        raise SmokeError(
            f"{path}: is an installed package ({found}), no sources to rewrite; install it with "
            "`pip install -e`, or start in the folder of its sources"
        )
    return found.resolve()


def _left_behind(folder: Path) -> list[str]:
    """What the run on the NPU read of the reference's, though both should begin alike."""
    found = files_read(folder / NPU, LEFT_BEHIND)
    own = (path for path in found if not path.is_relative_to(folder))
    return [str(path) for path in own if ".cache" not in path.parts]


def _reference_spec(request: Request, script: Path, folder: Path) -> Spec:
    gpu = has_gpu(request.seen_devices)
    return Spec(
        str(script),
        request.arguments,
        str(folder),
        "cuda" if gpu else "cpu",
        cuda_on_cpu=not gpu,
        steps=request.steps,
        seed=request.seed,
        dropout=request.dropout,
        devices=request.seen_devices,
        module=str(request.script) if request.module else "",
    )


def _reference(
    request: Request, script: Path, folder: Path, report: Report, tell: Tell,
    kept: Path | None = None,
) -> tuple[list[Run], list[Path]]:  # fmt: skip
    """The runs of the original and the files of the project that it read, the script first.

    ``kept``: where that goes which it changes, because another run follows that begins as it did.
    """
    spec = _reference_spec(request, script, folder)
    if kept is not None:
        places = {Path.cwd(), project_root(script, Path.cwd())} - {Path("/")}
        spec = replace(spec, kept=str(kept), folders=tuple(map(str, places)))
    if request.reference is not None:
        runs, files, manifest = captured.load(request.reference, spec, request.nproc)
        where = "CPU" if manifest["device"] == "cpu" else "CUDA"
        report.reference_name = f"captured on {where} at {manifest['made']}"
        report.environment[REFERENCE] = manifest["environment"]
        return runs, files
    where = "the CPU, CUDA calls led there" if spec.cuda_on_cpu else "CUDA"
    report.reference_name = f"the original on {where}"
    began = time.time()
    ended = run_ranks(
        spec,
        request.nproc,
        npu.reference_environment(),
        request.timeout,
        lambda text: tell(f"reference on {'CPU' if spec.cuda_on_cpu else 'CUDA'}: {text}"),
    )
    report.reference_time = began, time.time()
    overlay = Overlay(script.parent, script.parent)
    runs = _ended(REFERENCE, folder, ended, overlay, report, marked=spec.cuda_on_cpu)
    return runs, _of_project(script, files_read(folder), request.options, began)


def _of_project(script: Path, read: Iterable[Path], options: Options, began: float) -> list[Path]:
    """The script and what it read of its project; of configs those that may speak of CUDA."""
    root = project_root(script, Path.cwd())
    files = (path.resolve() for path in read)
    own = (path for path in files if path.is_relative_to(root))
    return list(dict.fromkeys([script, *(p for p in own if _counts(p, options, began))]))


def _counts(path: Path, options: Options, began: float) -> bool:
    if path.suffix not in CONFIGS:
        return True
    by_the_run = path.stat().st_mtime >= began
    return not by_the_run and has_trigger(path.read_bytes(), str(path), options)


def _npu_run(
    request: Request, script: Path, overlay: Overlay, folder: Path, report: Report,
    machine: npu.Machine, tell: Tell,
) -> list[Run]:  # fmt: skip
    spec = Spec(
        str(overlay.copy / script.relative_to(overlay.root)),
        request.arguments,
        str(folder / NPU),
        "npu",
        steps=request.steps,
        seed=request.seed,
        dropout=request.dropout,
        devices=request.seen_devices,
        module=str(request.script) if request.module else "",
        root=str(overlay.root),
        copy=str(overlay.copy),
        other_run=report.reference_time,
    )
    where = "simulated NPU" if machine.simulated else "NPU"
    ended = run_ranks(
        spec,
        request.nproc,
        machine.environment,
        request.timeout,
        lambda text: tell(f"rewritten on {where}: {text}"),
    )
    return _ended(NPU, folder / NPU, ended, overlay, report)


def _ended(
    which: str, folder: Path, ended: list[Ended], overlay: Overlay, report: Report,
    marked: bool = False,
) -> list[Run]:  # fmt: skip
    """The runs of all ranks; the failure that came first is told, the others follow from it."""
    runs = read_runs(folder, report.request.nproc, marked=marked)
    report.seconds[which] = ended[0].seconds
    left = [run for run in runs if run is not None]
    if left:
        report.environment[which] = left[0].environment
        report.steps = left[0].steps
    for each in ended:
        shown = printed(which, each, overlay, marked)
        if shown is not None:
            report.printed.setdefault(which, shown)
    by_time = sorted(range(len(runs)), key=lambda number: _failed_at(runs[number]))
    for number in by_time:
        own = ended[min(number, len(ended) - 1)]
        failed = failure(which, runs[number], own, overlay, marked)
        if failed is not None:
            report.failures.append(failed)
            break
    return left


def _failed_at(run: Run | None) -> float:
    """When a run failed; a process that left no record was ended last, for the others."""
    return run.error.get("when", 0.0) if run is not None and run.error else float("inf")


def _compare(report: Report, old: list[Run], new: list[Run], overlay: Overlay) -> None:
    doubles = any(finding.fix.value == "numerics" and _is_double(finding.name)
                  for finding in overlay.applied)  # fmt: skip
    tolerance = report.request.tolerance
    pairs = list(zip(old, new, strict=False))
    compared = {
        number if a.rank is None else a.rank: compare(a, b, tolerance, lost_doubles=doubles)
        for number, (a, b) in enumerate(pairs)
    }
    if len(old) == len(new) == 1:
        (report.comparison,) = compared.values()
    else:
        report.ranks = compared
        report.comparison = across(compared)
    if len(old) != len(new):
        report.comparison.problems.append(
            f"the reference ran in {_processes(old)}, the rewritten script in {_processes(new)}"
        )
    if report.request.seen_devices > 1 and not report.comparison.matches:
        report.comparison.problems += map(of_rule, overlay.across_devices())
    first = report.comparison.first
    if first is not None:
        run = next((b for a, b in pairs if first.rank in (None, a.rank)), new[0])
        report.suspects = suspects(first.layer, report.edits, run, overlay)


def _processes(runs: list[Run]) -> str:
    return "one process" if len(runs) == 1 else f"{len(runs)} processes"


def _is_double(name: str) -> bool:
    return _LOST_DOUBLES in name or "double" in name

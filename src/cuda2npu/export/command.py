"""The command ``export``, from its options to its exit code."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

from rich.console import Console

from cuda2npu.export import atc
from cuda2npu.export.child import BOOTSTRAP
from cuda2npu.export.report import Compiled, Report, as_data, short, show
from cuda2npu.export.spec import OUTPUT, RESULT, SPEC, Exported, Result, Spec
from cuda2npu.model import UsageError
from cuda2npu.report import BROKEN_PIPE, Output
from cuda2npu.report.output_file import check_output
from cuda2npu.report.usage import ERROR
from cuda2npu.running.devices import has_npu
from cuda2npu.running.process import Ended, Tell, run_command
from cuda2npu.running.told import reported, say
from cuda2npu.running.workspace import workspace
from cuda2npu.simulator import SWITCH
from cuda2npu.smoke import npu
from cuda2npu.writing import put_in_place, temporary

_PACKAGES = ("torch", "numpy", "onnx", "onnxscript", "onnxruntime")
_TAIL = 15
"""Lines of what a command printed that are shown when it fails."""
_NARROWEST = 80
_AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked for."""

    spec: Spec
    build: atc.Build = field(default_factory=atc.Build)
    timeout: float = 600.0
    compile: bool | None = None
    """None is: where atc is found."""
    tune: bool = False


def run_export(request: Request, as_json: bool) -> int:
    """Export, print what came of it; the exit code."""
    errors = Console(stderr=True, emoji=False)
    try:
        report = reported(lambda tell: export(request, tell), errors)
        if isinstance(report, int):
            return report
        if not as_json and not report.result.exports:
            say(errors, f"{report.result.traceback}\nerror: {report.result.error}".lstrip())
            return ERROR
        output = Output(sys.stdout)
        output.write(json.dumps(as_data(report), indent=2) + "\n" if as_json else _text(report))
    except UsageError as error:
        say(errors, f"error: {error}")
        return ERROR
    return BROKEN_PIPE if output.broken else report.code


def _text(report: Report) -> str:
    text = StringIO()
    terminal = Console(emoji=False)
    width = max(terminal.width, _NARROWEST)
    show(report, Console(file=text, emoji=False, force_terminal=terminal.is_terminal, width=width))
    return text.getvalue()


def check_installed(device: str) -> None:
    """Raise UsageError unless the packages of the extra are there; none of them is imported."""
    needed = (*_PACKAGES, "torch_npu") if device == "npu" else _PACKAGES
    for name in needed:
        if find_spec(name) is None:
            raise UsageError(f"{name} is not installed; do: pip install 'cuda2npu[export]'")


def export(request: Request, tell: Tell = lambda _: None) -> Report:
    """Export, compare, write the commands; raises UsageError where that cannot even begin."""
    _check_target(request.spec)
    if (request.compile or request.tune) and (reason := _cannot_compile(request)):
        raise UsageError(f"nothing is compiled: {reason}")
    check_installed(request.spec.device)
    report = Report(request.spec.target)
    with workspace() as folder, _staging(request.spec) as staging:
        variables = _environment(request.spec.device, folder, report)
        hidden = variables.get(_AUTOLOAD) == "0"
        replace(request.spec, staging=staging, without_npu=hidden).write(folder / SPEC)
        tell("exporting and comparing")
        command = [sys.executable, "-c", BOOTSTRAP, str(folder)]
        ended = run_command(command, variables, folder / OUTPUT, request.timeout)
        report.result = _result(folder, ended)
        if request.spec.is_script and not report.result.exports and not report.result.error:
            report.result.error = f"{request.spec.target} never calls torch.onnx.export"
        _check_sizes(request, report.result)
        for exported in report.result.exports:
            if exported.file and not exported.changed:
                _command_lines(exported, request, report)
        if not report.result.error:
            _compile(request, report, folder, tell)
    return report


def _check_target(spec: Spec) -> None:
    """What can be seen without running anything."""
    if spec.is_script:
        path = Path(spec.target)
        if not path.is_file():
            hint = "" if path.suffix == ".py" else "; a callable is written module:callable"
            raise UsageError(f"{spec.target}: no such file{hint}")
        return
    path = Path(spec.output)
    source = Path(spec.target.rpartition(":")[0])
    check_output("--output", path, (".onnx",), (source,))
    check_output("--output", path.with_name(f"{path.name}.data"), (".data",))
    check_output("--output", _script_beside(path), (".sh",))


def _script_beside(model: Path) -> Path:
    return model.with_suffix(".atc.sh")


@contextmanager
def _staging(spec: Spec) -> Iterator[str]:
    """A folder beside the file of a callable: a model's weights are moved along with it."""
    if spec.is_script:
        yield ""
        return
    folder = Path(spec.output).resolve().parent
    with tempfile.TemporaryDirectory(
        prefix=".cuda2npu-", dir=folder, ignore_cleanup_errors=True
    ) as name:
        yield name


def _environment(device: str, folder: Path, report: Report) -> dict[str, str]:
    """That of the child: with an NPU, real or simulated, or as on any machine."""
    found = {**os.environ, "PYTHONFAULTHANDLER": "1"}
    if device == "npu":
        machine = npu.machine(folder)
        report.simulated = machine.simulated
        return {**found, **machine.environment}
    if not has_npu() and not os.environ.get(SWITCH):
        # torch_npu cannot be loaded here, and torch would load it by itself.
        found[_AUTOLOAD] = "0"
    return found


def _result(folder: Path, ended: Ended) -> Result:
    if (folder / RESULT).exists():
        result = Result.read(folder / RESULT)
    elif ended.timed_out:
        result = Result(error=f"still running after --timeout {ended.seconds:.0f} s, and ended")
    else:
        how = f"signal {-ended.code}" if ended.code < 0 else f"code {ended.code}"
        result = Result(error=f"the process that exports ended with {how}")
    if result.error and not result.traceback and not (folder / RESULT).exists():
        result.traceback = _tail(ended.output)
    return result


def _tail(text: str) -> str:
    return "\n".join(text.rstrip().splitlines()[-_TAIL:])


def _check_sizes(request: Request, result: Result) -> None:
    known = [symbol for each in result.exports for symbol in each.symbols]
    for symbol in request.build.sizes or {}:
        if symbol not in known and not result.error:
            there = f"; there are {', '.join(dict.fromkeys(known))}" if known else ""
            raise UsageError(f"--sizes {symbol}: no size of the model is called so{there}")


def _command_lines(exported: Exported, request: Request, report: Report) -> None:
    path = _script_beside(Path(exported.file))
    check_output("commands for atc and aoe", path, (".sh",))
    text = atc.script(exported, request.build)
    try:
        with temporary(path.parent) as name:
            Path(name).write_text(text, encoding="utf-8")
            put_in_place(name, path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
    report.scripts[exported.file] = str(path)


def _compile(request: Request, report: Report, folder: Path, tell: Tell) -> None:
    """Run the commands where CANN is there; else say plainly that they were not run."""
    reason = _cannot_compile(request)
    if not reason and any(each.differs for each in report.result.exports):
        reason = "the file computes something else than the module"
    if not report.scripts:
        if request.compile or request.tune:
            report.compiled.append(Compiled("atc", "", "there is no file to compile"))
        return
    if reason:
        report.notes.append(f"not compiled: {reason}")
        return
    for tool in ("atc", "aoe")[: 2 if request.tune else 1]:
        for model, path in report.scripts.items():
            tell(f"{tool}: {short(model)}")
            ended = run_command(
                ["bash", path, tool], dict(os.environ), folder / OUTPUT, request.timeout
            )
            report.compiled.append(_compiled(tool, Path(model), ended))


def _cannot_compile(request: Request) -> str:
    """Why not, as far as it can be said before the model is there."""
    if request.compile is False and not request.tune:
        return "--no-compile"
    if shutil.which("atc") is None:
        return "atc of CANN is not on PATH; source its set_env.sh, or run the script where CANN is"
    return "" if request.build.soc else "--soc does not say for which chip"


def _compiled(tool: str, model: Path, ended: Ended) -> Compiled:
    """The model that a command left, by the name that it was given."""
    stem = atc.om_name(model.name, "_tuned" if tool == "aoe" else "")
    made = sorted(model.parent.glob(f"{stem}*.om"))
    if ended.code == 0 and made:
        return Compiled(tool, str(made[0]))
    if ended.timed_out:
        return Compiled(tool, "", f"still running after --timeout {ended.seconds:.0f} s, and ended")
    how = f"ended with code {ended.code}" if ended.code else f"left no {stem}.om"
    return Compiled(tool, "", f"{how}\n{_tail(ended.output)}")

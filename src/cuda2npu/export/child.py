"""The process that exports: user code runs here, and nowhere else.

Started as ``python -c BOOTSTRAP FOLDER``: the bootstrap takes the working folder off ``sys.path``
before anything but ``sys`` is imported, so that no file of the user's is taken for a module.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from cuda2npu.export.failure import own_lines, told
from cuda2npu.export.spec import DYNAMO, RESULT, SPEC, TRACE, Exported, Finding, Result, Spec
from cuda2npu.model import UsageError
from cuda2npu.running.program import environment_of, execute
from cuda2npu.smoke.child import hide

BOOTSTRAP = "import sys; sys.path.pop(0); from cuda2npu.export.child import main; main(sys.argv[1])"


def main(folder: str) -> None:
    spec = Spec.read(Path(folder, SPEC))
    result = Result()
    if spec.without_npu:
        hide("torch_npu")
    try:
        if spec.is_script:
            _script(spec, result)
        else:
            _callable(spec, result)
    except UsageError as error:
        result.error = str(error)
    except SystemExit as leave:
        result.error = _left(leave, spec)
        result.traceback = own_lines(leave) if result.error else ""
    except BaseException as error:
        result.error, result.traceback = told(error), own_lines(error)
    torch = sys.modules.get("torch")
    if torch is not None:
        result.environment = environment_of(torch)
    result.write(Path(folder, RESULT))
    sys.stdout.flush()
    sys.stderr.flush()


def _left(leave: SystemExit, spec: Spec) -> str:
    """What is wrong with a call of sys.exit; nothing when a script ends by it as it should."""
    code = leave.code
    how = f"with code {code or 0}" if isinstance(code, (int, type(None))) else f"and says: {code}"
    if not spec.is_script:
        return f"{spec.target}: ends the process {how}, before there is a module to export"
    return f"the script ended {how}" if code not in (None, 0) else ""


def _script(spec: Spec, result: Result) -> None:
    from cuda2npu.export.observe import Observer

    observer = Observer(spec, result)
    observer.install()
    script = str(Path(spec.target).resolve())
    try:
        execute(script, spec.arguments)
    finally:
        observer.finish()


def _callable(spec: Spec, result: Result) -> None:
    import torch

    from cuda2npu.export.examine import branches_found, examine
    from cuda2npu.export.target import load

    _check_opset(spec.opset)
    torch.manual_seed(spec.seed)
    call = load(spec)
    call.module.eval()
    if spec.device == "npu":
        call.module.to("npu")
        call = call.with_tensors(lambda tensor: tensor.to("npu"))
    exported = Exported(str(Path(spec.output).resolve()), spec.exporter)
    path = Path(exported.file)
    with branches_found(exported):
        _export(torch, call, Path(spec.staging, path.name), spec)
    for made in sorted(Path(spec.staging).iterdir(), reverse=True):  # its weights first
        made.replace(path.parent / made.name)
    result.exports.append(exported)
    examine(exported, path, call, spec)
    if exported.opset != spec.opset:
        exported.findings.append(_other_opset(exported.opset, spec))


def _check_opset(number: int) -> None:
    from onnx.defs import onnx_opset_version

    if number > onnx_opset_version():
        raise UsageError(
            f"--opset {number}: this onnx knows the opsets up to {onnx_opset_version()}"
        )


def _other_opset(written: int, spec: Spec) -> Finding:
    other = "" if spec.exporter == TRACE else ", or --exporter trace, which writes older ones"
    return Finding(
        "other-opset",
        f"the exporter wrote opset {written}, not {spec.opset}",
        f"ask for --opset {written}{other}",
    )


def _export(torch: Any, call: Any, path: Path, spec: Spec) -> None:
    from cuda2npu.export.arguments import dynamic_axes, dynamic_shapes
    from cuda2npu.export.shapes import axis

    tensors = call.tensors()
    axes = dynamic_axes(tensors, [axis(text) for text in spec.dynamic])
    options = (
        {"dynamo": True, "dynamic_shapes": dynamic_shapes(call, axes)}
        if spec.exporter == DYNAMO
        else {"dynamo": False, "dynamic_axes": axes}
    )
    torch.onnx.export(
        call.module,
        call.args,
        str(path),
        kwargs=call.kwargs,
        input_names=list(tensors),
        opset_version=spec.opset,
        verbose=False,
        **options,
    )

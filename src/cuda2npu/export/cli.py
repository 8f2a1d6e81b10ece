"""The options of ``export``. Read at every start, so it imports nothing heavy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cuda2npu.model import UsageError
from cuda2npu.report.usage import usage_errors
from cuda2npu.smoke.cli import Arguments, Cosine, MaxAbs, Timeout

if TYPE_CHECKING:
    from cuda2npu.export.atc import Build
    from cuda2npu.export.spec import Spec

_FILE = "model.onnx"
_OPSET = 18

Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="module:callable or file.py:callable that gives (module, inputs), or a script.",
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(metavar="SHAPE", help="1x3x224x224:float32,ids=1x16:int64:30522, or repeated."),
]
Dynamic = Annotated[
    list[str] | None,
    typer.Option(metavar="AXIS", help="x:0=batch; batch is the first axis of every input."),
]
SizesOf = Annotated[
    list[str] | None,
    typer.Option("--sizes", metavar="LIST", help="Of a dynamic axis: batch=1,2,4 or batch=1~16."),
]
Opset = Annotated[
    int | None, typer.Option(metavar="N", min=7, help=f"Of the file; {_OPSET}. ATC knows 8 to 18.")
]
Exporter = Annotated[
    str | None, typer.Option(metavar="NAME", help="dynamo (torch.export; default) or trace.")
]
Seed = Annotated[
    int | None, typer.Option(metavar="N", help="Of the random draws of a callable; 0.")
]
File = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE.onnx", help=f"Of a callable; {_FILE}."),
]
Device = Annotated[str, typer.Option(metavar="NAME", help="cpu; or npu, which never falls back.")]
Soc = Annotated[
    str | None, typer.Option(metavar="NAME", help="The chip to compile for, such as Ascend910B1.")
]
Precision = Annotated[
    str, typer.Option("--precision-mode", metavar="MODE", help="Of atc: fp16, origin, …")
]
JobType = Annotated[int, typer.Option(metavar="N", help="aoe tunes 1 subgraphs, 2 operators.")]
Compile = Annotated[
    bool | None,
    typer.Option("--compile/--no-compile", help="Run atc; by default where it is found."),
]
Tune = Annotated[bool, typer.Option("--tune", help="Run aoe as well, on the NPU of this machine.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]


def export(
    target: Target,
    arguments: Arguments = None,
    inputs: Inputs = None,
    dynamic: Dynamic = None,
    sizes: SizesOf = None,
    opset: Opset = None,
    exporter: Exporter = None,
    output: File = None,
    device: Device = "cpu",
    soc: Soc = None,
    precision: Precision = "",
    job_type: JobType = 2,
    compile: Compile = None,
    tune: Tune = False,
    cosine: Cosine = 0.9999,
    max_abs: MaxAbs = 1e-3,
    timeout: Timeout = 600.0,
    seed: Seed = None,
    as_json: AsJson = False,
) -> None:
    """Export a module to ONNX, compare the file with it, and write the commands for atc and aoe.

    Exit 0: good, 1: differs or findings, 2: could not run.
    """
    from cuda2npu.export.command import Request, run_export
    from cuda2npu.export.spec import Spec

    spec = Spec(
        target,
        tuple(arguments or ()),
        str(output or ("" if ":" not in target else _FILE)),
        device=device,
        inputs=tuple(part for text in inputs or () for part in text.split(",")),
        dynamic=tuple(dynamic or ()),
        sizes=tuple(sizes or ()),
        opset=_OPSET if opset is None else opset,
        exporter=exporter or "dynamo",
        seed=seed or 0,
        cosine=cosine,
        max_abs=max_abs,
    )
    own = {"opset": opset, "exporter": exporter, "seed": seed, "output": output}
    with usage_errors():
        _check_kind(spec, **own, inputs=inputs, dynamic=dynamic)
        build = _build(spec, soc, precision, job_type)
    raise typer.Exit(run_export(Request(spec, build, timeout, compile, tune), as_json))


def _check_kind(spec: Spec, **own: object) -> None:
    """Raise UsageError for what would go unheard: ``own`` are the options of callables."""
    given = [f"--{name}" for name, value in own.items() if value is not None]
    if spec.is_script and given:
        raise UsageError(
            f"{spec.target}: is a script, whose own calls say what is exported and how; for a "
            f"callable alone: {', '.join(given)}"
        )
    if spec.arguments and not spec.is_script:
        raise UsageError(f"{spec.target}: a callable is given no arguments, and -- has some")


def _build(spec: Spec, soc: str | None, precision: str, job: int) -> Build:
    """How to compile; raises UsageError for whatever cannot be meant, before anything runs."""
    from cuda2npu.export import shapes
    from cuda2npu.export.atc import Build
    from cuda2npu.export.spec import DEVICES, EXPORTERS
    from cuda2npu.running.inputs import drawn

    if spec.device not in DEVICES:
        raise UsageError(f"--device {spec.device}: is neither {' nor '.join(DEVICES)}")
    if spec.exporter not in EXPORTERS:
        raise UsageError(f"--exporter {spec.exporter}: is neither {' nor '.join(EXPORTERS)}")
    for text in spec.inputs:
        drawn(text)
    for text in spec.dynamic:
        shapes.axis(text)
    return Build(_chip(soc), precision, shapes.sizes(spec.sizes), job)


def _chip(name: str | None) -> str:
    from cuda2npu.simulator import SimulatorError
    from cuda2npu.simulator.environment import simulation

    try:
        return "" if name is None else simulation(chip=name).chip
    except SimulatorError as error:
        raise UsageError(f"--soc {name}: {error}") from None


def register(app: typer.Typer) -> None:
    """Give the command to the application."""
    app.command()(export)

"""The options of ``smoke`` and ``capture``. Read at every start, so it imports nothing heavy."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import Annotated

import typer

from cuda2npu.config import Config, Settings, configure
from cuda2npu.model import UsageError
from cuda2npu.report.usage import usage_errors

Script = Annotated[
    str,
    typer.Argument(metavar="SCRIPT", help="The original CUDA script; with -m, a module's name."),
]
AsModule = Annotated[bool, typer.Option("-m", help="Run SCRIPT as a module, as python -m does.")]
Arguments = Annotated[
    list[str] | None, typer.Argument(metavar="-- ARGS…", help="The script's own arguments.")
]
Steps = Annotated[
    int,
    typer.Option(metavar="N", min=0, help="Optimizer steps to run; 0 is to the script's end."),
]


def _number(value: float) -> float:
    if not isfinite(value):
        raise typer.BadParameter(f"{value} is no number to compare with")
    return value


Timeout = Annotated[
    float,
    typer.Option(metavar="S", min=1, callback=_number, help="Seconds that each run may take."),
]
Cosine = Annotated[
    float,
    typer.Option(min=-1, max=1, callback=_number, help="Least cosine similarity of a tensor."),
]
MaxAbs = Annotated[
    float, typer.Option(min=0, callback=_number, help="Largest absolute error of a value.")
]
MeanAbs = Annotated[
    float, typer.Option(min=0, callback=_number, help="Mean error that is pointed out.")
]
Seed = Annotated[int, typer.Option(metavar="N", help="Seed of all random draws, in both runs.")]
Processes = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Start N processes, as torchrun does.")
]
Devices = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Devices where they are simulated; N of --nproc, or 1."),
]
Device = Annotated[str, typer.Option(metavar="NAME", help="npu, which never falls back.")]
NoDropout = Annotated[bool, typer.Option("--no-dropout", help="Turn dropout off in both runs.")]

Reference = Annotated[Path | None, typer.Option(metavar="DIR", help="Compare with this capture.")]
Rewritten = Annotated[
    Path | None, typer.Option(metavar="PATH", help="Run this file or folder as rewritten.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]
Release = Annotated[
    str | None,
    typer.Option("--torch-npu", metavar="RELEASE", help="The installed one by default."),
]
Numerics = Annotated[
    bool | None, typer.Option("--preserve-numerics/--change-numerics", help="As for rewrite.")
]
Unsafe = Annotated[bool | None, typer.Option("--unsafe/--no-unsafe", help="As for rewrite.")]
Page = Annotated[
    Path | None,
    typer.Option(metavar="FILE.html", help="Write the report as one page."),
]


def smoke(
    script: Script,
    arguments: Arguments = None,
    module: AsModule = False,
    steps: Steps = 5,
    reference: Reference = None,
    rewritten: Rewritten = None,
    nproc: Processes = None,
    devices: Devices = None,
    device: Device = "npu",
    timeout: Timeout = 600.0,
    no_dropout: NoDropout = False,
    seed: Seed = 0,
    cosine: Cosine = 0.99,
    max_abs: MaxAbs = 0.01,
    mean_abs: MeanAbs = 1e-4,
    as_json: AsJson = False,
    report: Page = None,
    preserve_numerics: Numerics = None,
    unsafe: Unsafe = None,
    torch_npu: Release = None,
) -> None:
    """Run the rewritten script on an NPU, real or simulated, and compare it with the original.

    Exit 0: match, 1: differs, 2: could not run.
    """
    config = _config(script, preserve_numerics, unsafe, torch_npu, device)
    _check_installed("smoke")
    from cuda2npu.smoke.command import installed_release, run_smoke
    from cuda2npu.smoke.spec import Tolerance
    from cuda2npu.smoke.stage import Request

    request = Request(
        Path(script),
        tuple(arguments or ()),
        steps,
        timeout,
        seed,
        not no_dropout,
        module=module,
        nproc=nproc or 0,
        devices=devices or 0,
        reference=reference,
        rewritten=rewritten,
        tolerance=Tolerance(cosine, max_abs, mean_abs),
        options=config.options if torch_npu else installed_release(config.options),
    )
    raise typer.Exit(run_smoke(request, as_json, report))


def capture(
    script: Script,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Where the reference is kept.")
    ],
    arguments: Arguments = None,
    module: AsModule = False,
    steps: Steps = 5,
    nproc: Processes = None,
    devices: Devices = None,
    timeout: Timeout = 600.0,
    no_dropout: NoDropout = False,
    seed: Seed = 0,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the capture that DIR holds already.")
    ] = False,
) -> None:
    """Run the original script, on CUDA when there is a GPU, and keep what it computes.

    Exit 0: kept, 2: could not run.
    """
    _check_installed("capture")
    from cuda2npu.smoke.command import run_capture
    from cuda2npu.smoke.stage import Request

    request = Request(
        Path(script),
        tuple(arguments or ()),
        steps,
        timeout,
        seed,
        not no_dropout,
        module=module,
        nproc=nproc or 0,
        devices=devices or 0,
    )
    raise typer.Exit(run_capture(request, output, force))


def _check_installed(extra: str) -> None:
    from cuda2npu.smoke.npu import check_installed
    from cuda2npu.smoke.spec import SmokeError

    with usage_errors():
        try:
            check_installed(extra)
        except SmokeError as error:
            raise UsageError(str(error)) from None


def _config(
    script: str, numerics: bool | None, unsafe: bool | None, release: str | None, device: str
) -> Config:
    with usage_errors():
        if device != "npu":
            raise UsageError(f"--device {device}: is not npu, the one device that is compared")
        settings = Settings(preserve_numerics=numerics, unsafe=unsafe, torch_npu=release)
        return configure(settings, script)


def register(app: typer.Typer) -> None:
    """Give the commands to the application."""
    app.command()(smoke)
    app.command()(capture)

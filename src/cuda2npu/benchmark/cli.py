"""The options of ``bench``. Read at every start, so it imports nothing heavy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cuda2npu.model import UsageError
from cuda2npu.report.usage import usage_errors

TargetName = Annotated[
    str | None,
    typer.Argument(
        metavar="SCRIPT_OR_FUNCTION",
        help="train.py, path/to/file.py:function or package.module:function.",
        show_default=False,
    ),
]
Arguments = Annotated[
    list[str] | None, typer.Argument(metavar="-- ARGS…", help="The script's own arguments.")
]
Device = Annotated[
    str, typer.Option(metavar="NAME", help="npu, cuda or cpu; the best there is by default.")
]
Warmup = Annotated[
    int, typer.Option(metavar="N", min=0, help="Iterations after the first, not measured.")
]
Iterations = Annotated[int, typer.Option(metavar="N", min=1, help="Iterations that are measured.")]
Batch = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Samples in an iteration, for samples/s.")
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(metavar="SHAPES", help="What a factory's module is called with: 8x64:float16,…"),
]
Timeout = Annotated[float, typer.Option(metavar="S", min=1, help="Seconds that the run may take.")]
Dry = Annotated[bool, typer.Option("--dry-run", help="Only see that it runs; tell no times.")]
Compare = Annotated[
    tuple[Path, Path] | None,
    typer.Option(metavar="A.json B.json", help="Compare two saved results instead: B/A."),
]
Saved = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE.json", help="Save the result.")
]
Page = Annotated[Path | None, typer.Option(metavar="FILE.html", help="Write a page with charts.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print as JSON.")]


def bench(
    target: TargetName = None,
    arguments: Arguments = None,
    device: Device = "",
    warmup: Warmup = 10,
    iterations: Iterations = 100,
    batch: Batch = None,
    inputs: Inputs = None,
    timeout: Timeout = 600.0,
    dry_run: Dry = False,
    compare: Compare = None,
    output: Saved = None,
    report: Page = None,
    as_json: AsJson = False,
) -> None:
    """Measure how fast a script or function is on a device, or compare two saved results.

    Exit 0: done, 2: could not be measured or compared.
    """
    from cuda2npu.benchmark.command import run_bench, run_compare
    from cuda2npu.benchmark.stage import Request

    with usage_errors():
        if compare is not None:
            if target is not None or output is not None or dry_run:
                raise UsageError(
                    "--compare takes two saved results; no script, --output or --dry-run goes "
                    "with it"
                )
            raise typer.Exit(run_compare(*compare, as_json, report))
        if not target:
            raise UsageError("name a script or a function, or --compare A.json B.json")
        if dry_run and (output is not None or report is not None):
            raise UsageError(
                "--dry-run tells no times, so that there is nothing for --output and --report"
            )
        request = Request(
            target,
            tuple(arguments or ()),
            device,
            warmup,
            iterations,
            batch,
            ",".join(inputs or ()),
            timeout,
            dry_run,
        )
        raise typer.Exit(run_bench(request, as_json, output, report))


def register(app: typer.Typer) -> None:
    """Give the command to the application."""
    app.command()(bench)

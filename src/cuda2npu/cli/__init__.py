"""The command line. Everything that is not needed by every call is imported late."""

from __future__ import annotations

from typing import Annotated

import typer

from cuda2npu import __version__
from cuda2npu.benchmark.cli import register as register_bench
from cuda2npu.cli.convert import check, rewrite
from cuda2npu.cli.others import rules, simulate
from cuda2npu.doctor.cli import register as register_doctor
from cuda2npu.export.cli import register as register_export
from cuda2npu.smoke.cli import register as register_smoke

app = typer.Typer(
    help="Move PyTorch code from CUDA to Huawei Ascend NPUs (torch_npu).",
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"cuda2npu {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version.")
    ] = False,
) -> None:
    pass


app.command()(check)
app.command()(rewrite)
app.command()(rules)
app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})(
    simulate
)
register_smoke(app)
register_doctor(app)
register_export(app)
register_bench(app)


def main() -> None:
    """The entry point."""
    app()

"""The options of ``doctor``. Read at every start, so it imports nothing heavy."""

from __future__ import annotations

import sys
from math import isfinite
from typing import Annotated

import typer

from cuda2npu.report.usage import usage_errors


def _seconds(value: float) -> float:
    if not isfinite(value):
        raise typer.BadParameter(f"{value} is no number of seconds")
    return value


def _program(path: str) -> str:
    if not path:
        raise typer.BadParameter("is empty; name a Python, or leave the option out")
    return path


def doctor(
    python: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            callback=_program,
            show_default=False,
            help="The Python to look at; the one that runs this.",
        ),
    ] = sys.executable,
    timeout: Annotated[
        float,
        typer.Option(
            metavar="S", min=1, callback=_seconds, help="Seconds that using the NPU may take."
        ),
    ] = 120.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Say whether this machine can run NPU code, and what to do where it cannot.

    Exit 0: it can, 1: something is wrong.
    """
    from cuda2npu.doctor.command import run_doctor

    with usage_errors():
        code = run_doctor(python, timeout, as_json)
    raise typer.Exit(code)


def register(app: typer.Typer) -> None:
    """Give the command to the application."""
    app.command()(doctor)

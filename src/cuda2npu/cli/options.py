"""Options that several commands share, and what their values mean."""

from __future__ import annotations

from typing import Annotated

import typer

from cuda2npu.config import Config, Settings, configure
from cuda2npu.model import UsageError

FINDINGS = 1

Paths = Annotated[list[str], typer.Argument(metavar="PATH", help="Files and folders; - is stdin.")]
Select = Annotated[
    list[str] | None,
    typer.Option(metavar="CODES", help="Only these rules: NPU101,NPU2 or repeated."),
]
ExtendSelect = Annotated[
    list[str] | None,
    typer.Option(metavar="CODES", help="Also these, some of which are off by default: NPU7."),
]
Ignore = Annotated[
    list[str] | None,
    typer.Option(metavar="CODES", help="Not these rules."),
]
PreserveNumerics = Annotated[
    bool | None,
    typer.Option(
        "--preserve-numerics/--change-numerics",
        help="Report edits that change results instead of making them.",
    ),
]
Unsafe = Annotated[
    bool | None,
    typer.Option("--unsafe/--no-unsafe", help="Also make edits that are only probably right."),
]
TargetName = Annotated[
    str | None,
    typer.Option("--target", metavar="NAME", help="npu: write NPU code; shim: only load the shim."),
]
Release = Annotated[
    str | None,
    typer.Option("--torch-npu", metavar="RELEASE", help="The torch_npu release to write for."),
]
Chip = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Also what this chip does not support: A2, Ascend910B1."),
]
ExcludeGlobs = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude", metavar="GLOB", help="Leave these out, as .gitignore; named files, too."
    ),
]
ForceExclude = Annotated[
    bool | None,
    typer.Option(
        "--force-exclude/--no-force-exclude",
        help="Do named files as those of a folder: leave out vendored, generated, unknown ones.",
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", "-j", metavar="N", help="Worker processes; the default is all cores."),
]
BaselineFile = Annotated[
    str | None,
    typer.Option("--baseline", metavar="FILE", help="Leave out the findings that it holds."),
]
WriteBaseline = Annotated[
    bool, typer.Option("--write-baseline", help="Write the findings to the baseline. Exit 0.")
]
DiffBase = Annotated[
    str | None,
    typer.Option(metavar="REV", help="Only findings on lines changed in git since this commit."),
]
ExecutorUrl = Annotated[
    str | None,
    typer.Option("--executor", metavar="dask://HOST:PORT", help="Use a Dask cluster's workers."),
]
StdinName = Annotated[
    str, typer.Option("--stdin-filename", metavar="NAME", help="What to call stdin in messages.")
]
Color = Annotated[str, typer.Option(metavar="WHEN", help="auto, always or never.")]


def configured(settings: Settings, paths: list[str], stdin_name: str) -> Config:
    if is_stdin(paths):
        return configure(settings, "." if stdin_name == "<stdin>" else stdin_name)
    return configure(settings, paths[0])


def is_stdin(paths: list[str]) -> bool:
    if "-" in paths and len(paths) > 1:
        raise UsageError("- for stdin stands alone, without other paths")
    return paths == ["-"]


def as_tuple(values: list[str] | None) -> tuple[str, ...] | None:
    return tuple(values) if values else None


def split(values: list[str] | None) -> tuple[str, ...] | None:
    """Values of an option that may be repeated and may hold commas."""
    if not values:
        return None
    return tuple(part.strip() for value in values for part in value.split(",") if part.strip())

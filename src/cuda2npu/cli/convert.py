"""``check`` and ``rewrite``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cuda2npu import files
from cuda2npu.cli.options import (
    Color,
    ExcludeGlobs,
    Ignore,
    Jobs,
    Paths,
    PreserveNumerics,
    Release,
    Select,
    StdinName,
    TargetName,
    Unsafe,
    as_tuple,
    configured,
    is_stdin,
    split,
    usage_errors,
)
from cuda2npu.cli.run import Run
from cuda2npu.config import Settings
from cuda2npu.model import UsageError
from cuda2npu.project import Mode
from cuda2npu.report import check_format, reporter


def check(
    paths: Paths,
    format: Annotated[
        str, typer.Option(metavar="NAME", help="full, concise, json or github.")
    ] = "full",
    select: Select = None,
    ignore: Ignore = None,
    preserve_numerics: PreserveNumerics = None,
    unsafe: Unsafe = None,
    target: TargetName = None,
    torch_npu: Release = None,
    exclude: ExcludeGlobs = None,
    jobs: Jobs = None,
    stdin_filename: StdinName = "<stdin>",
    color: Color = "auto",
) -> None:
    """Report CUDA-only code and change nothing. Exit 0: none, 1: findings, 2: error."""
    with usage_errors():
        check_format(format)
        settings = Settings(
            split(select), split(ignore), preserve_numerics, unsafe, target, torch_npu,
            as_tuple(exclude), jobs,
        )  # fmt: skip
        run = Run(Mode.CHECK, configured(settings, paths, stdin_filename), color)
        show = reporter(format, run.stdout_color)
        if is_stdin(paths):
            run.stdin(stdin_filename, lambda outcome: run.stdout.write(show.add(outcome)))
        else:
            plan = files.discover(paths, run.config.exclude)
            run.all(plan, lambda outcome: run.stdout.write(show.add(outcome)))
        run.stdout.write(show.end())
    run.end()


def rewrite(
    paths: Paths,
    diff: Annotated[bool, typer.Option("--diff", help="Print a patch and write nothing.")] = False,
    output: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write a converted copy to this folder.")
    ] = None,
    select: Select = None,
    ignore: Ignore = None,
    preserve_numerics: PreserveNumerics = None,
    unsafe: Unsafe = None,
    target: TargetName = None,
    torch_npu: Release = None,
    exclude: ExcludeGlobs = None,
    jobs: Jobs = None,
    stdin_filename: StdinName = "<stdin>",
    color: Color = "auto",
) -> None:
    """Rewrite files in place. Exit 0: done, 2: a file could not be done, all others are."""
    with usage_errors():
        if output is not None and (diff or is_stdin(paths)):
            raise UsageError("--output goes neither with --diff nor with stdin")
        settings = Settings(
            split(select), split(ignore), preserve_numerics, unsafe, target, torch_npu,
            as_tuple(exclude), jobs,
        )  # fmt: skip
        mode = Mode.DIFF if diff else Mode.WRITE
        run = Run(mode, configured(settings, paths, stdin_filename), color)
        if is_stdin(paths):
            run.stdin(stdin_filename, run.show_diff if diff else run.show_source)
        elif output is not None:
            run.all(files.plan_output(paths, run.config.exclude, output), run.show_remaining)
        else:
            plan = files.discover(paths, run.config.exclude)
            run.all(plan, run.show_diff if diff else run.show_remaining)
    run.end()

"""``check`` and ``rewrite``."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cuda2npu import files
from cuda2npu.cli.narrow import Narrowed
from cuda2npu.cli.options import (
    BaselineFile,
    Chip,
    Color,
    DiffBase,
    ExcludeGlobs,
    ExecutorUrl,
    ExtendSelect,
    ForceExclude,
    Ignore,
    Jobs,
    Paths,
    PreserveNumerics,
    Release,
    Select,
    StdinName,
    TargetName,
    Unsafe,
    WriteBaseline,
    as_tuple,
    configured,
    is_stdin,
    split,
)
from cuda2npu.cli.run import Run
from cuda2npu.config import Config, Settings
from cuda2npu.files import Plan
from cuda2npu.model import UsageError
from cuda2npu.project import Mode, Outcome
from cuda2npu.report import Reporter, check_format, reporter
from cuda2npu.report.usage import usage_errors

if TYPE_CHECKING:
    from cuda2npu.report.page import Page

_NAMED = 3
"""More paths than this are not named in the heading of a page."""


def check(
    paths: Paths,
    format: Annotated[
        str, typer.Option(metavar="NAME", help="full, concise, json, github or sarif.")
    ] = "full",
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Also write the findings as a page to look at."),
    ] = None,
    select: Select = None,
    extend_select: ExtendSelect = None,
    ignore: Ignore = None,
    preserve_numerics: PreserveNumerics = None,
    unsafe: Unsafe = None,
    target: TargetName = None,
    torch_npu: Release = None,
    chip: Chip = None,
    exclude: ExcludeGlobs = None,
    force_exclude: ForceExclude = None,
    jobs: Jobs = None,
    executor: ExecutorUrl = None,
    baseline: BaselineFile = None,
    write_baseline: WriteBaseline = False,
    diff_base: DiffBase = None,
    stdin_filename: StdinName = "<stdin>",
    color: Color = "auto",
) -> None:
    """Report CUDA-only code and change nothing. Exit 0: none, 1: findings, 2: error."""
    with usage_errors(), ExitStack() as stack:
        check_format(format)
        settings = Settings(
            split(select), split(ignore), preserve_numerics, unsafe, target, torch_npu,
            as_tuple(exclude), jobs, baseline, force_exclude, split(extend_select), chip,
        )  # fmt: skip
        config = configured(settings, paths, stdin_filename)
        narrowed = Narrowed(config, paths, diff_base, write_baseline)
        run = Run(
            Mode.CHECK, config, color, keep=narrowed.keep, sources=report is not None,
            survey=report is not None or format == "json",
        )  # fmt: skip
        page = stack.enter_context(_page(report, paths, config)) if report is not None else None
        show = reporter(format, run.stdout_color, run.summary.inventory, new=narrowed.is_new)
        plan = None
        if not is_stdin(paths):
            run.use(executor)
            plan = files.discover(paths, config.exclude)
        _tell(run, narrowed, show, page, plan, stdin_filename)
    run.end()


def _tell(
    run: Run,
    narrowed: Narrowed,
    show: Reporter,
    page: Page | None,
    plan: Plan | None,
    stdin_name: str,
) -> None:
    """Do the files of a plan, or stdin without one, and report what is to be told."""

    def tell(outcome: Outcome) -> None:
        run.stdout.write(show.add(outcome))
        if page is not None:
            page.add(outcome)

    if plan is None:
        run.stdin(stdin_name, tell)
    else:
        run.all(narrowed.plan(plan), tell)
    run.stdout.write(show.end())
    if not run.stopped:
        run.accepted = narrowed.end(run.summary)
        if page is not None:
            page.end(run.summary.inventory, run.summary.errors)


def _page(path: Path, paths: list[str], config: Config) -> Page:
    from cuda2npu.report.page import Page

    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    options = config.options
    subtitle = f"for torch_npu {options.torch_npu}, target {options.target.value}"
    names = (Path.cwd().name if name == "." else name for name in paths[:_NAMED])
    return Page(path, ", ".join(names) + more, subtitle)


def rewrite(
    paths: Paths,
    diff: Annotated[bool, typer.Option("--diff", help="Print a patch and write nothing.")] = False,
    output: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write a converted copy to this folder.")
    ] = None,
    select: Select = None,
    extend_select: ExtendSelect = None,
    ignore: Ignore = None,
    preserve_numerics: PreserveNumerics = None,
    unsafe: Unsafe = None,
    target: TargetName = None,
    torch_npu: Release = None,
    chip: Chip = None,
    exclude: ExcludeGlobs = None,
    force_exclude: ForceExclude = None,
    jobs: Jobs = None,
    executor: ExecutorUrl = None,
    stdin_filename: StdinName = "<stdin>",
    color: Color = "auto",
) -> None:
    """Rewrite files in place. Exit 0: done, 2: a file could not be done, all others are."""
    with usage_errors():
        if output is not None and (diff or is_stdin(paths)):
            raise UsageError("--output goes neither with --diff nor with stdin")
        settings = Settings(
            split(select), split(ignore), preserve_numerics, unsafe, target, torch_npu,
            as_tuple(exclude), jobs, None, force_exclude, split(extend_select), chip,
        )  # fmt: skip
        mode = Mode.DIFF if diff else Mode.WRITE
        run = Run(mode, configured(settings, paths, stdin_filename), color)
        if is_stdin(paths):
            run.stdin(stdin_filename, run.show_diff if diff else run.show_source)
        elif output is not None:
            run.use(executor)
            run.all(files.plan_output(paths, run.config.exclude, output), run.show_remaining)
        else:
            run.use(executor)
            plan = files.discover(paths, run.config.exclude)
            run.all(plan, run.show_diff if diff else run.show_remaining)
    run.end()

"""The commands ``smoke`` and ``capture``, from their options to their exit codes."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from functools import partial
from io import StringIO
from pathlib import Path

from rich.console import Console

from cuda2npu.model import Options, UsageError
from cuda2npu.report import BROKEN_PIPE, Output
from cuda2npu.report.page_file import PageFile
from cuda2npu.report.usage import ERROR
from cuda2npu.running.told import reported, say
from cuda2npu.smoke.data import as_data
from cuda2npu.smoke.stage import Report, Request, capture, smoke


def installed_release(options: Options) -> Options:
    """Options for the release of torch_npu that is installed, which is the one that runs."""
    from dataclasses import replace
    from importlib.metadata import PackageNotFoundError, version

    from cuda2npu.releases import resolve_release

    try:
        return replace(options, torch_npu=str(resolve_release(version("torch_npu"))))
    except (PackageNotFoundError, ValueError):
        return options


def run_smoke(request: Request, as_json: bool, page: Path | None) -> int:
    """Run the stage and print what came of it; the exit code."""
    errors = Console(stderr=True, emoji=False)
    with ExitStack() as stack:
        try:
            file = None if page is None else stack.enter_context(PageFile(page))
            report = reported(lambda tell: smoke(request, tell, partial(say, errors)), errors)
            if isinstance(report, int):
                return report
            output = Output(sys.stdout)
            output.write(_text(report, as_json, errors.is_terminal))
            if file is not None:
                from cuda2npu.smoke.page import page_of

                file.write(page_of(report))
        except UsageError as error:
            say(errors, f"error: {error}")
            return ERROR
    return BROKEN_PIPE if output.broken else report.code


def _text(report: Report, as_json: bool, told: bool) -> str:
    """``told``: the terminal, if the text goes to one, says already that it is simulated."""
    if as_json:
        return json.dumps(as_data(report), indent=2) + "\n"
    from cuda2npu.smoke.table import NARROWEST, show

    # What cannot be written is told by Output, not by an error in the middle of a table.
    text = StringIO()
    terminal = Console(emoji=False)
    colored, width = terminal.is_terminal, max(terminal.width, NARROWEST)
    console = Console(file=text, emoji=False, force_terminal=colored, width=width)
    show(report, console, told and colored)
    return text.getvalue()


def run_capture(request: Request, target: Path, force: bool) -> int:
    """Keep a reference; the exit code."""
    errors = Console(stderr=True, emoji=False)
    report = reported(lambda tell: capture(request, target, force, tell), errors)
    if isinstance(report, int):
        return report
    if report.failures:
        from cuda2npu.smoke.table import show_failures

        show_failures(report, errors)
        say(errors, f"could not run; nothing is kept in {target}")
        return ERROR
    ranks = f", {request.nproc} ranks" if request.nproc else ""
    try:
        text = f"{target}: {report.reference_name}, {report.steps} steps{ranks}\n"
        Output(sys.stdout).write(text)
    except UsageError as error:
        say(errors, f"error: {error}")
        return ERROR
    return 0

"""The commands ``smoke`` and ``capture``, from their options to their exit codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from io import StringIO
from pathlib import Path

from rich.console import Console

from cuda2npu.model import Options, UsageError
from cuda2npu.report import BROKEN_PIPE, Output
from cuda2npu.report.page_file import PageFile
from cuda2npu.smoke.data import as_data
from cuda2npu.smoke.process import signals_stop
from cuda2npu.smoke.spec import SmokeError
from cuda2npu.smoke.stage import Report, Request, Tell, capture, smoke

ERROR = 2
INTERRUPTED = 130


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
    errors = Console(stderr=True)
    with ExitStack() as stack:
        try:
            file = None if page is None else stack.enter_context(PageFile(page))
            report = _reported(lambda tell: smoke(request, tell, partial(_say, errors)), errors)
            if isinstance(report, int):
                return report
            output = Output(sys.stdout)
            output.write(_text(report, as_json, errors.is_terminal))
            if file is not None:
                _write_page(report, file)
        except UsageError as error:
            _say(errors, f"error: {error}")
            return ERROR
    return BROKEN_PIPE if output.broken else report.code


def _text(report: Report, as_json: bool, told: bool) -> str:
    """``told``: the terminal, if the text goes to one, says already that it is simulated."""
    if as_json:
        return json.dumps(as_data(report), indent=2) + "\n"
    from cuda2npu.smoke.table import NARROWEST, show

    # What cannot be written is told by Output, not by an error in the middle of a table.
    text = StringIO()
    terminal = Console().is_terminal
    width = max(Console().width, NARROWEST)
    show(report, Console(file=text, force_terminal=terminal, width=width), told and terminal)
    return text.getvalue()


def _write_page(report: Report, file: PageFile) -> None:
    from cuda2npu.smoke.page import page_of

    try:
        file.draft.write_text(page_of(report), encoding="utf-8")
        file.put()
    except OSError as error:
        raise file.failed(error) from None


def _say(errors: Console, text: str) -> None:
    """On stderr, beside the state of the run if that is a terminal."""
    if errors.is_terminal:
        errors.print(text, markup=False, highlight=False, soft_wrap=True)
        return
    with suppress(UsageError):  # nowhere to say that there is nowhere to say it
        Output(sys.stderr).write(f"{text}\n")


def _reported(stage: Callable[[Tell], Report], errors: Console) -> Report | int:
    """The report of a stage that shows its progress; the exit code when it could not be run."""
    try:
        with signals_stop():
            if not errors.is_terminal:
                return stage(lambda _: None)
            with errors.status("starting") as status:
                return stage(status.update)
    except SmokeError as error:
        _say(errors, f"error: {error}")
        return ERROR
    except KeyboardInterrupt:
        _say(errors, "stopped; nothing is left running")
        return INTERRUPTED


def run_capture(request: Request, target: Path, force: bool) -> int:
    """Keep a reference; the exit code."""
    errors = Console(stderr=True)
    report = _reported(lambda tell: capture(request, target, force, tell), errors)
    if isinstance(report, int):
        return report
    if report.failures:
        from cuda2npu.smoke.table import show_failures

        show_failures(report, errors)
        _say(errors, f"could not run; nothing is kept in {target}")
        return ERROR
    ranks = f", {request.nproc} ranks" if request.nproc else ""
    try:
        text = f"{target}: {report.reference_name}, {report.steps} steps{ranks}\n"
        Output(sys.stdout).write(text)
    except UsageError as error:
        _say(errors, f"error: {error}")
        return ERROR
    return 0

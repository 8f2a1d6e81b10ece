"""The commands ``smoke`` and ``capture``, from their options to their exit codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from cuda2npu.model import Options
from cuda2npu.smoke.data import as_data
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

    def notice(text: str) -> None:
        errors.print(text, markup=False, highlight=False, soft_wrap=True)

    report = _reported(lambda tell: smoke(request, tell, notice), errors)
    if isinstance(report, int):
        return report
    if as_json:
        print(json.dumps(as_data(report), indent=2))
    else:
        from cuda2npu.smoke.table import show

        output = Console(soft_wrap=False)
        show(report, output, told=errors.is_terminal and output.is_terminal)
    return _write_page(report, page, errors)


def _write_page(report: Report, page: Path | None, errors: Console) -> int:
    if page is not None:
        from cuda2npu.smoke.page import page_of

        try:
            page.write_text(page_of(report), encoding="utf-8")
        except OSError as error:
            errors.print(f"error: {page}: cannot be written: {error.strerror}", markup=False)
            return ERROR
    return report.code


def _reported(stage: Callable[[Tell], Report], errors: Console) -> Report | int:
    """The report of a stage that shows its progress; the exit code when it could not be run."""
    try:
        if not errors.is_terminal:
            return stage(lambda _: None)
        with errors.status("starting") as status:
            return stage(status.update)
    except SmokeError as error:
        errors.print(f"error: {error}", markup=False, highlight=False, soft_wrap=True)
        return ERROR
    except KeyboardInterrupt:
        errors.print("stopped; nothing is left running")
        return INTERRUPTED


def run_capture(request: Request, target: Path, force: bool) -> int:
    """Keep a reference; the exit code."""
    errors = Console(stderr=True)
    report = _reported(lambda tell: capture(request, target, force, tell), errors)
    if isinstance(report, int):
        return report
    if report.failures:
        from cuda2npu.smoke.table import show

        show(report, Console(stderr=True))
        return ERROR
    ranks = f", {request.nproc} ranks" if request.nproc else ""
    print(f"{target}: {report.reference_name}, {report.steps} steps{ranks}")
    sys.stdout.flush()
    return 0

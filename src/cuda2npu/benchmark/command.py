"""The command ``bench``, from its options to its exit code."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from cuda2npu import writing
from cuda2npu.benchmark import show
from cuda2npu.benchmark.comparison import Comparison, compare
from cuda2npu.benchmark.page import comparison_page, result_page
from cuda2npu.benchmark.result import read_result
from cuda2npu.benchmark.stage import DryRun, Request, bench
from cuda2npu.model import UsageError
from cuda2npu.report import BROKEN_PIPE, Output
from cuda2npu.report.output_file import check_output
from cuda2npu.report.page_file import PageFile
from cuda2npu.report.usage import ERROR
from cuda2npu.running import RunError
from cuda2npu.running.told import reported, say


def run_bench(request: Request, as_json: bool, output: Path | None, page: Path | None) -> int:
    """Measure, save and print; the exit code."""
    errors = Console(stderr=True, emoji=False)
    try:
        with ExitStack() as stack:
            if output is not None:
                source = Path(request.target.rpartition(":")[0] or request.target)
                check_output("--output", output, (".json",), (source,))
            file = None if page is None else stack.enter_context(PageFile(page))
            found = reported(lambda tell: bench(request, tell), errors)
            if isinstance(found, int):
                return found
            if isinstance(found, DryRun):
                return _print(
                    _json({"dry_run": asdict(found)}) if as_json else show.dry_text(found)
                )
            if output is not None:
                _save(output, _json(found.as_data()))
            if file is not None:
                file.write(result_page(found))
            return _print(_json(found.as_data()) if as_json else show.result_text(found))
    except UsageError as error:
        say(errors, f"error: {error}")
        return ERROR


def run_compare(first: Path, second: Path, as_json: bool, page: Path | None) -> int:
    """Compare two saved results; the exit code, which is 2 where that would mean nothing."""
    errors = Console(stderr=True, emoji=False)
    try:
        with ExitStack() as stack:
            file = None if page is None else stack.enter_context(PageFile(page))
            found = compare(read_result(first), read_result(second))
            names = str(first), str(second)
            text = _json(_as_data(found)) if as_json else show.comparison_text(found, names)
            code = _print(text)
            if file is not None and not found.refusals:
                file.write(comparison_page(found, names))
    except (RunError, UsageError) as error:
        say(errors, f"error: {error}")
        return ERROR
    if found.refusals:
        say(errors, "error: the two results cannot be compared: " + "; ".join(found.refusals))
        return ERROR
    return code


def _as_data(found: Comparison) -> dict[str, object]:
    return {
        "a": found.a.as_data(),
        "b": found.b.as_data(),
        "ratios": [
            {
                "what": ratio.what,
                "unit": ratio.unit,
                "a": ratio.a,
                "b": ratio.b,
                "b_to_a": ratio.value,
                "a_to_b": ratio.inverse,
            }
            for ratio in found.ratios
        ],
        "warnings": found.warnings,
        "refusals": found.refusals,
    }


def _json(data: dict[str, object]) -> str:
    return json.dumps(data, indent=2) + "\n"


def _print(text: str) -> int:
    output = Output(sys.stdout)
    output.write(text)
    return BROKEN_PIPE if output.broken else 0


def _save(path: Path, text: str) -> None:
    try:
        with writing.temporary(path.parent) as name:
            Path(name).write_text(text, encoding="utf-8")
            writing.put_in_place(name, path)
    except OSError as error:
        raise UsageError(f"--output {path}: cannot be written: {error.strerror}") from None

"""A report on the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cuda2npu.smoke.data import SIMULATED, verdict
from cuda2npu.smoke.failure import Failure
from cuda2npu.smoke.outcome import Comparison, First, Row, Status
from cuda2npu.smoke.stage import Report
from cuda2npu.smoke.suspects import Edit

ROWS = 40
_STYLES = {Status.OK: "green", Status.POINTED: "yellow", Status.DIFFERS: "red"}
_COLORS = {"match": "green", "differs": "red", "could not run": "red"}


def show(report: Report, console: Console) -> None:
    """One table, what stands out in it, and the verdict last."""
    if report.simulated:
        console.print(f"[bold]{escape(SIMULATED)}[/bold]", highlight=False)
    for failure in report.failures:
        _show_failure(failure, console)
    if report.comparison is not None:
        console.print(_table(report.comparison.rows, report))
        for line in _findings(report, report.comparison):
            console.print(line, highlight=False)
    for note in report.notes[:20]:
        place = f"{_short(note.path)}:{note.line}: " if note.path else ""
        text = f"{place}{note.kind}: {note.message or note.name} ({note.count} times)"
        console.print(f"[yellow]note[/yellow] {escape(text)}", highlight=False)
    console.print(_verdict(report), highlight=False)


def _table(rows: list[Row], report: Report) -> Table:
    table = Table(title=escape(f"{report.request.script}: NPU against {report.reference_name}"))
    table.add_column("layer", overflow="fold")
    for name in ("calls", "cosine", "max abs", "mean abs", "rel L2"):
        table.add_column(name, justify="right")
    table.add_column("", overflow="fold")
    for row in (chosen := shown(rows)):
        table.add_row(*_cells(row))
    if len(chosen) < len(rows):
        table.caption = f"{len(rows) - len(chosen)} more layers are ok; --report shows all"
    return table


def shown(rows: list[Row], limit: int = ROWS) -> list[Row]:
    """What stands out first, when there are too many rows for a terminal."""
    if len(rows) <= limit:
        return rows
    notable = [row for row in rows if row.status is not Status.OK or row.kind != "layer"]
    rest = [row for row in rows if row not in notable]
    room = max(limit - len(notable), 0)
    chosen = {id(row) for row in (*notable[:limit], *rest[:room])}
    return [row for row in rows if id(row) in chosen]


def _cells(row: Row) -> Iterator[str]:
    metrics = row.metrics
    yield escape(row.name)
    yield str(row.calls)
    if metrics.compared and row.kind != "step":
        yield f"{metrics.cosine:.6f}"
        yield f"{metrics.max_abs:.2e}"
        yield f"{metrics.mean_abs:.2e}"
    else:
        yield from ("", "", "")
    yield f"{metrics.rel_l2:.2e}" if metrics.compared else ""
    style = _STYLES[row.status]
    text = row.status.value + ("" if row.status is Status.OK else ": " + "; ".join(row.reasons))
    yield f"[{style}]{escape(text)}[/{style}]"


def _findings(report: Report, comparison: Comparison) -> Iterator[str]:
    for problem in comparison.problems:
        yield f"[red]{escape(problem)}[/red]"
    if comparison.early is not None and comparison.first is not None:
        yield f"first pointed out: {escape(describe(comparison.early))}"
    if comparison.first is not None:
        yield f"[bold red]first difference[/bold red]: {escape(describe(comparison.first))}"
        for edit in report.suspects[:8]:
            yield f"  suspect: {escape(edit_text(edit))}"
        if not report.suspects:
            yield "  no edit that changes results is in its code"


def describe(first: First) -> str:
    place = first.layer or "the script itself"
    seen = "" if first.seen == first.layer else f" (seen at {first.seen})"
    text = f"; {first.text}" if first.text else ""
    return f"{place}{seen}, step {first.step}: {'; '.join(first.reasons)}{text}"


def edit_text(edit: Edit) -> str:
    code = f"{edit.code} " if edit.code else ""
    change = f"{edit.before} → {edit.after}" if edit.after else edit.before
    return f"{_short(edit.path)}:{edit.line} {code}{edit.message}: {change}"


def _show_failure(failure: Failure, console: Console) -> None:
    which = "the reference" if failure.which == "reference" else "the rewritten script on the NPU"
    console.print(
        f"[bold red]{which} failed[/bold red]: {escape(failure.summary)}", highlight=False
    )
    console.print(escape(failure.traceback.rstrip()), highlight=False)
    for pair in failure.pairs:
        console.print(f"  {escape(_short(pair.path))}:{pair.line or '(new line)'}", highlight=False)
        if pair.original.strip() != pair.rewritten.strip():
            console.print(f"    original   {escape(pair.original.strip())}", highlight=False)
        console.print(f"    rewritten  {escape(pair.rewritten.strip())}", highlight=False)
    if failure.cause is not None:
        cause = failure.cause
        console.print(f"[bold]cause[/bold]: {cause.name}: {escape(cause.text)}", highlight=False)
        console.print(f"[bold]cure[/bold]: {escape(cause.cure)}", highlight=False)


def _verdict(report: Report) -> str:
    text = verdict(report)
    total = report.comparison.total if report.comparison is not None else None
    figures = ""
    if total is not None:
        figures = f", worst cosine {total.cosine:.6f}, worst max abs {total.max_abs:.2e}"
    where = "simulated NPU" if report.simulated else "NPU"
    steps = f" after {report.steps} steps" if report.steps else ""
    return f"[bold {_COLORS[text]}]{text}[/] on the {where}{steps}{figures}"


def _short(path: str) -> str:
    place = Path(path)
    here = Path.cwd()
    return str(place.relative_to(here)) if place.is_relative_to(here) else path

"""A report on the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cuda2npu.smoke.data import verdict, verdict_in_words
from cuda2npu.smoke.failure import Failure
from cuda2npu.smoke.outcome import Comparison, First, Row, Status
from cuda2npu.smoke.spec import SIMULATED
from cuda2npu.smoke.stage import Report
from cuda2npu.smoke.suspects import Edit

ROWS = 40
REASONS = 10
_FIGURES = 60
"""The width of all columns but the first."""
NARROWEST = _FIGURES + 20
"""Columns of the terminal below which the table is not squeezed: its figures would go first."""
_IN_COLUMNS = ("cosine ", "max abs ", "mean abs ")
"""Reasons that the columns beside them show already."""
_STYLES = {Status.OK: "green", Status.POINTED: "yellow", Status.DIFFERS: "red"}
_WORDS = {Status.OK: "ok", Status.POINTED: "pointed", Status.DIFFERS: "differs"}
_COLORS = {"match": "green"}
"""Of verdicts; all others are red."""


def show(report: Report, console: Console, told: bool = False) -> None:
    """One table, what stands out in it, and the verdict last.

    ``told``: whoever reads it has just been told on the same terminal that it is simulated.
    """
    if report.simulated and not told:
        console.print(f"[bold]{escape(SIMULATED)}[/bold]", highlight=False, soft_wrap=True)
    show_failures(report, console)
    if report.comparison is not None:
        against = f"{report.request.script}: NPU against {report.reference_name}"
        console.print(escape(against), highlight=False, soft_wrap=True)
        console.print(_table(report.comparison.rows, console.width))
        for reason in list(_reasons(report.comparison.rows))[:REASONS]:
            console.print(escape(reason), highlight=False, soft_wrap=True)
        for line in _findings(report, report.comparison):
            console.print(line, highlight=False, soft_wrap=True)
    for note in report.notes[:20]:
        place = f"{_short(note.path)}:{note.line}: " if note.path else ""
        text = f"{place}{note.kind}: {note.message or note.name} ({note.count} times)"
        console.print(f"[yellow]note[/yellow] {escape(text)}", highlight=False, soft_wrap=True)
    for text in report.not_rewritten:
        console.print(f"[red]not rewritten[/red] {escape(text)}", highlight=False, soft_wrap=True)
    for text in left_behind(report):
        console.print(f"[red]left behind[/red] {escape(text)}", highlight=False, soft_wrap=True)
    console.print(_verdict(report), highlight=False, soft_wrap=True)


def _table(rows: list[Row], width: int) -> Table:
    name_width = max(width - _FIGURES, 20)
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False)
    table.add_column("layer", no_wrap=True)
    for name in ("calls", "cosine", "max abs", "mean abs", "rel L2"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for row in (chosen := shown(rows)):
        table.add_row(*_cells(row, name_width))
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


def _cells(row: Row, name_width: int) -> Iterator[str]:
    metrics = row.metrics
    long = len(row.title) > name_width
    yield escape("…" + row.title[1 - name_width :] if long else row.title)
    yield str(row.calls)
    if metrics.compared and row.kind != "step":
        yield f"{metrics.cosine:.6f}"
        yield f"{metrics.max_abs:.2e}"
        yield f"{metrics.mean_abs:.2e}"
    else:
        yield from ("", "", "")
    yield f"{metrics.rel_l2:.2e}" if metrics.compared else ""
    yield f"[{_STYLES[row.status]}]{_WORDS[row.status]}[/]"


def _reasons(rows: list[Row]) -> Iterator[str]:
    """Why rows differ, where the figures in their columns do not say it."""
    for row in rows:
        told = [reason for reason in row.reasons if not reason.startswith(_IN_COLUMNS)]
        if told and row.status is not Status.OK:
            yield f"{row.title}: {'; '.join(told)}"


def _findings(report: Report, comparison: Comparison) -> Iterator[str]:
    for problem in comparison.problems:
        yield f"[red]{escape(problem)}[/red]"
    for limit in comparison.limits:
        yield f"[yellow]{escape(limit)}[/yellow]"
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
    if first.rank is not None:
        place = f"rank {first.rank}, {place}"
    return f"{place}{seen}, step {first.step}: {'; '.join(first.reasons)}{text}"


def edit_text(edit: Edit) -> str:
    code = f"{edit.code} " if edit.code else ""
    return f"{_short(edit.path)}:{edit.line} {code}{edit.message}: {change(edit)}"


def change(edit: Edit) -> str:
    """The line as it was and as it is, as far as there is one."""
    return " → ".join(text for text in (edit.before, edit.after) if text)


def left_behind(report: Report) -> list[str]:
    """Files that explain why two runs part: the second did not begin as the first."""
    if report.code == 0:
        return []
    why = "the reference wrote it and the run on the NPU read it, so that the two began differently"
    cure = "let the script write below the working folder, which is put back between the runs"
    return [f"{_short(path)}: {why}; {cure}" for path in report.left_behind[:REASONS]]


def show_failures(report: Report, console: Console) -> None:
    for failure in (*report.failures, *report.went_on):
        _show_failure(failure, console)


def _show_failure(failure: Failure, console: Console) -> None:
    which = "the reference" if failure.which == "reference" else "the rewritten script on the NPU"
    for line in _failure_lines(failure, which):
        console.print(line, highlight=False, soft_wrap=True)


def _failure_lines(failure: Failure, which: str) -> Iterator[str]:
    what = "printed an error and went on" if failure.went_on else "failed"
    yield f"[bold red]{which} {what}[/bold red]: {escape(failure.summary)}"
    yield escape(failure.traceback.rstrip())
    for pair in failure.pairs:
        yield f"  {escape(_short(pair.path))}"
        if pair.original.strip():
            yield f"    original  {pair.line:>5}  {escape(pair.original.strip())}"
        if failure.which == "reference":
            continue
        yield f"    rewritten {pair.rewritten_line:>5}  {escape(pair.rewritten.strip())}"
    if failure.cause is not None:
        yield f"[bold]cause[/bold]: {failure.cause.name}: {escape(failure.cause.text)}"
        yield f"[bold]cure[/bold]: {escape(failure.cause.cure)}"


def _verdict(report: Report) -> str:
    text = verdict(report)
    comparison = report.comparison
    figures = ""
    if comparison is not None and comparison.rows and not comparison.nothing:
        total = comparison.total
        figures = f", worst cosine {total.cosine:.6f}, worst max abs {total.max_abs:.2e}"
    where = "simulated NPU" if report.simulated else "NPU"
    steps = f" after {report.steps} steps" if report.steps else ""
    if report.ranks:
        where += f", {len(report.ranks)} ranks"
    color = _COLORS.get(text, "red")
    return f"[bold {color}]{verdict_in_words(report)}[/] on the {where}{steps}{figures}"


def _short(path: str) -> str:
    place = Path(path)
    here = Path.cwd()
    return str(place.relative_to(here)) if place.is_relative_to(here) else path

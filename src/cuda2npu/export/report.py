"""What came of an export, on the terminal and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cuda2npu.export.spec import DIFFERS, Exported, Result, Row
from cuda2npu.smoke.spec import SIMULATED

_REASONS = 10
_COLORS = {"good": "green", "findings": "yellow"}


@dataclass(frozen=True, slots=True)
class Compiled:
    """What came of a command of CANN."""

    tool: str
    file: str
    """The compiled model; empty when there is none."""
    text: str = ""
    """Why there is none."""


@dataclass(slots=True)
class Report:
    """An export as a whole."""

    target: str
    result: Result = field(default_factory=Result)
    simulated: bool = False
    scripts: dict[str, str] = field(default_factory=dict)
    """By the file of a model: the script that compiles it."""
    compiled: list[Compiled] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        exports = self.result.exports
        if self.result.error or not exports:
            return "could not run"
        if any(each.differs for each in exports):
            return "differs"
        if any(not each.file for each in self.compiled):
            return "not compiled"
        return "findings" if any(each.findings for each in exports) else "good"

    @property
    def code(self) -> int:
        return {"could not run": 2, "good": 0}.get(self.verdict, 1)


def as_data(report: Report) -> dict[str, Any]:
    exports = [
        {**asdict(each), "script": report.scripts.get(each.file)} for each in report.result.exports
    ]
    return {
        "target": report.target,
        "verdict": report.verdict,
        "error": report.result.error,
        "exports": exports,
        "compiled": [asdict(each) for each in report.compiled],
        "notes": report.notes,
        "simulated": report.simulated,
        "environment": report.result.environment,
    }


def show(report: Report, console: Console) -> None:
    """One table, what is wrong, and the verdict last."""
    if report.simulated:
        _line(console, f"[bold]{escape(SIMULATED)}[/]")
    for exported in report.result.exports:
        _line(console, escape(_title(exported)))
    if any(exported.rows for exported in report.result.exports):
        console.print(_table(report.result.exports))
    for exported in report.result.exports:
        for line in _lines(exported, report):
            _line(console, line)
    for note in report.notes:
        _line(console, f"[yellow]note[/] {escape(note)}")
    for done in report.compiled:
        color, text = ("green", done.file) if done.file else ("red", done.text)
        _line(console, f"[{color}]{done.tool}[/] {escape(text)}")
    if report.result.error:
        _line(console, escape(report.result.traceback))
        _line(console, f"[red]error[/] {escape(report.result.error)}")
    color = _COLORS.get(report.verdict, "red")
    _line(console, f"[bold {color}]{report.verdict}[/]{escape(_figures(report))}")


def _line(console: Console, text: str) -> None:
    if text:
        console.print(text, highlight=False, soft_wrap=True)


def _title(exported: Exported) -> str:
    shapes = ", ".join(
        f"{each.name} {each.dtype}[{', '.join(map(str, each.shape))}]" for each in exported.inputs
    )
    place = f"{short(exported.place)}: " if exported.place else ""
    name = short(exported.file) if exported.file else "(no file)"
    return f"{place}{name}: opset {exported.opset}, exporter {exported.exporter}, inputs {shapes}"


def _table(exports: list[Exported]) -> Table:
    several = len(exports) > 1
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False)
    for name in (["model"] if several else []) + ["case", "output"]:
        table.add_column(name)
    for name in ("max abs", "cosine", "rel L2"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for exported in exports:
        first = [escape(Path(exported.file).name)] if several else []
        for row in exported.rows:
            table.add_row(*first, *_cells(row))
    return table


def _cells(row: Row) -> Iterator[str]:
    yield escape(row.case)
    yield escape(row.output)
    yield "" if row.max_abs is None else f"{row.max_abs:.2e}"
    yield "" if row.cosine is None else f"{row.cosine:.6f}"
    yield "" if row.relative is None else f"{row.relative:.2e}"
    yield f"[{'red' if row.status == DIFFERS else 'green'}]{row.status}[/]"


def _lines(exported: Exported, report: Report) -> Iterator[str]:
    name = escape(Path(exported.file).name or short(exported.place))
    differing = [row for row in exported.rows if row.reasons]
    for row in differing[:_REASONS]:
        place = f"{row.case}, {row.output}" if row.output else row.case
        yield f"[red]differs[/] {name}: {escape(place)}: {escape('; '.join(row.reasons))}"
    for each in exported.findings:
        yield f"[red]finding[/] {name}: {each.name}: {escape(short(each.message))}"
        yield f"        {escape(each.advice)}"
    for note in exported.notes:
        yield f"[yellow]note[/] {name}: {escape(short(note))}"
    if exported.file in report.scripts:
        script = short(report.scripts[exported.file])
        yield f"commands for atc and aoe: {escape(script)}"


def _figures(report: Report) -> str:
    rows = [row for each in report.result.exports for row in each.rows]
    errors = [row.max_abs for row in rows if row.max_abs is not None]
    cosines = [row.cosine for row in rows if row.cosine is not None]
    if not errors or report.result.error:
        return ""
    return f": worst max abs {max(errors):.2e}, worst cosine {min(cosines):.6f}"


def short(path: str) -> str:
    """The path as seen from here."""
    return path.removeprefix(f"{Path.cwd()}/")

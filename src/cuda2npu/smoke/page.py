"""A report as one HTML page that needs nothing else: no script, no network."""

from __future__ import annotations

from collections.abc import Iterable

from cuda2npu import __version__
from cuda2npu.report.html import END, escape, head, table
from cuda2npu.smoke.charts import error_chart, loss_chart
from cuda2npu.smoke.data import verdict, verdict_in_words
from cuda2npu.smoke.failure import Failure
from cuda2npu.smoke.outcome import Comparison, Row
from cuda2npu.smoke.spec import SIMULATED
from cuda2npu.smoke.stage import Report
from cuda2npu.smoke.suspects import Edit
from cuda2npu.smoke.table import change, describe, left_behind

_STYLE = """
.verdict{font-size:1.4rem;font-weight:700}
.match,.ok{color:#2e7d32;fill:#2e7d32}.differs,.could-not-run,.nothing-to-compare{color:#c62828;fill:#c62828}
.pointed-out{color:#b26a00;fill:#b26a00}
.simulated{border:2px solid #b26a00;padding:.5rem 1rem;border-radius:.4rem}
td:first-child{min-width:11rem}
"""


def page_of(report: Report) -> str:
    parts = [_head(report), *map(_failure, (*report.failures, *report.went_on))]
    if report.comparison is not None:
        parts += _compared(report, report.comparison)
    parts += [
        _edits(report),
        _not_rewritten(report),
        _left_behind(report),
        _notes(report),
        _environment(report),
    ]
    title = f"{report.request.script.name}: {verdict(report)}"
    return head(title, _STYLE) + "\n".join(part for part in parts if part) + END


def _head(report: Report) -> str:
    words = verdict(report)
    where = "simulated NPU" if report.simulated else "NPU"
    simulated = f'<p class="simulated">{escape(SIMULATED)}</p>' if report.simulated else ""
    arguments = " ".join(report.request.arguments)
    return (
        f"<h1>cuda2npu smoke: <code>{escape(report.request.script.name)}</code></h1>"
        f'<p class="verdict {_class(words)}" id="verdict">'
        f"{escape(verdict_in_words(report))}</p>{simulated}"
        f"<p>The rewritten script on the {where}, compared with "
        f"{escape(report.reference_name)}. Steps: {report.steps}; seed: {report.request.seed}; "
        f"arguments: <code>{escape(arguments) or 'none'}</code>.</p>"
    )


def _class(words: str) -> str:
    return words.replace(" ", "-")


def _failure(failure: Failure) -> str:
    which = "The reference" if failure.which == "reference" else "The rewritten script"
    what = "printed an error and went on" if failure.went_on else "failed"
    parts = [f"<h2>{which} {what}</h2><p><code>{escape(failure.summary)}</code></p>"]
    if failure.cause is not None:
        parts.append(
            f"<p><b>{escape(failure.cause.name)}</b>: {escape(failure.cause.text)}.<br>"
            f"Cure: {escape(failure.cause.cure)}.</p>"
        )
    if failure.pairs:
        rows = [
            (f"{pair.path}:{pair.line or '(new line)'}", pair.original, pair.rewritten)
            for pair in failure.pairs
        ]
        parts.append(table(("line", "original", "rewritten"), rows, code=True))
    parts.append(f"<pre>{escape(failure.traceback)}</pre>")
    return "".join(parts)


def _compared(report: Report, comparison: Comparison) -> list[str]:
    parts = [f'<p class="differs">{escape(problem)}</p>' for problem in comparison.problems]
    parts += [f"<p>{escape(limit)}</p>" for limit in comparison.limits]
    for title, first in (
        ("First difference", comparison.first),
        ("First pointed out", comparison.early),
    ):
        if first is not None:
            parts.append(f"<p><b>{title}</b>: {escape(describe(first))}</p>")
    if report.suspects:
        parts.append("<h2>Suspects</h2>" + _edit_table(report.suspects))
    parts += [
        "<h2>Losses</h2>" + loss_chart(comparison.losses),
        "<h2>Largest absolute error per layer</h2>" + error_chart(comparison.rows),
        "<h2>Layers</h2>" + _rows(comparison.rows),
    ]
    return parts


def _rows(rows: Iterable[Row]) -> str:
    head = "".join(
        f'<th class="n">{name}</th>'
        for name in ("calls", "cosine", "max abs", "mean abs", "rel L2", "NaN", "Inf")
    )
    body = []
    for row in rows:
        m = row.metrics
        figures = (
            str(row.calls), f"{m.cosine:.6f}", f"{m.max_abs:.2e}", f"{m.mean_abs:.2e}",
            f"{m.rel_l2:.2e}", str(m.nan), str(m.inf),
        )  # fmt: skip
        if row.kind == "step":
            figures = (str(row.calls), "", "", "", f"{m.rel_l2:.2e}", "", "")
        cells = "".join(f'<td class="n">{escape(figure)}</td>' for figure in figures)
        status = row.status.value
        reasons = "; ".join(row.reasons)
        body.append(
            f'<tr><td><code>{escape(row.title)}</code></td>{cells}<td class="{_class(status)}">'
            f"{escape(status)}{': ' + escape(reasons) if reasons else ''}</td></tr>"
        )
    return (
        f'<table id="layers"><thead><tr><th>layer</th>{head}<th></th></tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table>"
    )


def _edits(report: Report) -> str:
    if not report.edits:
        return "<h2>Edits</h2><p>Nothing was changed.</p>"
    return f"<h2>Edits ({len(report.edits)})</h2>" + _edit_table(report.edits)


def _not_rewritten(report: Report) -> str:
    if not report.not_rewritten:
        return ""
    lines = "".join(f"<li>{escape(text)}</li>" for text in report.not_rewritten)
    return f'<h2>Not rewritten</h2><ul class="differs">{lines}</ul>'


def _left_behind(report: Report) -> str:
    lines = "".join(f"<li>{escape(text)}</li>" for text in left_behind(report))
    return f'<h2>Left behind</h2><ul class="differs">{lines}</ul>' if lines else ""


def _edit_table(edits: Iterable[Edit]) -> str:
    rows = []
    for edit in edits:
        level = "changes results" if edit.numerics else ""
        rows.append((f"{edit.path}:{edit.line}", edit.code, edit.message, level, change(edit)))
    return table(("place", "rule", "what", "", "line"), rows)


def _notes(report: Report) -> str:
    if not report.notes:
        return ""
    rows = [
        (f"{note.path}:{note.line}" if note.path else "", note.kind, note.name, note.message,
         str(note.count))
        for note in report.notes
    ]  # fmt: skip
    head = ("place", "kind", "operation", "what", "times")
    return "<h2>What a real chip refuses or does slowly</h2>" + table(head, rows)


def _environment(report: Report) -> str:
    rows = [
        (run, name, value)
        for run, found in report.environment.items()
        for name, value in found.items()
    ]
    rows += [(run, "seconds", f"{value:.1f}") for run, value in report.seconds.items()]
    rows.append(("", "cuda2npu", __version__))
    rows.append(("", "NPU", "simulated" if report.simulated else "real"))
    return "<h2>Environment</h2>" + table(("run", "what", "value"), rows)

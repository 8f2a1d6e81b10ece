"""Charts as inline SVG. Text goes in escaped."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cuda2npu.report.charts import Bar, Curve, bar_chart, line_chart
from cuda2npu.smoke.outcome import Row, Status

_KIND = {Status.OK: "ok", Status.POINTED: "pointed-out", Status.DIFFERS: "differs"}
_FLOOR, _CEILING = 1e-9, 10.0
BARS = 200

Losses = Sequence[tuple[float | None, float | None]]


def loss_chart(losses: Losses) -> str:
    """Both curves over each other; the reference is the wider one below."""
    curves = (
        Curve("reference", "reference", [old for old, _ in losses], "#1565c0", 6),
        Curve("npu", "NPU", [new for _, new in losses], "#ef6c00", 2),
    )
    if not any(curve.known() for curve in curves):
        return "<p>No loss was recorded: the script called no backward.</p>"
    return line_chart("losses", "Losses of both runs", curves, "backward pass")


def error_chart(rows: Sequence[Row]) -> str:
    """One bar per layer: its largest absolute error, on a logarithmic scale."""
    layers = [row for row in rows if row.kind == "layer" and row.metrics.compared][:BARS]
    if not layers:
        return "<p>No layer was compared.</p>"
    return bar_chart("errors", "Largest absolute error of each layer", list(map(_error, layers)))


def _error(row: Row) -> Bar:
    low, high = math.log10(_FLOOR), math.log10(_CEILING)
    error = min(max(row.metrics.max_abs, _FLOOR), _CEILING)
    share = (math.log10(error) - low) / (high - low)
    return Bar(row.title, share, f"{row.metrics.max_abs:.1e}", _KIND[row.status])

"""Charts as inline SVG. Text goes in escaped."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from cuda2npu.report.charts import Bar, bar_chart
from cuda2npu.smoke.outcome import Row, Status

WIDTH, HEIGHT = 760, 240
_LEFT, _TOP, _RIGHT, _BOTTOM = 70, 14, 14, 30
_KIND = {Status.OK: "ok", Status.POINTED: "pointed-out", Status.DIFFERS: "differs"}
_FLOOR, _CEILING = 1e-9, 10.0
BARS = 200

Point = Callable[[int, float], tuple[float, float]]
Losses = Sequence[tuple[float | None, float | None]]


def loss_chart(losses: Losses) -> str:
    """Both curves over each other; the reference is the wider one below."""
    known = [v for pair in losses for v in pair if v is not None and math.isfinite(v)]
    if not known:
        return "<p>No loss was recorded: the script called no backward.</p>"
    low, high = min(known), max(known)
    if high - low < 1e-12:
        low, high = low - 0.5, high + 0.5
    across = (WIDTH - _LEFT - _RIGHT) / max(len(losses) - 1, 1)
    up = (HEIGHT - _TOP - _BOTTOM) / (high - low)

    def point(index: int, value: float) -> tuple[float, float]:
        return _LEFT + index * across, HEIGHT - _BOTTOM - (value - low) * up

    curves = [
        _curve([pair[0] for pair in losses], point, "reference", "#1565c0", 6),
        _curve([pair[1] for pair in losses], point, "npu", "#ef6c00", 2),
    ]
    return (
        f'<svg id="losses" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="Losses of both runs">{_axes(low, high, len(losses))}{"".join(curves)}</svg>'
        '<p class="key"><span style="color:#1565c0">▬ reference</span> '
        '<span style="color:#ef6c00">▬ NPU</span></p>'
    )


def _axes(low: float, high: float, count: int) -> str:
    parts = []
    for share in (0.0, 0.5, 1.0):
        y = HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM)
        parts.append(
            f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">'
            f"{low + share * (high - low):.4g}</text>"
        )
    parts.append(
        f'<text x="{_LEFT}" y="{HEIGHT - 8}">1</text>'
        f'<text x="{WIDTH - _RIGHT}" y="{HEIGHT - 8}" text-anchor="end">'
        f"backward pass {count}</text>"
    )
    return "".join(parts)


def _curve(values: Sequence[float | None], point: Point, name: str, color: str, width: int) -> str:
    places = [point(i, v) for i, v in enumerate(values) if v is not None and math.isfinite(v)]
    if len(places) == 1:
        x, y = places[0]
        return f'<circle class="{name}" cx="{x:.1f}" cy="{y:.1f}" r="{width}" fill="{color}"/>'
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return (
        f'<polyline class="{name}" points="{points}" fill="none" stroke="{color}" '
        f'stroke-width="{width}" stroke-opacity="0.8"/>'
    )


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

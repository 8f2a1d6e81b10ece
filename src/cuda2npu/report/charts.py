"""Charts as inline SVG, legible at any width: bars and curves take their share of it, letters do
not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from cuda2npu.report.html import escape

_ROW = 34
_TEXT, _TOP, _BAR = 12, 17, 9
_LONGEST = 44
"""Characters of a label that the narrowest screen has room for; its end is kept."""
_HEIGHT, _ABOVE, _BELOW = 240, 20, 24
_ACROSS = 1000
"""Units of the width of a line chart, however wide it is drawn."""


class Bar(NamedTuple):
    """One line of a chart."""

    label: str
    share: float
    """Of the longest bar there may be, between 0 and 1."""
    value: str
    """What stands at the end of the line."""
    kind: str
    """The class that the page gives a colour."""


def bar_chart(identity: str, description: str, bars: Sequence[Bar]) -> str:
    return (
        f'<svg id="{identity}" class="bars" height="{_ROW * len(bars)}" role="img" '
        f'aria-label="{escape(description)}">{"".join(map(_bar, range(len(bars)), bars))}</svg>'
    )


def _bar(index: int, bar: Bar) -> str:
    top = index * _ROW
    cut = bar.label if len(bar.label) <= _LONGEST else f"…{bar.label[1 - _LONGEST :]}"
    return (
        f'<text x="0" y="{top + _TEXT}">{escape(cut)}</text>'
        f'<text x="100%" y="{top + _TEXT}" text-anchor="end">{escape(bar.value)}</text>'
        f'<rect class="{escape(bar.kind)}" x="0" y="{top + _TOP}" rx="2" '
        f'width="{100 * max(bar.share, 0.004):.2f}%" height="{_BAR}">'
        f"<title>{escape(bar.label)}: {escape(bar.value)}</title></rect>"
    )


class Curve(NamedTuple):
    """One line of a line chart."""

    kind: str
    """Its class."""
    label: str
    values: Sequence[float | None]
    """In their order; nothing is drawn for what is missing or not finite."""
    color: str
    width: int

    def known(self) -> list[float]:
        return [v for v in self.values if v is not None and math.isfinite(v)]


def line_chart(
    identity: str, description: str, curves: Sequence[Curve], what: str, floor: float | None = None
) -> str:
    """Curves over each other, the first below; ``what`` is counted from left to right.

    The axis begins at ``floor``, else at the least value. There has to be a value.
    """
    known = [value for curve in curves for value in curve.known()]
    low = min(known) if floor is None else floor
    high = max(known)
    if high - low < 1e-12:
        low, high = low - 0.5, high + 0.5
    count = max(len(curve.values) for curve in curves)
    plot = _HEIGHT - _ABOVE - _BELOW
    drawn = "".join(_curve(curve, low, high, count) for curve in curves)
    key = " ".join(f'<span style="color:{c.color}">▬ {escape(c.label)}</span>' for c in curves)
    return (
        f'<svg id="{identity}" height="{_HEIGHT}" role="img" aria-label="{escape(description)}">'
        f'<svg y="{_ABOVE}" width="100%" height="{plot}" style="height:{plot}px;overflow:visible" '
        f'viewBox="0 0 {_ACROSS} {plot}" preserveAspectRatio="none">{drawn}</svg>'
        f'{_axes(low, high, count, what)}</svg><p class="key">{key}</p>'
    )


def _axes(low: float, high: float, count: int, what: str) -> str:
    parts = []
    for share in (0.0, 0.5, 1.0):
        y = _HEIGHT - _BELOW - share * (_HEIGHT - _ABOVE - _BELOW)
        parts.append(
            f'<line x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
            f'<text x="0" y="{y - 4:.1f}" class="axis">{low + share * (high - low):.4g}</text>'
        )
    parts.append(
        f'<text x="0" y="{_HEIGHT - 6}">1</text>'
        f'<text x="100%" y="{_HEIGHT - 6}" text-anchor="end">{escape(what)} {count}</text>'
    )
    return "".join(parts)


def _curve(curve: Curve, low: float, high: float, count: int) -> str:
    step = _ACROSS / max(count - 1, 1)
    up = (_HEIGHT - _ABOVE - _BELOW) / (high - low)
    places = [
        (index * step, (high - value) * up)
        for index, value in enumerate(curve.values)
        if value is not None and math.isfinite(value)
    ]
    style = f'stroke="{curve.color}" vector-effect="non-scaling-stroke"'
    if len(places) == 1:  # a line without length has round ends
        x, y = places[0]
        return (
            f'<path class="{curve.kind}" d="M{x:.1f} {y:.1f}h0" {style} '
            f'stroke-linecap="round" stroke-width="{2 * curve.width}"/>'
        )
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return (
        f'<polyline class="{curve.kind}" points="{points}" fill="none" {style} '
        f'stroke-width="{curve.width}" stroke-opacity="0.8"/>'
    )

"""Bar charts as inline SVG, legible at any width: bars take their share of it, letters do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cuda2npu.report.html import escape

_ROW = 34
_TEXT, _TOP, _BAR = 12, 17, 9
_LONGEST = 44
"""Characters of a label that the narrowest screen has room for; its end is kept."""


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

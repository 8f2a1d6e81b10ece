"""The figures of a list of latencies, and whether they are steady enough to speak of."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor
from statistics import fmean, median, stdev
from typing import NamedTuple

UNSTEADY = 0.25
"""A p90 that is over the median by more than this share of it is pointed out. A single iteration
that was held up, which the standard deviation would tell of, is usual on any machine."""
DRIFT = 0.10
"""So is a second half whose median is off that of the first by more than this share of it."""
_HALVES = 10
"""Fewer latencies have no halves to compare."""
_HUNDREDTH = 100
"""Of fewer latencies, p99 lies between the two largest."""


class Summary(NamedTuple):
    """In the unit of the values."""

    mean: float
    deviation: float | None
    """Of a sample: the squares are divided by the number of values less one. One has none."""
    least: float
    p50: float
    p90: float
    p99: float
    most: float


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The value at ``(n - 1) * percent / 100`` of n ordered ones, counted from 0.

    Between two values it lies on the line from one to the other: definition 7 of Hyndman and Fan,
    "Sample Quantiles in Statistical Packages", which is the default of NumPy.
    """
    place = (len(ordered) - 1) * percent / 100
    below = floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def summary(values: Sequence[float]) -> Summary:
    """Of at least one value."""
    ordered = sorted(values)
    return Summary(
        fmean(ordered),
        stdev(ordered) if len(ordered) > 1 else None,
        ordered[0],
        percentile(ordered, 50),
        percentile(ordered, 90),
        percentile(ordered, 99),
        ordered[-1],
    )


def unsteady(values: Sequence[float]) -> list[str]:
    """Why the figures should not be trusted as they are, in words."""
    found = []
    figures = summary(values)
    if figures.p90 - figures.p50 > UNSTEADY * figures.p50:
        more = f"at least {figures.p90 / figures.p50 - 1:.0%} " if figures.p50 else ""
        found.append(
            f"unsteady: one iteration in ten takes {more}longer than the median; look at p50 "
            "rather than at the mean, and measure on a quiet machine"
        )
    if len(values) >= _HALVES:
        half = len(values) // 2
        first, second = median(values[:half]), median(values[-half:])
        if first and abs(second - first) > DRIFT * first:
            how = "slower" if second > first else "faster"
            found.append(
                f"drift: the second half of the iterations is {abs(second - first) / first:.0%} "
                f"{how} than the first (medians); warm up longer (--warmup)"
            )
    return found


def few(values: Sequence[float]) -> list[str]:
    """What so few values cannot tell."""
    if len(values) == 1:
        return ["one value has no percentiles and no deviation; --iterations 100 gives them"]
    if len(values) < _HUNDREDTH:
        return [f"p99 of {len(values)} values says little more than the largest of them"]
    return []

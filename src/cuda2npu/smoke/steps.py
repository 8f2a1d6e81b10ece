"""The optimizer steps of two runs: how many, and what they did to the parameters."""

from __future__ import annotations

import math
from collections import Counter

from cuda2npu.smoke.outcome import Event, Run

_SAME, _APART = 1e-5, 1e-4
"""Gradients that differ by less, relatively, are the same; parameters by more are not."""


def key(event: Event) -> tuple[str, str, int]:
    """What an event of one run has in common with its counterpart in the other."""
    return event["kind"], event["name"], event["call"]


def step_counts(old: Run, new: Run) -> dict[str, tuple[int, int]]:
    """Of each optimizer that took another number of steps in each run, by its own doing."""
    if "timeout" in (old.ended, new.ended):
        return {}
    counts = [
        Counter(event["name"] for event in run.events if event["kind"] == "step")
        for run in (old, new)
    ]
    names = sorted(counts[0] | counts[1])
    found = {name: (counts[0][name], counts[1][name]) for name in names}
    return {name: (a, b) for name, (a, b) in found.items() if a != b}


def shared_events(old: Run, new: Run, counts: object) -> tuple[list[Event], list[Event]]:
    """The events of both; up to the last step that both took, where their numbers differ."""
    steps = [{key(e) for e in run.events if e["kind"] == "step"} for run in (old, new)]
    both = steps[0] & steps[1]
    if not counts or not both:
        return old.events, new.events
    ends = [max(n for n, e in enumerate(run.events) if key(e) in both) for run in (old, new)]
    return old.events[: ends[0] + 1], new.events[: ends[1] + 1]


def moved_apart(old: dict[str, Event], new: dict[str, Event]) -> list[str]:
    """Parameters that a step changed otherwise, where it was given the same gradients."""
    found = []
    for name in old.keys() & new.keys():
        gradients = old[name]["gradient"], new[name]["gradient"]
        a, b = old[name]["parameter"], new[name]["parameter"]
        if None in gradients or not math.isclose(*gradients, rel_tol=_SAME, abs_tol=1e-12):
            return []
        if not math.isclose(a, b, rel_tol=_APART):
            found.append(f"{name}: parameter norm {a:.6g} → {b:.6g}")
    return sorted(found)

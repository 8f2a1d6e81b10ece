"""Counts iterations and marks when each begins and ends. Child side."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from typing import Any

from cuda2npu.benchmark.clock import Clock

Call = tuple[tuple[tuple[int, ...], str], ...]
"""The shapes and types of the tensors that a module was called with."""


class Meter:
    """One iteration is the first run, then some warm the device up, then the rest is measured.

    The device is waited for around the first run and around all that is measured, never within.
    """

    def __init__(self, clock: Clock, warmup: int, iterations: int, chained: bool = False) -> None:
        """``chained``: an iteration begins where the one before it ends."""
        self._clock = clock
        self._before = 1 + warmup
        self._all = self._before + iterations
        self._chained = chained
        self._begun: Any = None
        self._calls: Counter[Call] = Counter()
        self._inputs: defaultdict[int, set[Call]] = defaultdict(set)
        self._kinds: defaultdict[int, set[frozenset[Call]]] = defaultdict(set)
        self._spans: list[tuple[Any, Any]] = []
        self._first: tuple[Any, Any] | None = None
        self._region = self._wall = 0.0
        self.count = 0
        self.shapes: Counter[tuple[tuple[Call, int], ...]] = Counter()
        """What the modules of a measured iteration were called with, in whatever order: how many
        there were of each kind."""

    @property
    def full(self) -> bool:
        return self.count >= self._all

    @property
    def measured(self) -> int:
        return len(self._spans)

    def begin(self) -> None:
        if self._begun is None and not self.full:
            if not self.count:
                self._clock.synchronize()
            self._begun = self._clock.mark()

    def forget(self) -> None:
        """What ran before the first iteration was no part of it."""
        if not self.count:
            self._begun = None
            self._clear()

    def saw(self, call: Call, module: int = 0) -> None:
        """``module`` is a number that tells it from others."""
        self._calls[call] += 1
        self._inputs[module].add(call)

    @property
    def varied(self) -> bool:
        """Whether one module got other shapes or types in one measured iteration than in another
        that called it."""
        return any(len(kinds) > 1 for kinds in self._kinds.values())

    def end(self) -> None:
        if self.full or self._begun is None:
            return
        span = self._begun, self._clock.mark()
        self._begun = span[1] if self._chained else None
        self.count += 1
        if self.count == 1:
            self._first = span
        if self.count > self._before:
            self._spans.append(span)
            self.shapes[tuple(sorted(self._calls.items()))] += 1
            for module, calls in self._inputs.items():
                self._kinds[module].add(frozenset(calls))
        self._clear()
        if self.count in (1, self._before, self._all):
            self._between_parts()

    def _clear(self) -> None:
        self._calls.clear()
        self._inputs.clear()

    def _between_parts(self) -> None:
        """After the first run, before the measured iterations and after the last."""
        self._clock.synchronize()
        now = time.perf_counter()
        if self.full:
            self._wall = now - self._region
            return
        self._region = now
        if self._chained:
            self._begun = self._clock.mark()

    def times(self) -> dict[str, Any]:
        """What was measured, in milliseconds; the wall clock in seconds."""
        self._clock.synchronize()
        spans = self._spans
        wall = self._wall
        if not self.full and spans:  # the script ended before: no one waited for the last one
            wall = self._clock.between(spans[0][0], spans[-1][1]) / 1e3
        return {
            "first_run_ms": self._clock.between(*self._first) if self._first else 0.0,
            "latencies_ms": [self._clock.between(*span) for span in spans],
            "wall_s": wall,
        }

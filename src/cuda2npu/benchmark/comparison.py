"""Two results beside each other: whether they can be compared, and how they do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from cuda2npu.benchmark.result import Result, memory_name
from cuda2npu.benchmark.statistics import unsteady


class Ratio(NamedTuple):
    """One figure of both, and B's divided by A's."""

    what: str
    a: float
    b: float
    unit: str
    words: str
    """What the one with the larger figure does so many times as the other."""
    rough: bool = False
    """Whether a second measurement may well give another ratio."""

    @property
    def value(self) -> float | None:
        return self.b / self.a if self.a else None

    @property
    def inverse(self) -> float | None:
        return self.a / self.b if self.b else None

    def in_words(self) -> str:
        """The same whichever way round it is divided."""
        if self.value is None or self.inverse is None:
            return "no ratio: one of them is 0"
        times = max(self.value, self.inverse)
        if round(times, 1 if self.rough else 2) == 1:
            return "about the same" if self.rough else "the same"
        told = f"about {_two_digits(times)}" if self.rough else f"{times:.2f}"
        larger, smaller = ("B", "A") if self.b > self.a else ("A", "B")
        return f"{larger} {self.words.format(told)} {smaller}"


def _two_digits(value: float) -> str:
    """165.3 as 170, 2.34 as 2.3."""
    rounded = float(f"{value:.2g}")
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:.1f}"


_TIME = "takes {} times as long as"
_SPEED = "does {} times as much as"
_SPACE = "takes {} times as much as"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What can be said of two results."""

    a: Result
    b: Result
    refusals: tuple[str, ...]
    """Why no ratio would mean anything."""
    warnings: tuple[str, ...]
    """What else differs, so that a ratio tells of that, too."""
    ratios: tuple[Ratio, ...]


def compare(a: Result, b: Result) -> Comparison:
    refusals = tuple(_refusals(a, b))
    ratios = () if refusals else tuple(_ratios(a, b))
    return Comparison(a, b, refusals, tuple(_warnings(a, b)), ratios)


def _refusals(a: Result, b: Result) -> Iterator[str]:
    if a.name != b.name and (a.sha256 != b.sha256 or not a.sha256):
        yield f"different scripts: {a.name} and {b.name}"
    if a.unit != b.unit:
        yield f"one iteration is one {a.unit} in A, one {b.unit} in B"
    if a.batch != b.batch:
        yield f"--batch is {a.batch or 'not given'} in A, {b.batch or 'not given'} in B"
    mine, others = _shapes(a), _shapes(b)
    if mine != others:
        yield f"different input shapes: {_told(mine)} in A, {_told(others)} in B"
    elif not _kinds(a) & _kinds(b) and (a.shapes or b.shapes):
        yield f"different numbers of calls: {_told(_kinds(a))} in A, {_told(_kinds(b))} in B"


def _kinds(result: Result) -> set[str]:
    """The kinds of iterations, without types: how many there were of each is chance."""
    return {" and ".join(map(_untyped, each["calls"])) for each in result.shapes}


def _shapes(result: Result) -> set[str]:
    """What modules were called with, without types and however often."""
    calls = (_untyped(call) for each in result.shapes for call in each["calls"])
    return {call.partition(" (")[0] for call in calls}


def _told(names: set[str]) -> str:
    return "; ".join(sorted(names - {""})) or "no module called"


def _untyped(call: str) -> str:
    return ", ".join(part.partition(":")[0] + _times(part) for part in call.split(", "))


def _times(part: str) -> str:
    """`` (4 calls)``, where that is said of a shape."""
    return f" ({part.partition(' (')[2]}" if " (" in part else ""


def _types(result: Result) -> str:
    """The types of parameters and inputs."""
    inputs = {
        part.partition(":")[2].partition(" ")[0]
        for each in result.shapes
        for call in each["calls"]
        for part in call.split(", ")
    }
    return f"parameters {_list(result.dtypes)}, inputs {_list(sorted(inputs - {''}))}"


def _list(names: list[str]) -> str:
    return " and ".join(names) or "unknown"


def _warnings(a: Result, b: Result) -> Iterator[str]:
    pairs = (
        ("types", _types(a), _types(b)),
        ("arguments", " ".join(a.arguments), " ".join(b.arguments)),
        ("warm-up", str(a.warmup), str(b.warmup)),
        ("measured iterations", str(len(a.latencies_ms)), str(len(b.latencies_ms))),
        ("--inputs", a.inputs, b.inputs),
        *((name, a.environment.get(name, ""), b.environment.get(name, "")) for name in _VERSIONS),
    )
    if a.sha256 != b.sha256:
        yield (
            "the file is not the same in both, as when B ran what cuda2npu made of it: see to it "
            "that nothing else was changed"
        )
    if _kinds(a) != _kinds(b):
        yield (
            f"not the same kinds of iterations: {_told(_kinds(a))} in A, {_told(_kinds(b))} in B; "
            "measure more of them (--iterations)"
        )
    for name, mine, other in pairs:
        if mine != other:
            yield f"different {name}: {mine or 'none'} in A, {other or 'none'} in B"
    for letter, result in (("A", a), ("B", b)):
        yield from (f"{letter}: {word}" for word in result.warnings)


_VERSIONS = ("python", "torch", "threads")
"""Of the environment, what may change the speed on any device."""


def _ratios(a: Result, b: Result) -> Iterator[Ratio]:
    ours, theirs = a.summary, b.summary
    rough = bool(unsteady(a.latencies_ms) or unsteady(b.latencies_ms))
    for name in ("p50", "p90", "p99", "mean"):
        both = getattr(ours, name), getattr(theirs, name)
        yield Ratio(f"latency {name}", *both, "ms", _TIME, rough)
    yield Ratio("throughput", a.per_second, b.per_second, f"{a.unit}s/s", _SPEED, rough)
    mine, others = a.samples_per_second, b.samples_per_second
    if mine is not None and others is not None:
        yield Ratio("throughput", mine, others, "samples/s", _SPEED, rough)
    for kind in a.memory.keys() & b.memory.keys():
        yield Ratio(memory_name(kind), a.memory[kind], b.memory[kind], "bytes", _SPACE)
    yield Ratio("first run", a.first_run_ms, b.first_run_ms, "ms", _TIME, rough=True)

"""Two results beside each other: whether they can be compared, and how they do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from cuda2npu.benchmark.result import Result, memory_name, varying


class Ratio(NamedTuple):
    """One figure of both, and B's divided by A's."""

    what: str
    a: float
    b: float
    unit: str
    more: tuple[str, str]
    """The words for what B does when its figure is the larger one, and when it is the smaller."""

    @property
    def value(self) -> float | None:
        return self.b / self.a if self.a else None

    @property
    def inverse(self) -> float | None:
        return self.a / self.b if self.b else None

    def in_words(self) -> str:
        """The same both ways round."""
        value, inverse = self.value, self.inverse
        if value is None or inverse is None:
            return "no ratio: one of them is 0"
        word = self.more[0] if value >= 1 else self.more[1]
        times = max(value, inverse)
        if f"{times:.2f}" == "1.00":
            return "the same"
        return f"B {word.format(times=f'{times:.2f}')}"


_TIME = ("takes {times} times as long as A", "is {times} times as fast as A")
_SPEED = ("does {times} times as much as A", "does 1/{times} of what A does")
_SPACE = ("takes {times} times as much as A", "takes 1/{times} of what A does")


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
    if a.name != b.name and a.sha256 != b.sha256:
        yield f"different scripts: {a.name} and {b.name}"
    if a.unit != b.unit:
        yield f"one iteration is one {a.unit} in A, one {b.unit} in B"
    if a.batch != b.batch:
        yield f"--batch is {a.batch or 'not given'} in A, {b.batch or 'not given'} in B"
    kinds = [_shapes(result) for result in (a, b)]
    if kinds[0] != kinds[1]:
        yield "different input shapes: {} in A, {} in B".format(
            *("; ".join(sorted(kind)) or "no module called" for kind in kinds)
        )


def _shapes(result: Result) -> set[str]:
    """Shapes without types, of the iterations as a set: how many there were of each is chance."""
    return {
        " and ".join(_untyped(call) for call in each["calls"]) or "no module called"
        for each in result.shapes
    }


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
    for name, mine, other in pairs:
        if mine != other:
            yield f"different {name}: {mine or 'none'} in A, {other or 'none'} in B"
    for letter, result in (("A", a), ("B", b)):
        for word in result.warnings:
            if not varying(result.shapes, result.unit) or word not in varying(
                result.shapes, result.unit
            ):
                yield f"{letter}: {word}"
            elif letter == "A":
                yield f"both: {word}"


_VERSIONS = ("python", "torch")
"""Of the environment, what may change the speed on any device."""


def _ratios(a: Result, b: Result) -> Iterator[Ratio]:
    ours, theirs = a.summary, b.summary
    for name in ("p50", "p90", "p99", "mean"):
        yield Ratio(f"latency {name}", getattr(ours, name), getattr(theirs, name), "ms", _TIME)
    yield Ratio("throughput", a.per_second, b.per_second, f"{a.unit}s/s", _SPEED)
    mine, others = a.samples_per_second, b.samples_per_second
    if mine is not None and others is not None:
        yield Ratio("throughput", mine, others, "samples/s", _SPEED)
    for kind in a.memory.keys() & b.memory.keys():
        yield Ratio(memory_name(kind), a.memory[kind], b.memory[kind], "bytes", _SPACE)
    yield Ratio("first run", a.first_run_ms, b.first_run_ms, "ms", _TIME)

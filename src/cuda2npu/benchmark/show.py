"""Results and comparisons as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from cuda2npu.benchmark.comparison import Comparison, Ratio
from cuda2npu.benchmark.result import Result
from cuda2npu.benchmark.stage import DryRun
from cuda2npu.report import plural, printable


def milliseconds(value: float) -> str:
    """Three digits that count: 45.6 µs, 0.123 ms, 1.23 ms, 12.3 s."""
    if value >= 1000:
        return f"{value / 1e3:.3g} s"
    return f"{value:.3g} ms" if value >= 0.1 else f"{value * 1e3:.3g} µs"


def per_second(value: float, what: str) -> str:
    return f"{value:,.0f} {what}" if value >= 1000 else f"{value:.3g} {what}"


def size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"


def figure(ratio: Ratio, value: float) -> str:
    if ratio.unit == "ms":
        return milliseconds(value)
    return size(value) if ratio.unit == "bytes" else per_second(value, ratio.unit)


def where(device: str, environment: dict[str, str]) -> str:
    names = [environment.get("device", device)]
    for name in ("torch", "torch_npu", "cann"):
        if name in environment:
            names.append(f"{'CANN' if name == 'cann' else name} {environment[name]}")
    return ", ".join(names)


def result_text(result: Result) -> str:
    """What was measured, every figure with its name."""
    lines = [
        f"{result.name} on {result.device} ({where(result.device, result.environment)})",
        f"{plural(len(result.latencies_ms), result.unit)}, after the first and {result.warmup} to "
        "warm up",
        *(f"  {name:<12} {text}" for name, text in result_rows(result)),
        *(f"warning: {word}" for word in result.warnings),
        *(f"note: {word}" for word in result.notes),
    ]
    return _text(lines)


def result_rows(result: Result) -> Iterator[tuple[str, str]]:
    s = result.summary
    yield "inputs", inputs(result.shapes)
    yield "first run", f"{milliseconds(result.first_run_ms)}, with what is compiled then"
    if s.deviation is None:
        yield "latency", milliseconds(s.mean)
    else:
        yield (
            "latency",
            f"p50 {milliseconds(s.p50)}, p90 {milliseconds(s.p90)}, p99 {milliseconds(s.p99)}",
        )
        yield (
            "",
            f"mean {milliseconds(s.mean)} ± {milliseconds(s.deviation)}, "
            f"min {milliseconds(s.least)}, max {milliseconds(s.most)}",
        )
    speed = per_second(result.per_second, f"{result.unit}s/s")
    if result.samples_per_second is not None:
        speed += f", {per_second(result.samples_per_second, 'samples/s')}"
    yield "throughput", f"{speed} by the wall clock"
    yield "peak memory", memory(result.memory)


def memory(found: dict[str, int]) -> str:
    return ", ".join(f"{size(count)} {kind}" for kind, count in found.items())


def inputs(shapes: Sequence[dict[str, object]]) -> str:
    """Those of the most frequent kind of iteration."""
    calls = shapes[0]["calls"] if shapes else []
    assert isinstance(calls, list)
    return " and ".join(calls) or "no module was called"


def dry_text(run: DryRun) -> str:
    lines = [
        f"{run.name} on {run.device}{' (simulated)' if run.simulated else ''}: dry run, no times",
        f"  {'ran':<12} {plural(run.count, run.unit)}, {run.measured} of them to be measured",
        f"  {'inputs':<12} {inputs(run.shapes)}",
        f"  {'peak memory':<12} {memory(run.memory)}",
        *(f"warning: {word}" for word in run.warnings),
        *(f"note: {word}" for word in run.notes),
    ]
    return _text(lines)


def comparison_text(found: Comparison, names: tuple[str, str]) -> str:
    lines = list(_heads(found, names))
    if found.ratios:
        rows = [("", "A", "B", "B/A", "A/B", "")]
        rows += [ratio_row(ratio) for ratio in found.ratios]
        lines += _columns(rows)
    lines += [f"warning: {word}" for word in found.warnings]
    lines += [f"not compared: {word}" for word in found.refusals]
    return _text(lines)


def _heads(found: Comparison, names: tuple[str, str]) -> Iterator[str]:
    for letter, name, result in zip("AB", names, (found.a, found.b), strict=True):
        place = where(result.device, result.environment)
        yield f"{letter}  {name}: {result.name} on {result.device} ({place})"


def ratio_row(ratio: Ratio) -> tuple[str, str, str, str, str, str]:
    both = (f"{value:.3f}" if value is not None else "-" for value in (ratio.value, ratio.inverse))
    forth, back = both
    return (
        ratio.what,
        figure(ratio, ratio.a),
        figure(ratio, ratio.b),
        forth,
        back,
        ratio.in_words(),
    )


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        name, *figures, words = row
        cells = [f"{text:>{width}}" for text, width in zip(figures, widths[1:-1], strict=True)]
        lines.append(f"{name:<{widths[0]}}  {'  '.join(cells)}  {words}".rstrip())
    return lines


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{printable(line)}\n" for line in lines)

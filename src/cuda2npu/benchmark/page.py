"""A result, or a comparison of two, as one HTML page that needs nothing else: no network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cuda2npu.benchmark.comparison import Comparison, Ratio
from cuda2npu.benchmark.result import Result
from cuda2npu.benchmark.show import (
    figure,
    ratio_row,
    result_rows,
    where,
)
from cuda2npu.report import plural
from cuda2npu.report.charts import Bar, Curve, bar_chart, line_chart
from cuda2npu.report.html import END, escape, head, table

_STYLE = """
h1{font-size:1.45rem}h2{font-size:1.1rem}
rect.a{fill:#1e88e5}rect.b{fill:#ef6c00}
.warning{color:#b26a00;padding-left:1.1rem}td+td{overflow-wrap:anywhere}
.scroll{overflow-x:auto}.scroll td,.scroll th{white-space:nowrap}
.ratios{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(15rem,100%),1fr));gap:.8rem;
padding:0;list-style:none}
.ratios li{border:1px solid #8884;border-radius:.4rem;padding:.5rem .8rem}
.ratios b{display:block;font-size:1.6rem;font-variant-numeric:tabular-nums}
"""
_COLORS = ("#1e88e5", "#ef6c00")


def result_page(result: Result) -> str:
    title = f"{result.name} on {result.device}"
    curve = Curve("a", result.device, result.latencies_ms, _COLORS[0], 2)
    parts = [
        f"<h1>cuda2npu bench: <code>{escape(result.name)}</code></h1>",
        f"<p>{escape(where(result.device, result.environment))}. "
        f"{escape(plural(len(result.latencies_ms), result.unit))}, after the first and "
        f"{result.warmup} to warm up.</p>",
        _warnings([*result.warnings, *result.notes]),
        table(("figure", "value"), result_rows(result)),
        f"<h2>Latency of each {escape(result.unit)}, ms</h2>",
        line_chart("latencies", "Latency of each iteration", [curve], result.unit, 0.0),
        "<h2>Environment</h2>",
        table(("what", "value"), _facts(result)),
    ]
    return head(title, _STYLE) + "\n".join(part for part in parts if part) + END


def comparison_page(found: Comparison, names: tuple[str, str]) -> str:
    """Of two results that can be compared."""
    title = f"{found.a.name}: {found.a.device} and {found.b.device}"
    sides = tuple(zip("AB", names, (found.a, found.b), strict=True))
    curves = [
        Curve(letter.lower(), f"{letter}, {result.device}", result.latencies_ms, color, width)
        for (letter, _, result), color, width in zip(sides, _COLORS, (3, 2), strict=True)
    ]
    heads = ("", "A", "B", "B/A", "A/B", "in words")
    parts = [
        f"<h1>cuda2npu bench: <code>{escape(found.b.name)}</code></h1>",
        *(_side(*side) for side in sides),
        _warnings(found.warnings),
        f'<ul class="ratios">{"".join(map(_tile, _headlines(found.ratios)))}</ul>',
        "<h2>Latency, ms: less is better</h2>",
        _bars("latency", [ratio for ratio in found.ratios if ratio.what.startswith("latency")]),
        "<h2>Throughput: more is better</h2>",
        _bars("throughput", [ratio for ratio in found.ratios if ratio.what == "throughput"]),
        *_memory(found.ratios),
        f"<h2>Latency of each {escape(found.a.unit)}, ms</h2>",
        line_chart("latencies", "Latency of each iteration", curves, found.a.unit, 0.0),
        "<h2>All figures</h2>",
        _scrolled(table(heads, map(ratio_row, found.ratios))),
        "<h2>Environment</h2>",
        table(("what", "A", "B"), _both(found)),
    ]
    return head(title, _STYLE) + "\n".join(part for part in parts if part) + END


def _side(letter: str, name: str, result: Result) -> str:
    place = where(result.device, result.environment)
    return (
        f"<p><b>{letter}</b> <code>{escape(name)}</code>: {escape(result.name)} on "
        f"{escape(result.device)} ({escape(place)}), {escape(result.made)}</p>"
    )


def _headlines(ratios: Sequence[Ratio]) -> list[Ratio]:
    """One of each kind: the median, the throughput, the memory of tensors."""
    chosen: dict[str, Ratio] = {}
    for ratio in ratios:
        if ratio.what in ("latency p50", "throughput") or ratio.unit == "bytes":
            chosen.setdefault(ratio.unit if ratio.unit == "bytes" else ratio.what, ratio)
    return list(chosen.values())


def _tile(ratio: Ratio) -> str:
    value = "-" if ratio.value is None else f"{ratio.value:.2f}"
    return (
        f"<li>{escape(ratio.what)}, B/A<b>{value}</b>{escape(ratio.in_words())}<br>"
        f"A {escape(figure(ratio, ratio.a))}, B {escape(figure(ratio, ratio.b))}</li>"
    )


def _memory(ratios: Sequence[Ratio]) -> list[str]:
    found = [ratio for ratio in ratios if ratio.unit == "bytes"]
    if not found:
        return ["<p>Memory was counted in different ways and is not compared.</p>"]
    return ["<h2>Memory: less is better</h2>", _bars("memory", found)]


def _bars(identity: str, ratios: Sequence[Ratio]) -> str:
    """A's bar above B's, for each figure; those of one unit share a scale."""
    bars = []
    for ratio in ratios:
        longest = max(max(r.a, r.b) for r in ratios if r.unit == ratio.unit) or 1.0
        for letter, value in (("A", ratio.a), ("B", ratio.b)):
            label = f"{letter}  {ratio.what}"
            bars.append(Bar(label, value / longest, figure(ratio, value), letter.lower()))
    return bar_chart(identity, f"{identity} of A and B, a bar chart", bars)


def _warnings(words: Iterable[str]) -> str:
    lines = "".join(f"<li>{escape(word)}</li>" for word in words)
    return f'<ul class="warning">{lines}</ul>' if lines else ""


def _scrolled(inner: str) -> str:
    return f'<div class="scroll" tabindex="0" role="region" aria-label="Table">{inner}</div>'


def _both(found: Comparison) -> list[tuple[str, str, str]]:
    a, b = (dict(_facts(result)) for result in (found.a, found.b))
    return [(name, a.get(name, ""), b.get(name, "")) for name in dict.fromkeys((*a, *b))]


def _facts(result: Result) -> list[tuple[str, str]]:
    digest = f"sha256 {result.sha256[:12]}…" if result.sha256 else "built into Python"
    return [
        ("file", f"{result.name}, {digest}"),
        ("arguments", " ".join(result.arguments) or "none"),
        ("parameters", " and ".join(result.dtypes) or "unknown"),
        ("warm-up, iterations", f"{result.warmup}, {result.iterations}"),
        ("batch", "not given" if result.batch is None else str(result.batch)),
        *result.environment.items(),
        ("cuda2npu", result.cuda2npu),
        ("made", result.made),
    ]

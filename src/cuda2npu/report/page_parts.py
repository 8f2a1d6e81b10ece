"""What a page says before its files: figures, charts, kernels, libraries, the table's frame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from cuda2npu import __version__
from cuda2npu.model import FileError, FixLevel
from cuda2npu.report import LEVELS, plural
from cuda2npu.report.charts import Bar, bar_chart
from cuda2npu.report.html import escape, table
from cuda2npu.report.inventory import Count, Inventory, Kind
from cuda2npu.report.overview import SUPPORT, automatic, places
from cuda2npu.survey import Survey

_BARS = 12
_CALLERS = 8


_FILES = (
    '<h2 id="files">Files</h2><p>What <code>cuda2npu rewrite</code> would change, with the '
    "findings in place.</p>"
)


def content(
    inventory: Inventory, errors: Sequence[FileError], title: str, subtitle: str, cuts: str
) -> str:
    """Everything up to the files; ``cuts`` says what the page leaves out."""
    survey = inventory.survey or Survey()
    parts = [
        f"<h1><code>{escape(title)}</code></h1>",
        f'<p class="dim">{escape(subtitle)}, cuda2npu {escape(__version__)}</p>',
        _links(inventory),
        _tiles(inventory),
    ]
    if inventory.total.findings:
        parts += [f"<p>{escape(automatic(inventory))}</p>", _charts(inventory)]
    parts += [_kernels(survey), _libraries(survey), _errors(errors)]
    if inventory.total.findings:
        parts += [_frame(inventory), f'<p class="dim">{escape(cuts)}</p>' if cuts else "", _FILES]
    else:
        parts.append("<p>No findings.</p>")
    return "\n".join(part for part in parts if part)


def _links(inventory: Inventory) -> str:
    """Where the parts of the page begin, those that it has."""
    survey = inventory.survey or Survey()
    parts = (
        ("counts", "Counts", inventory.total.findings),
        ("kernels", "Custom kernels", survey.kernels),
        ("libraries", "Libraries", survey.libraries),
        ("findings", "Findings", inventory.total.findings),
        ("files", "Files", inventory.total.findings),
    )
    links = "".join(f'<a href="#{name}">{words}</a>' for name, words, there in parts if there)
    return f"<nav>{links}</nav>"


def _tiles(inventory: Inventory) -> str:
    quiet = inventory.by_quiet()[True].findings
    figures = (
        (inventory.total.findings, f"findings in {plural(len(inventory.found), 'file')}"),
        (f"{inventory.share} %", "automatic"),
        (inventory.total.left, "left for you"),
        (quiet, "quiet: they do not fail on an NPU machine"),
        (inventory.files, "files looked at"),
    )
    tiles = "".join(f"<li><b>{figure}</b>{escape(words)}</li>" for figure, words in figures)
    return f'<ul class="tiles">{tiles}</ul>'


def _charts(inventory: Inventory) -> str:
    levels = [
        (LEVELS[level], count.findings, level.value)
        for level, count in inventory.by_level().items()
    ]
    rules = [
        (_rule_label(kind), count.findings, "quiet" if kind.quiet else "loud")
        for kind, count in inventory.in_order()
    ]
    rules.sort(key=lambda rule: -rule[1])
    open_files = [(path, count.left, "none") for path, count in inventory.open_files()]
    charts = (
        ("What can be done", "levels", levels, len(levels)),
        ("Most frequent rules", "rules", rules, _BARS),
        ("Files with the most left for you", "open-files", open_files, _BARS),
    )
    drawn = "".join(
        f"<section><h3>{words}</h3>{_chart(name, words, bars[:most])}{_more(bars, most)}</section>"
        for words, name, bars, most in charts
        if bars
    )
    return f'<h2 id="counts">Counts</h2><div class="charts">{drawn}</div>'


def _rule_label(kind: Kind) -> str:
    return f"{kind.code} {kind.name}" + (" (quiet)" if kind.quiet else "")


def _chart(name: str, words: str, bars: Sequence[tuple[str, int, str]]) -> str:
    longest = max(number for _, number, _ in bars) or 1
    drawn = [Bar(label, number / longest, str(number), kind) for label, number, kind in bars]
    return bar_chart(name, f"{words}, a bar chart", drawn)


def _more(bars: Sequence[object], most: int) -> str:
    return f'<p class="dim">and {len(bars) - most} more</p>' if len(bars) > most else ""


def _kernels(survey: Survey) -> str:
    parts = []
    if survey.kernels:
        rows = (
            (kernel.name, "\n".join(places(kernel)), _lines(kernel.callers))
            for kernel in survey.kernels
        )
        parts += ['<h2 id="kernels">Custom kernels</h2><p>To be ported, or done without.</p>']
        parts += [
            _scrolled(
                table(("kernel", "built, loaded or imported in", "used by"), rows), "Custom kernels"
            )
        ]
    if survey.sources:
        named = ((source.path, _lines(source.named_by)) for source in survey.sources)
        parts += [
            "<h2>CUDA sources</h2>",
            _scrolled(table(("file", "named in"), named), "CUDA sources"),
        ]
    return "".join(parts)


def _lines(names: Sequence[str]) -> str:
    more = [f"and {len(names) - _CALLERS} more"] if len(names) > _CALLERS else []
    return "\n".join([*names[:_CALLERS], *more])


def _libraries(survey: Survey) -> str:
    if not survey.libraries:
        return ""
    rows = (
        (use.library.name, SUPPORT[use.library.support], use.library.advice, _lines(use.files))
        for use in survey.libraries
    )
    heads = ("library", "on an NPU", "what to do or mind", "imported in")
    return (
        f'<h2 id="libraries">Third-party libraries</h2>{_scrolled(table(heads, rows), "Libraries")}'
    )


def _scrolled(inner: str, label: str) -> str:
    """A box of its own to scroll in, with the keyboard, too."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">{inner}</div>'


def _errors(errors: Sequence[FileError]) -> str:
    if not errors:
        return ""
    lines = "".join(
        f"<li><code>{escape(error.path)}</code>: {escape(error.message)}</li>" for error in errors
    )
    return f'<h2>Not done</h2><ul class="plain error">{lines}</ul>'


_COLUMNS = (
    ("path", "place"),
    ("code", "rule"),
    ("level", "fix"),
    ("quiet", "quiet"),
    ("automatic", "done by"),
    ("text", "what"),
)


def _frame(inventory: Inventory) -> str:
    """The filters and the empty table, which the page's script fills."""
    heads = "".join(
        f'<th data-key="{key}" aria-sort="{"ascending" if key == "path" else "none"}">'
        f'<button type="button">{words}</button></th>'
        for key, words in _COLUMNS
    )
    return (
        f'<h2 id="findings">Findings</h2>{_filters(inventory)}'
        '<p id="told" role="status"></p>'
        '<noscript><p class="error">The table needs JavaScript; the files below do not.</p>'
        '</noscript><div class="scroll" id="table" tabindex="0" role="region" '
        f'aria-label="Findings" hidden><table><thead><tr>{heads}</tr></thead>'
        '<tbody id="rows"></tbody></table></div>'
        '<button type="button" class="more" id="more" hidden>Show more</button>'
    )


def _filters(inventory: Inventory) -> str:
    rules = {kind.code: f"{kind.code} {kind.name}" for kind, _ in inventory.in_order()}
    levels = {level.value: LEVELS[level] for level in _present(inventory)}
    fields = (
        '<label>File<input name="file" type="search" autocomplete="off"></label>',
        '<label>Text<input name="text" type="search" autocomplete="off"></label>',
        _select("rule", "Rule", dict(sorted(rules.items()))),
        _select("level", "Fix", levels),
        _select("quiet", "Quiet", {"quiet": "quiet", "loud": "not quiet"}),
        _select("left", "Done by", {"automatic": "rewrite", "left": "you"}),
    )
    return f'<form id="filters">{"".join(fields)}</form>'


def _present(inventory: Inventory) -> Iterator[FixLevel]:
    found: dict[FixLevel, Count] = inventory.by_level()
    return (level for level, count in found.items() if count.findings)


def _select(name: str, words: str, options: dict[str, str]) -> str:
    return (
        f'<label>{words}<select name="{name}"><option value="">all</option>'
        f"{''.join(_options(options.items()))}</select></label>"
    )


def _options(options: Iterable[tuple[str, str]]) -> Iterator[str]:
    for value, words in options:
        yield f'<option value="{escape(value)}">{escape(words)}</option>'

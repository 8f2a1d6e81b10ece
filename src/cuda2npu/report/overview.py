"""The part of the summary that a person plans the work with, as lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from cuda2npu.report import LEVELS, plural, style
from cuda2npu.report.inventory import Inventory
from cuda2npu.survey import Kernel, LibraryUse, Survey

_FILES = 10
"""More files, kernels or names than this are counted, not listed."""
_NAMES = 3

SUPPORT = {
    "none": "no NPU version",
    "ported": "with an NPU version",
    "works": "working as they are",
}


def overview(inventory: Inventory, color: bool = False) -> list[str]:
    """What is automatic, where the work is, and what no rewriting helps with."""
    lines = [*_levels(inventory, color), *_files(inventory, color)]
    if inventory.survey is not None:
        lines += _kernels(inventory.survey, color)
        lines += _libraries(inventory.survey.libraries, color)
    return [*lines, ""]


def _levels(inventory: Inventory, color: bool) -> Iterator[str]:
    if inventory.total.findings:
        yield ""
        yield style(automatic(inventory), "1", color)
    for level, count in inventory.by_level().items():
        if count.findings:
            yield f"  {count.findings:>5}  {LEVELS[level]}"


def automatic(inventory: Inventory) -> str:
    """The share that ``rewrite`` does by itself, in a sentence."""
    total, files = inventory.total, len(inventory.found)
    done = files - len(inventory.open_files())
    be = "is" if 1 in (total.automatic, total.findings) else "are"
    need = "needs" if 1 in (done, files) else "need"
    return (
        f"{total.automatic} of {plural(total.findings, 'finding')} ({inventory.share} %) {be} "
        f"automatic, and {done} of {plural(files, 'file')} {need} nothing else."
    )


def _files(inventory: Inventory, color: bool) -> Iterator[str]:
    files = inventory.open_files()
    if len(files) < 2:
        return
    yield ""
    yield style("Files by findings left after rewrite:", "1", color)
    for path, count in files[:_FILES]:
        yield f"  {count.left:>5} of {count.findings:<4} {path}"
    if len(files) > _FILES:
        yield f"        and {len(files) - _FILES} more"


def _kernels(survey: Survey, color: bool) -> Iterator[str]:
    if survey.kernels:
        yield ""
        yield style("Custom kernels, to be ported or done without:", "1", color)
        for kernel in survey.kernels[:_FILES]:
            yield f"  {kernel.name}: {listed(places(kernel))}"
            if kernel.callers:
                yield f"      used by {listed(kernel.callers)}"
        if len(survey.kernels) > _FILES:
            yield f"  and {len(survey.kernels) - _FILES} more"
    if survey.sources:
        yield ""
        yield style(f"CUDA sources: {plural(len(survey.sources), 'file')}", "1", color)
        for source in survey.sources[:_FILES]:
            named = f", named in {listed(source.named_by)}" if source.named_by else ""
            yield f"  {source.path}{named}"
        if len(survey.sources) > _FILES:
            yield f"  and {len(survey.sources) - _FILES} more"


def places(kernel: Kernel) -> list[str]:
    """Where a kernel is built, loaded or imported."""
    return [f"{finding.path}:{finding.line} ({finding.name})" for finding in kernel.places]


def _libraries(uses: Sequence[LibraryUse], color: bool) -> Iterator[str]:
    if not uses:
        return
    yield ""
    yield style("Third-party libraries:", "1", color)
    width = max(len(use.library.name) for use in uses)
    for support, title in SUPPORT.items():
        group = [use for use in uses if use.library.support == support]
        if group:
            yield f"  {title}"
        for use in group:
            number = plural(len(use.files), "file")
            yield f"    {use.library.name:<{width}}  {number:<9}  {use.library.advice}"


def listed(names: Iterable[str]) -> str:
    """``a, b, c and 3 more``."""
    every = list(names)
    more = f" and {len(every) - _NAMES} more" if len(every) > _NAMES else ""
    return ", ".join(every[:_NAMES]) + more

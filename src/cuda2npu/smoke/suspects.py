"""Edits that may be why a layer differs: those in the code of its class and of its holders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cuda2npu.model import Finding, FixLevel
from cuda2npu.smoke.lines import (
    aligned,
    changed_lines,
    class_lines,
    read_lines,
    split_lines,
    without_comments,
)
from cuda2npu.smoke.outcome import Run
from cuda2npu.smoke.overlay import Overlay, Own

Pairs = list[tuple[int, int]]


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """One edit of the rewriting, with its place in the original file."""

    path: str
    line: int
    code: str
    message: str
    numerics: bool
    before: str
    after: str = ""


def edits(overlay: Overlay) -> list[Edit]:
    """All that was changed: by the rules, and by hand in what the user rewrote."""
    found = [_edit(finding, read_lines(Path(finding.path))) for finding in overlay.applied]
    for copy, own in overlay.own.items():
        found += _given_edits(overlay.files[copy], copy, own)
    return sorted(set(found))


def _edit(finding: Finding, lines: list[str], after: str = "") -> Edit:
    return Edit(
        finding.path,
        finding.line,
        finding.code,
        finding.message,
        finding.fix is FixLevel.NUMERICS,
        _line(lines, finding.line).strip(),
        after,
    )


def _given_edits(original: Path, copy: Path, own: Own) -> list[Edit]:
    """What the user changed besides what rewriting does, and what rewriting does in the rest.

    Who rewrote another way, as for the shim, is nearer to the original: then that is compared.
    """
    old, given = read_lines(original), read_lines(copy)
    rewritten = split_lines(own.text)
    by_hand = _changed(rewritten, given)
    plain = _changed(old, given)
    if len(plain) < len(by_hand):
        return _by_hand(original, plain, old, given, range(len(old) + 1))
    changed = {a for a, _ in by_hand}
    places = aligned(tuple(old), tuple(rewritten))
    found = []
    for finding in own.findings:
        lines = [b for a, b in places if b and finding.line <= a <= finding.end_line]
        if finding.applied and changed.isdisjoint(lines):
            after = _line(rewritten, lines[0]).strip() if lines else ""
            found.append(_edit(finding, old, after))
    origins = _origins(places)
    other = [(a, b) for a, b in by_hand if not a or _line(old, origins[a]) != _line(given, b)]
    return found + _by_hand(original, other, rewritten, given, origins)


def _changed(old: list[str], new: list[str]) -> Pairs:
    """The lines of code that differ, comments apart."""
    old, new = without_comments(old), without_comments(new)
    return [(a, b) for a, b in changed_lines(old, new) if _line(old, a) or _line(new, b)]


def _origins(places: Iterable[tuple[int, int]]) -> list[int]:
    """For each line that rewriting made, the original one, or that before it."""
    found, last = [0], 1
    for a, b in places:
        last = a or last
        if b:
            found.append(last)
    return found


def _by_hand(
    path: Path, changed: Pairs, old: list[str], new: list[str], origins: Sequence[int]
) -> list[Edit]:
    """``origins``: the line of the original for each line of ``old``."""
    before = {b: a for a, b in aligned(tuple(without_comments(old)), tuple(without_comments(new)))}
    found = []
    for a, b in changed:
        near = a or next((before[k] for k in range(b - 1, 0, -1) if before.get(k)), 1)
        word = "added" if not a else "removed" if not b else "changed"
        texts = _line(old, a).strip(), _line(new, b).strip()
        found.append(Edit(str(path), origins[near], "", f"{word} by hand", True, *texts))
    return found


def _line(lines: list[str], number: int) -> str:
    return lines[number - 1] if 0 < number <= len(lines) else ""


def suspects(layer: str, made: list[Edit], npu: Run, overlay: Overlay) -> list[Edit]:
    """Edits that change results in the code of a layer, or of the module around it, and so on.

    Without any there, those of the whole program. What was done by hand comes first.
    """
    doubtful = sorted((edit for edit in made if edit.numerics), key=lambda edit: bool(edit.code))
    name = layer
    while name:
        place = _place(name, npu, overlay)
        if place is not None:
            path, first, last = place
            inside = [e for e in doubtful if e.path == path and first <= e.line <= last]
            if inside:
                return inside
        name = name.rpartition(".")[0]
    return doubtful


def _place(name: str, npu: Run, overlay: Overlay) -> tuple[str, int, int] | None:
    """The original file and lines of a module's class, when the class is the user's."""
    module = npu.modules.get(name)
    original = overlay.original(module["file"]) if module and module["file"] else None
    if module is None or original is None:
        return None
    found = class_lines(original, module["class"])
    return None if found is None else (str(original), *found)

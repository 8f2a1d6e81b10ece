"""Edits that may be why a layer differs: those in the code of its class and of its holders."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cuda2npu.smoke.lines import changed_lines, class_lines, read_lines
from cuda2npu.smoke.outcome import Run
from cuda2npu.smoke.overlay import Overlay


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
    """All that was changed: the findings that were applied, or the lines of a given rewriting."""
    known = {finding.path for finding in overlay.applied}
    found = [
        Edit(
            finding.path,
            finding.line,
            finding.code,
            finding.message,
            finding.fix.value == "numerics",
            _line(read_lines(Path(finding.path)), finding.line).strip(),
        )
        for finding in overlay.applied
    ]
    for copy, original in overlay.files.items():
        if str(original) not in known:
            found += _lines_changed(original, copy)
    return sorted(found)


def _lines_changed(original: Path, copy: Path) -> list[Edit]:
    old, new = read_lines(original), read_lines(copy)
    return [
        Edit(
            str(original),
            a,
            "",
            "changed by hand",
            True,
            _line(old, a).strip(),
            _line(new, b).strip(),
        )
        for a, b in changed_lines(old, new)
    ]


def _line(lines: list[str], number: int) -> str:
    return lines[number - 1] if 0 < number <= len(lines) else ""


def suspects(layer: str, made: list[Edit], npu: Run, overlay: Overlay) -> list[Edit]:
    """Edits that change results in the code of a layer, or of the module around it, and so on.

    Without any there, those of the whole program.
    """
    doubtful = [edit for edit in made if edit.numerics]
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

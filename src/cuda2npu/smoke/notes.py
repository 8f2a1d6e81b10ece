"""What the simulator saw that a real chip refuses or does slowly."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from cuda2npu.smoke.lines import pair
from cuda2npu.smoke.overlay import Overlay
from cuda2npu.smoke.spec import SIMULATOR_NOTES


@dataclass(frozen=True, slots=True)
class Note:
    """One kind of thing at one line of the user's script."""

    kind: str
    name: str
    message: str
    path: str
    line: int
    count: int


def read_notes(folder: Path, overlay: Overlay) -> list[Note]:
    """The notes of all processes of a run with their places in the original files.

    What several of them saw is told once, as often as the one that saw it most.
    """
    found: dict[Note, Note] = {}
    name = Path(SIMULATOR_NOTES)
    for file in sorted(folder.glob(f"**/{name.stem}*{name.suffix}")):
        for note in _read(file, overlay):
            key = replace(note, count=0)
            known = found.get(key)
            if known is None or note.count > known.count:
                found[key] = note
    return list(found.values())


def _read(file: Path, overlay: Overlay) -> list[Note]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [_note(entry, overlay) for entry in found]


def _note(entry: dict[str, object], overlay: Overlay) -> Note:
    path, line = str(entry.get("path", "")), int(str(entry.get("line", 0)))
    original = overlay.original(path) if path else None
    if original is not None and line:
        line = pair(original, Path(path), line).line or line
        path = str(original)
    return Note(
        str(entry.get("kind", "")),
        str(entry.get("name", "")),
        str(entry.get("message", "")),
        path,
        line,
        int(str(entry.get("count", 1))),
    )

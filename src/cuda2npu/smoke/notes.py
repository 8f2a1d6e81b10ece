"""What the simulator saw that a real chip refuses or does slowly."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from cuda2npu.smoke.lines import pair
from cuda2npu.smoke.overlay import Overlay


@dataclass(frozen=True, slots=True)
class Note:
    """One kind of thing at one line of the user's script."""

    kind: str
    name: str
    message: str
    path: str
    line: int
    count: int


def read_notes(file: Path, overlay: Overlay) -> list[Note]:
    """The notes with their places in the original files."""
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

"""Tracebacks as the user reads them."""

from __future__ import annotations

_OWN = tuple(f"cuda2npu/{part}/" for part in ("running", "smoke", "benchmark", "simulator"))


def own_frames(text: str) -> str:
    """The traceback without the frames of what runs the script and simulates its device."""
    kept: list[str] = []
    skip = False
    for line in text.splitlines(keepends=True):
        if line.startswith('  File "'):
            place = line.replace("\\", "/")
            skip = any(part in place for part in _OWN)
        elif not line.startswith("    "):
            skip = False
        if not skip:
            kept.append(line)
    return "".join(kept)

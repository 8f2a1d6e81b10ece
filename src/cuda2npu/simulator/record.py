"""What a run did that a real chip refuses or does slowly, with the line of the user's script."""

from __future__ import annotations

import atexit
import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

RECORD_VARIABLE = "CUDA2NPU_SIMULATOR_RECORD"


@dataclass
class Event:
    kind: str  # "float64", "complex128", "cpu-fallback", "compile", …
    name: str  # the operator, or what else was called
    message: str
    path: str
    line: int
    count: int = 1


_events: dict[tuple[str, str, str, int], Event] = {}
_foreign: dict[str, bool] = {}
_PACKAGES = ("torch", "torch_npu", "cuda2npu", "torchgen", "functorch")
_armed = False


def _is_foreign(filename: str) -> bool:
    known = _foreign.get(filename)
    if known is None:
        parts = Path(filename).parts
        installed = {"site-packages", "dist-packages", "src"}
        known = filename.startswith("<") or any(
            package in _PACKAGES and before in installed
            for before, package in zip(parts, parts[1:], strict=False)
        )
        known = known or any(part.startswith("python3.") for part in parts[:-1]) and not (
            installed & set(parts)
        )
        _foreign[filename] = known
    return known


def user_line(start: FrameType | None) -> tuple[str, int]:
    """The innermost line that belongs neither to torch, torch_npu, Python nor this package."""
    frame = start
    while frame is not None:
        filename = frame.f_code.co_filename
        if not _is_foreign(filename):
            return filename, frame.f_lineno
        frame = frame.f_back
    return "", 0


def note(kind: str, name: str, message: str) -> None:
    path, line = user_line(sys._getframe(1))
    key = (kind, name, path, line)
    event = _events.get(key)
    if event is None:
        _events[key] = Event(kind, name, message, path, line)
    else:
        event.count += 1


def events() -> list[Event]:
    return list(_events.values())


def clear() -> None:
    _events.clear()


def dump(path: str | Path) -> None:
    """Writes the events as JSON; the file appears whole or not at all."""
    target = Path(path)
    partial = target.with_name(f"{target.name}.{os.getpid()}.part")
    partial.write_text(json.dumps([asdict(event) for event in events()], indent=1), "utf-8")
    partial.replace(target)


def _dump_at_exit(path: str, process: int) -> None:
    if os.getpid() != process or not _events:
        return
    target = Path(path)
    rank = os.environ.get("RANK")
    if rank is not None:
        target = target.with_name(f"{target.stem}.rank{rank}{target.suffix}")
    dump(target)


def arm() -> None:
    """Dumps at exit to the path in the environment; a worker of torchrun adds its rank to it."""
    global _armed
    path = os.environ.get(RECORD_VARIABLE)
    if path and not _armed:
        _armed = True
        atexit.register(_dump_at_exit, path, os.getpid())

"""What a run did that a real chip refuses or does slowly, with the line of the user's script."""

from __future__ import annotations

import atexit
import json
import os
import sys
import sysconfig
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
_known: dict[str, bool] = {}
_PACKAGES = ("torch", "torch_npu", "cuda2npu", "functorch")
_OF_TORCH = {
    "_str": ("_tensor_str.py",),
    "_check_trace": ("_trace.py",),
    "unscale_": ("grad_scaler.py", "sharded_grad_scaler.py"),
}
"""Functions of torch, and their files, that compute in float64 what no script asks for."""
_armed = False


def _own_folders() -> tuple[str, ...]:
    found = [sys.modules[name] for name in _PACKAGES if name in sys.modules]
    return tuple(str(Path(str(module.__file__)).parent) + os.sep for module in found)


def _is_machinery(filename: str) -> bool:
    """Whether the file belongs to torch, torch_npu, this package or Python itself."""
    known = _known.get(filename)
    if known is None:
        library = filename.startswith(sysconfig.get_path("stdlib") + os.sep)
        installed = "site-packages" in filename or "dist-packages" in filename
        known = filename.startswith(("<", *_own_folders())) or (library and not installed)
        _known[filename] = known
    return known


def user_line(start: FrameType | None) -> tuple[str, int]:
    """The innermost line that belongs neither to torch, torch_npu, Python nor this package."""
    frame = start
    while frame is not None:
        filename = frame.f_code.co_filename
        if not _is_machinery(filename):
            return filename, frame.f_lineno
        frame = frame.f_back
    return "", 0


def _is_of_torch(start: FrameType | None) -> bool:
    """Whether torch does it for itself: to print a tensor, to check a trace, to undo a scale."""
    frame = start
    while frame is not None and _is_machinery(filename := frame.f_code.co_filename):
        if Path(filename).name in _OF_TORCH.get(frame.f_code.co_name, ()):
            return True
        frame = frame.f_back
    return False


def note(kind: str, name: str, message: str) -> None:
    if _is_of_torch(sys._getframe(1)):
        return
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

"""What is shown when a script fails: its traceback in the user's own files, and the cause."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cuda2npu.model import FixLevel
from cuda2npu.running.process import Ended
from cuda2npu.running.traces import own_frames
from cuda2npu.smoke.causes import CUDA_LEFT, Cause, cause_of
from cuda2npu.smoke.lines import Pair, pair
from cuda2npu.smoke.outcome import Run
from cuda2npu.smoke.overlay import Overlay


@dataclass(frozen=True, slots=True)
class Failure:
    """Why one of the two runs did not get to its end."""

    which: str
    """``reference`` or ``npu``."""
    summary: str
    traceback: str = ""
    pairs: tuple[Pair, ...] = field(default=())
    """The lines of the traceback in the user's files, outermost first."""
    cause: Cause | None = None
    went_on: bool = False
    """Whether the script printed the error, as a thread does that ends, and went on."""


_LAST_LINES = 8
_TRACEBACK = re.compile(
    r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)+"
    r"(?P<type>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?$",
    re.MULTILINE,
)
_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)$', re.M)
_OF_TORCH = re.compile(r"\[W\d+ [\d:.]+ \w+\.cpp:\d+\] ")
"""How a warning begins that native code of torch prints, where no script put it."""


def failure(which: str, run: Run | None, ended: Ended, overlay: Overlay | None) -> Failure | None:
    """None when the run got to its end, or as far as it was asked to."""
    if run is not None and run.error is not None:
        return _raised(which, run, ended, overlay)
    if run is not None:
        return None
    if ended.timed_out and ended.code == -signal.SIGTERM:
        text = (
            f"was ended by --timeout after {ended.seconds:.0f} s, before torch was loaded and the "
            "script began"
        )
        return Failure(which, text, ended.output)
    if ended.timed_out:
        text = f"was still running after {ended.seconds:.0f} s and could not be stopped orderly"
        return Failure(which, text, ended.output)
    how = (
        f"ended with code {ended.code}" if ended.code >= 0 else f"was ended by signal {-ended.code}"
    )
    kind, message = _last_error(ended.output)
    output = _with_originals(ended.output, overlay)
    return Failure(which, how, output, cause=cause_of(kind, message, ended.code))


def printed(which: str, ended: Ended, overlay: Overlay | None) -> Failure | None:
    """The last error that a run printed with its traceback and went on.

    So do threads that end by one, servers whose handlers do, and scripts that log what they catch.
    """
    found = [*_TRACEBACK.finditer(ended.output)]
    if not found:
        return None
    last = found[-1]
    frames = [{"file": f["file"], "line": int(f["line"])} for f in _FRAME.finditer(last[0])]
    error = {"type": last["type"], "message": last["message"] or "", "frames": frames}
    error["text"] = last[0] + "\n"
    return replace(_of_error(which, error, overlay), went_on=True)


def _raised(which: str, run: Run, ended: Ended, overlay: Overlay | None) -> Failure:
    assert run.error is not None
    found = _of_error(which, run.error, overlay)
    if run.error["type"] == "SystemExit":  # the reason is what the script printed, as argparse does
        lines = [line for line in ended.output.splitlines() if not _OF_TORCH.match(line)]
        text = "\n".join([*lines[-_LAST_LINES:], ""])
        found = replace(found, traceback=_with_originals(text, overlay))
    if run.rank is not None:
        found = replace(found, summary=f"rank {run.rank}: {found.summary}")
    return found


def _of_error(which: str, error: dict[str, Any], overlay: Overlay | None) -> Failure:
    pairs = []
    for frame in error["frames"]:
        original = overlay.original(frame["file"]) if overlay is not None else None
        if original is not None and frame["line"]:
            pairs.append(pair(original, Path(frame["file"]), frame["line"]))
    summary = f"{error['type']}: {error['message']}".rstrip(": ")
    return Failure(
        which,
        summary,
        _with_originals(own_frames(error["text"]), overlay),
        tuple(pairs),
        _cause(error, pairs, overlay),
    )


def _cause(error: dict[str, Any], pairs: list[Pair], overlay: Overlay | None) -> Cause | None:
    """What is known of the line that failed says more than the text of the error."""
    known = cause_of(error["type"], error["message"])
    if overlay is None or not pairs or (known is not None and known.name != CUDA_LEFT):
        return known
    place = pairs[-1]
    for found in overlay.findings:
        doubtful = not found.applied or found.fix is FixLevel.UNSAFE
        if doubtful and found.path == place.path and found.line <= place.line <= found.end_line:
            cure = f"`cuda2npu rules {found.code}` explains it, with examples"
            return Cause(f"{found.code} {found.name}", found.message, cure)
    return known


def _with_originals(text: str, overlay: Overlay | None) -> str:
    """The paths of the temporary copy as those of the user's files."""
    if overlay is None:
        return text
    if overlay.copy == overlay.root:
        return text
    copy, root = re.escape(str(overlay.copy)), str(overlay.root)
    text = re.sub(f'"{copy}([^"]*)"', lambda m: f'"{root}{m[1]}" (rewritten)', text)
    return text.replace(str(overlay.copy), root)


def _last_error(output: str) -> tuple[str, str]:
    found = re.findall(r"^([A-Za-z_][\w.]*(?:Error|Exception|Interrupt)): (.*)$", output, re.M)
    return found[-1] if found else ("", output[-2000:] if "Error" in output else "")

"""What is shown when a script fails: its traceback in the user's own files, and the cause."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cuda2npu.model import Finding, FixLevel
from cuda2npu.running.process import Ended
from cuda2npu.running.traces import own_frames
from cuda2npu.smoke.causes import CUDA_LEFT, TWO_NPUS, Cause, cause_of, reference_cause
from cuda2npu.smoke.lines import Pair, pair
from cuda2npu.smoke.outcome import Run
from cuda2npu.smoke.overlay import Overlay
from cuda2npu.smoke.spec import REFERENCE


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


def failure(
    which: str, run: Run | None, ended: Ended, overlay: Overlay | None, on_cpu: bool = False
) -> Failure | None:
    """None when the run got to its end, or as far as it was asked to.

    ``on_cpu``: it is that of the original, whose CUDA calls were led to the CPU.
    """
    if run is not None and run.error is not None:
        return _raised(which, run, ended, overlay, on_cpu)
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
    cause = cause_of(kind, message, ended.code)
    if which == REFERENCE:
        cause = reference_cause(kind, message, on_cpu, ended.code)
    return Failure(which, how, output, cause=cause)


def printed(
    which: str, ended: Ended, overlay: Overlay | None, on_cpu: bool = False
) -> Failure | None:
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
    return replace(_of_error(which, error, overlay, on_cpu), went_on=True)


def _raised(which: str, run: Run, ended: Ended, overlay: Overlay | None, on_cpu: bool) -> Failure:
    assert run.error is not None
    found = _of_error(which, run.error, overlay, on_cpu)
    if run.error["type"] == "SystemExit":  # the reason is what the script printed, as argparse does
        lines = [line for line in ended.output.splitlines() if not _OF_TORCH.match(line)]
        text = "\n".join([*lines[-_LAST_LINES:], ""])
        refused = which != REFERENCE and ": error: argument " in text
        cause = cause_of("SystemExit", text) if refused else None
        shown = _with_originals(text, overlay)
        found = replace(found, traceback=shown, cause=cause or found.cause)
    if run.rank is not None:
        found = replace(found, summary=f"rank {run.rank}: {found.summary}")
    return found


def _of_error(which: str, error: dict[str, Any], overlay: Overlay | None, on_cpu: bool) -> Failure:
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
        reference_cause(error["type"], error["message"], on_cpu)
        if which == REFERENCE
        else _cause(error, pairs, overlay),
    )


def _cause(error: dict[str, Any], pairs: list[Pair], overlay: Overlay | None) -> Cause | None:
    """What is known of the line that failed says more than the text of the error."""
    known = cause_of(error["type"], error["message"])
    name = "" if known is None else known.name
    if overlay is None or not pairs or name not in ("", CUDA_LEFT, TWO_NPUS):
        return known
    if name == TWO_NPUS:
        rules = overlay.across_devices()
    else:
        marked = [f.get("marked", "") for f in error["frames"] if overlay.original(f["file"])]
        rules = _at(pairs[-1], marked[-1], overlay)
    if rules:
        return _of_rule(rules[0], pairs[-1])
    if known is None:
        return None
    left = [f"{Path(each.path).name}:{each.line} {each.code}" for each in overlay.left()]
    listed = f"; `cuda2npu check` has left in your code: {', '.join(left[:5])}" if left else ""
    return known._replace(cure=known.cure + listed)


def _at(place: Pair, marked: str, overlay: Overlay) -> list[Finding]:
    """Findings at the line that failed, those in the part that the traceback marks first."""
    found = [
        each
        for each in overlay.findings
        if (not each.applied or each.fix is FixLevel.UNSAFE)
        and each.path == place.path
        and each.line <= place.line <= each.end_line
    ]
    return sorted(found, key=lambda each: _found_text(each, place) not in marked)


def _found_text(found: Finding, place: Pair) -> str:
    """What a finding marks of its first line."""
    end = found.end_column - 1 if found.end_line == found.line else None
    return place.original[found.column - 1 : end]


def _of_rule(found: Finding, place: Pair) -> Cause:
    elsewhere = (found.path, found.line) != (place.path, place.line)
    cure = f"`cuda2npu rules {found.code}` explains it, with examples"
    text = of_rule(found) if elsewhere else found.message
    return Cause(f"{found.code} {found.name}", text, cure)


def of_rule(found: Finding) -> str:
    """A finding with its place."""
    return f"{Path(found.path).name}:{found.line} {found.code}: {found.message}"


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

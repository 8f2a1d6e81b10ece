"""What the user reads: findings on stdout, in one of several formats, and the summary."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Protocol, TextIO

from cuda2npu.model import Finding, FixLevel, UsageError
from cuda2npu.project import Outcome

if TYPE_CHECKING:
    from cuda2npu.report.inventory import Inventory, Kind

FORMATS = ("full", "concise", "json", "github", "sarif")
LEVELS = {
    FixLevel.SAFE: "fixable",
    FixLevel.NUMERICS: "fixable, changes results",
    FixLevel.UNSAFE: "fixable with --unsafe",
    FixLevel.NONE: "by hand",
}
"""What a person reads for a fix level."""


class Reporter(Protocol):
    """Turns the outcomes of a run, one after the other, into the text of a format."""

    def add(self, outcome: Outcome) -> str: ...

    def end(self) -> str: ...


def reporter(
    name: str, color: bool, inventory: Inventory | None = None, *, new: bool = False
) -> Reporter:
    """The reporter of a format; JSON ends with the inventory of the run.

    ``new`` says that findings which a baseline knows are left out.
    """
    check_format(name)
    if name == "json":
        from cuda2npu.report.json import JsonReporter

        return JsonReporter(inventory)
    if name == "github":
        from cuda2npu.report.github import GithubReporter

        return GithubReporter()
    if name == "sarif":
        from cuda2npu.report.sarif import SarifReporter

        return SarifReporter(new=new)
    if name == "concise":
        from cuda2npu.report.concise import ConciseReporter

        return ConciseReporter(color)
    from cuda2npu.report.full import FullReporter

    return FullReporter(color)


def check_format(name: str) -> None:
    if name not in FORMATS:
        raise UsageError(f"--format {name}: is none of {', '.join(FORMATS)}")


def wants_color(choice: str, stream: TextIO | None) -> bool:
    """Whether to colour what goes to this stream; ``choice`` is auto, always or never."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


BROKEN_PIPE = 128 + 13
"""The exit code of a program whose reader went away, as a shell tells it."""


class Output:
    """A standard stream that takes text and bytes, and no offence when its reader is gone."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.closed = stream is None
        self.broken = False
        """Whether the reader went away in the middle."""

    def write(self, text: str | bytes) -> None:
        """Write text in the stream's encoding, and bytes as they are."""
        if self.closed or self._stream is None or not text:
            return
        if isinstance(text, str):
            text = text.encode(self._stream.encoding or "utf-8", "backslashreplace")
        try:
            self._stream.buffer.write(text)
            self._stream.buffer.flush()
        except OSError as error:
            self.closed = True
            self.broken = isinstance(error, BrokenPipeError)
            # Python flushes the stream once more at exit; let that go nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
            if not self.broken:
                raise UsageError(f"the output cannot be written: {error.strerror}") from None


def style(text: str, code: str, color: bool) -> str:
    """The text in an ANSI style: ``1`` bold, ``31`` red, ``32`` green, ``33`` yellow."""
    return f"\x1b[{code}m{text}\x1b[0m" if color else text


def tags(finding: Finding | Kind) -> str:
    """What the tool can do about a finding, and whether anyone would notice without it."""
    return f"[{LEVELS[finding.fix]}]" + (" [quiet]" if finding.quiet else "")


_UNPRINTABLE = "[\x00-\x08\x0a-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
"""Control characters, and those that turn the direction of what follows."""


def printable(text: str) -> str:
    """The text without what would steer a terminal or show a line in another order."""
    return re.sub(_UNPRINTABLE, "\N{REPLACEMENT CHARACTER}", text)


def place(finding: Finding) -> str:
    """The path and line of a finding, in a notebook the cell and the line in it."""
    if finding.cell is not None:
        return f"{finding.path}:cell {finding.cell.number}:{finding.cell.line}"
    return f"{finding.path}:{finding.line}"


def plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

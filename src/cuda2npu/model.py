"""The data that every part of cuda2npu exchanges. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple


class FixLevel(str, Enum):
    """How far a finding can be fixed without a person."""

    SAFE = "safe"
    """The NPU program means what the CUDA program meant."""
    NUMERICS = "numerics"
    """Results change; applied unless ``Options.preserve_numerics``."""
    UNSAFE = "unsafe"
    """Probably right, but not provable from the file; applied with ``Options.unsafe``."""
    NONE = "none"
    """Needs a person."""


class Target(str, Enum):
    """What kind of program is written."""

    NPU = "npu"
    SHIM = "shim"


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for; the same for every file of a run.

    ``select``, ``extend_select`` and ``ignore`` hold rule codes or prefixes of codes (``NPU1``).
    An empty ``select`` means every rule that is on by default; ``extend_select`` adds to that or
    to ``select``. A rule that is off by default runs when an entry of the two names its family or
    its code: a number is in it, where the letters of a pack alone mean its rules that are on.
    """

    select: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    preserve_numerics: bool = False
    unsafe: bool = False
    target: Target = Target.NPU
    torch_npu: str = "2.14.0"
    chip: str = ""
    """The family of chips whose missing APIs are reported; empty for none."""
    named: bool = False
    """The user named this very file, so that CUDA calls at its top level make it a script."""

    def applies(self, level: FixLevel) -> bool:
        """Whether a fix of this level is written into the file."""
        if level is FixLevel.NUMERICS:
            return not self.preserve_numerics
        if level is FixLevel.UNSAFE:
            return self.unsafe
        return level is FixLevel.SAFE


class CellPlace(NamedTuple):
    """A place in the source of a notebook's cell, counted as in a finding."""

    number: int
    """The cell's number among all cells of the notebook, from 1."""
    line: int
    column: int
    end_line: int
    end_column: int
    text: str
    """The line of the cell on which the place begins."""
    after: tuple[int, str]
    """That line's number and text in the rewritten cell."""


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One place in one file. Lines and columns count from 1, columns in characters.

    The end is exclusive, as in SARIF: ``end_column`` is the column after the last character.
    """

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    code: str
    name: str
    message: str
    fix: FixLevel
    quiet: bool
    """True when the leftover would not raise on an NPU machine: it runs on the CPU, in
    another precision, or over another backend without a word."""
    applied: bool = field(default=False, compare=False)
    """True when the fix stands in ``Result.text``."""
    kernels: tuple[str, ...] = field(default=(), compare=False)
    """The custom kernels that the finding is about; an empty name for one without a name."""
    cell: CellPlace | None = field(default=None, compare=False)
    """Where a finding of a notebook is for a person; ``line`` and ``column`` are the file's."""


class Edit(NamedTuple):
    """A span of the old text, with its end exclusive as in :class:`Finding`, and the new text."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str


@dataclass(frozen=True, slots=True)
class FileError:
    """A file that could not be done, and why. It is left as it was."""

    path: str
    message: str


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one source text."""

    path: str
    text: str
    changed: bool
    findings: tuple[Finding, ...] = ()
    """All findings in order of place, those with ``applied`` and those that remain."""
    notes: tuple[str, ...] = ()
    """What else the user should know, each a line."""
    edits: tuple[Edit, ...] = ()
    """The pieces that make ``text`` of the old one, in order of place."""

    @property
    def applied(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.applied)

    @property
    def remaining(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if not f.applied)


class UsageError(Exception):
    """Something the user has to correct before anything is done."""


class SourceError(Exception):
    """A source that cannot be read or parsed. The text says what and where."""

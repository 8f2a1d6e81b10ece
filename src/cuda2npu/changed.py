"""The lines that changed in a git repository since a revision, as git itself tells."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from cuda2npu.model import Finding, UsageError

_DIFF = (
    "diff --no-color --no-ext-diff --no-textconv --no-relative --unified=0 --find-renames "
    "--src-prefix=a/ --dst-prefix=b/ --ignore-submodules=none --submodule=diff"
).split()
"""Whatever the user's configuration says: a plain patch, that of submodules included."""
_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_UNTRACKED = re.compile(rb"Submodule (.+) contains untracked content")
_WHOLE = re.compile(rb"Submodule (.+) [0-9a-f]+\.{2,3}[0-9a-f]+ \(")
"""A new submodule, or one whose old commit is not here to compare with."""


class ChangedLines:
    """The lines that the working tree has changed since it left ``revision``.

    Compared with the merge base of ``revision`` and HEAD, so that what the other branch did
    meanwhile is no change of this one. Files that git does not track count whole unless they
    are ignored, and so do files that git holds for binary.
    """

    def __init__(self, revision: str, folder: Path) -> None:
        """Ask git about the repository of ``folder``. Raises UsageError when it cannot say."""
        self.top = Path(_line(_git(folder, "rev-parse", "--show-toplevel"))).resolve()
        self.base = self._merge_base(revision)
        self._lines: dict[str, set[int]] = {}
        self._whole: set[str] = set()
        self._read_patch(_git(self.top, *_DIFF, self.base, "--"))
        self._add_untracked(self.top)

    def _merge_base(self, revision: str) -> str:
        wrong = f"--diff-base {revision}: "
        if revision.startswith("-"):
            raise UsageError(f"{wrong}is no revision")
        commit = f"{revision}^{{commit}}"
        fault = (
            f"{wrong}git knows no such commit. In a shallow clone, fetch it first: "
            "`git fetch origin BRANCH`, or `fetch-depth: 0` in a workflow."
        )
        known = _line(_git(self.top, "rev-parse", "--verify", "--quiet", commit, fault=fault))
        fault = f"{wrong}has no commit in common with HEAD here. Fetch more of the history."
        return _line(_git(self.top, "merge-base", known, "HEAD", fault=fault))

    def _read_patch(self, patch: bytes) -> None:
        lines = iter(patch.split(b"\n"))
        binary = False
        path = ""
        for line in lines:
            if line.startswith(b"+++ "):
                path = self._path(_name(line[4:]))
            elif match := _HUNK.match(line):
                added = _added(lines, *(int(n) if n else 1 for n in match.groups()))
                self._lines.setdefault(path, set()).update(added)
                if any(b"\r" in text[:-1] for text in added.values()):
                    self._whole.add(path)  # a lone carriage return ends no line for git
            elif match := _UNTRACKED.match(line):
                self._add_untracked(self.top / os.fsdecode(match[1]))
            elif match := _WHOLE.match(line):
                self._whole.add(self._path(match[1]))
            binary |= line.startswith(b"Binary files ")
        if binary:
            self._add_binary()

    def _add_binary(self) -> None:
        out = _git(self.top, "diff", "--numstat", "-z", "--no-relative", "--no-renames", self.base)
        for entry in out.split(b"\0"):
            if entry.startswith(b"-\t-\t"):
                self._whole.add(self._path(entry[4:]))

    def _add_untracked(self, folder: Path) -> None:
        out = _git(folder, "ls-files", "--others", "--exclude-standard", "-z")
        for name in filter(None, out.split(b"\0")):
            self._whole.add(str(folder / os.fsdecode(name)))

    def _path(self, name: bytes) -> str:
        return str(self.top / os.fsdecode(name))

    def touches(self, path: str) -> bool:
        """Whether a file has a changed line. Raises UsageError for one of elsewhere."""
        real = Path(path).resolve()
        if not real.is_relative_to(self.top):
            raise UsageError(f"{path}: is not in the git repository {self.top}, see --diff-base")
        return bool(self._lines.get(str(real))) or self._is_whole(real)

    def covers(self, finding: Finding) -> bool:
        """Whether one of the finding's lines was changed."""
        real = Path(finding.path).resolve()
        lines = self._lines.get(str(real), set())
        span = range(finding.line, finding.end_line + 1)
        return not lines.isdisjoint(span) or self._is_whole(real)

    def _is_whole(self, path: Path) -> bool:
        return any(str(place) in self._whole for place in (path, *path.parents))


def _added(lines: Iterator[bytes], old: int, start: int, new: int) -> dict[int, bytes]:
    """The lines that a hunk adds, by their numbers; takes the lines of the hunk."""
    added = {}
    number = start
    while old > 0 or new > 0:
        line = next(lines)
        sign = line[:1]
        if sign == b"+":
            added[number] = line
        number += sign != b"-"
        new -= sign in (b"+", b" ")
        old -= sign in (b"-", b" ")
    return added


def _name(field: bytes) -> bytes:
    """The path in a ``+++`` line, which git quotes as C does when it has odd characters."""
    field = field.removesuffix(b"\t")  # ends a name with spaces
    if field.startswith(b'"'):
        field = field[1:-1].decode("unicode_escape").encode("latin-1")
    return field.removeprefix(b"b/")


def _git(folder: Path, *arguments: str, fault: str | None = None) -> bytes:
    """What git prints. Raises UsageError with ``fault``, or what git says, when it fails."""
    command = ["git", "-C", str(folder), "-c", "core.fsmonitor=false", "-c", "core.quotePath=true"]
    try:
        done = subprocess.run(
            [*command, *arguments],
            env=os.environ | {"LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except OSError as error:
        raise UsageError(f"--diff-base needs git, which cannot be run: {error.strerror}") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().partition("\n")[0]
        raise UsageError(fault or f"--diff-base: git says of {folder}: {said}")
    return done.stdout


def _line(output: bytes) -> str:
    return os.fsdecode(output.rstrip(b"\r\n"))

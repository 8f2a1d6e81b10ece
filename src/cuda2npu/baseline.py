"""Findings that a project knows and keeps for now, in a file of its own.

A finding is known by its file, its rule and its source line, not by the number of the line, so
that edits elsewhere in the file do not bring it back. The same line may be known several times.
A file that was renamed is another file, and its findings are new.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

from cuda2npu import writing
from cuda2npu.fingerprint import normal_line
from cuda2npu.model import UsageError
from cuda2npu.project import Outcome

VERSION = 1
_HINT = "`cuda2npu check PATH --write-baseline` writes it"

Known = Counter[tuple[str, str]]
"""How often a code is known on a source line."""


class Baseline:
    """The known findings, and those of the files of this run."""

    def __init__(self, path: Path, known: dict[str, Known]) -> None:
        self.path = path
        self._known = known
        self._found: dict[str, Known] = {}

    @classmethod
    def read(cls, path: Path, *, must_exist: bool = True) -> Baseline:
        """Raises UsageError when the file cannot be read or is no baseline."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            if must_exist:
                raise UsageError(f"{path}: no such file; {_HINT}") from None
            return cls(path, {})
        except OSError as error:
            raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
        try:
            return cls(path, _parse(json.loads(data)))
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from None
        except ValueError as error:  # no JSON, or no UTF-8
            fault = f"{path}: is no baseline: {error}. Mend it, or delete it: {_HINT}."
            raise UsageError(fault) from None

    def new(self, outcome: Outcome) -> Outcome:
        """The outcome without the findings that are known."""
        if outcome.error is not None:
            return outcome
        name = self._name(outcome.path)
        known = self._known.get(name, Known())
        found = self._found[name] = Known()
        kept = []
        for index, finding in enumerate(outcome.findings):
            key = (finding.code, normal_line(outcome.excerpts[index]))
            found[key] += 1
            if outcome.occurrences[index] >= known[key]:
                kept.append(index)
        return outcome.only(kept)

    def gone(self) -> int:
        """How many known findings the files of this run, or files that are gone, have no more."""
        return sum((known - self._now(name)).total() for name, known in self._known.items())

    def _now(self, name: str) -> Known:
        """The findings of a file; the known ones when this run did not look at it."""
        if name in self._found:
            return self._found[name]
        return self._known[name] if (self.path.parent / name).exists() else Known()

    def write(self) -> int:
        """Write what is found now, in order; the number. What was not looked at stays.

        Raises UsageError when the file cannot be written.
        """
        names = sorted(self._known.keys() | self._found.keys())
        now = {name: self._now(name) for name in names}
        try:
            with writing.temporary(self.path.resolve().parent) as name:
                # A name that is no UTF-8 holds surrogates, which JSON writes as \udcXX.
                Path(name).write_bytes(_text(now).encode(errors="backslashreplace"))
                writing.put_in_place(name, self.path)
        except OSError as error:
            raise UsageError(f"{self.path}: cannot be written: {error.strerror}") from None
        return sum(found.total() for found in now.values())

    def _name(self, path: str) -> str:
        """A file as the baseline calls it: from the folder of the baseline, with slashes."""
        real = Path(path).parent.resolve() / Path(path).name
        try:
            return Path(os.path.relpath(real, self.path.parent.resolve())).as_posix()
        except ValueError:  # another drive
            return real.as_posix()


def _text(found: dict[str, Known]) -> str:
    """One line for each finding, so that a version control system shows what came and went."""
    blocks = []
    for name, known in found.items():
        rows = [
            json.dumps({"code": code, "line": line, "count": count}, ensure_ascii=False)
            for (code, line), count in sorted(known.items())
        ]
        if rows:
            entries = ",\n".join(f"   {row}" for row in rows)
            blocks.append(f"  {json.dumps(name, ensure_ascii=False)}: [\n{entries}\n  ]")
    inner = "\n" + ",\n".join(blocks) + "\n " if blocks else ""
    return f'{{\n "version": {VERSION},\n "findings": {{{inner}}}\n}}\n'


def _parse(data: Any) -> dict[str, Known]:
    version = data.get("version") if isinstance(data, dict) else None
    if not isinstance(version, int):
        raise ValueError('it has no "version"')
    if version != VERSION:
        raise UsageError(
            f"is a baseline of version {version}; this cuda2npu reads version {VERSION}. "
            f"Use the cuda2npu that wrote it, or delete it: {_HINT}."
        )
    found = data.get("findings")
    if not isinstance(found, dict):
        raise ValueError('"findings" is no table of files')
    return {name: _parse_file(name, rows) for name, rows in found.items()}


def _parse_file(name: str, rows: Any) -> Known:
    known = Known()
    for row in rows if isinstance(rows, list) else [None]:
        if not isinstance(row, dict) or row.keys() != {"code", "line", "count"}:
            raise ValueError(f"{name}: a finding is a code, a line and a count")
        if not isinstance(row["count"], int) or row["count"] < 1:
            raise ValueError(f"{name}: {row['count']!r} is no count")
        known[str(row["code"]), str(row["line"])] += row["count"]
    return known

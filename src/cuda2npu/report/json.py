"""One JSON object: findings, then errors. It is written as the findings come."""

from __future__ import annotations

import json

from cuda2npu.model import FileError, Finding
from cuda2npu.project import Outcome


class JsonReporter:
    def __init__(self) -> None:
        self._errors: list[FileError] = []
        self._written = 0

    def add(self, outcome: Outcome) -> str:
        if outcome.error is not None:
            self._errors.append(FileError(outcome.path, outcome.error))
        return "".join(map(self._finding, outcome.findings))

    def _finding(self, finding: Finding) -> str:
        lead = ",\n" if self._written else '{"findings": [\n'
        self._written += 1
        return lead + json.dumps(as_dict(finding))

    def end(self) -> str:
        lead = "\n" if self._written else '{"findings": ['
        errors = [{"path": error.path, "message": error.message} for error in self._errors]
        return f'{lead}], "errors": {json.dumps(errors)}}}\n'


def as_dict(finding: Finding) -> dict[str, object]:
    return {
        "path": finding.path,
        "line": finding.line,
        "column": finding.column,
        "end_line": finding.end_line,
        "end_column": finding.end_column,
        "code": finding.code,
        "name": finding.name,
        "message": finding.message,
        "fix": finding.fix.value,
        "quiet": finding.quiet,
    }

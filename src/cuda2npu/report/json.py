"""One JSON object: findings, errors, summary. It is written as the findings come."""

from __future__ import annotations

import json

from cuda2npu.model import FileError, Finding
from cuda2npu.project import Outcome
from cuda2npu.report.inventory import Inventory, as_data


class JsonReporter:
    def __init__(self, inventory: Inventory | None = None) -> None:
        self._inventory = inventory
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
        summary = f', "summary": {json.dumps(as_data(self._inventory))}' if self._inventory else ""
        return f'{lead}], "errors": {json.dumps(errors)}{summary}}}\n'


def as_dict(finding: Finding) -> dict[str, object]:
    cell = {} if finding.cell is None else {"cell": finding.cell.number}
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
        **cell,
    }

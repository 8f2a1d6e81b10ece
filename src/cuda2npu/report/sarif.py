"""SARIF 2.1.0, which code scanning services read. Results are written as they come.

The properties of a run may stand in any order, so that the rules, of which only those with a
result are listed, and the notifications follow the results.
"""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

from cuda2npu import __version__
from cuda2npu.fingerprint import fingerprint
from cuda2npu.model import Edit, Finding
from cuda2npu.project import Outcome
from cuda2npu.report.github import workspace

Json = dict[str, object]

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_BASE = "%SRCROOT%"
_FINGERPRINT = "cuda2npuFinding/v1"


class SarifReporter:
    """``new`` says that findings which a baseline knows are not among the results."""

    def __init__(self, *, new: bool = False) -> None:
        self._root = workspace()
        self._new = new
        self._rules: dict[str, int] = {}
        self._notifications: list[Json] = []
        self._failed = False
        self._begun = False

    def add(self, outcome: Outcome) -> str:
        if outcome.error is not None:
            self._failed = True
            self._notify("error", outcome, outcome.error)
        for note in outcome.notes:
            self._notify("note", outcome, note)
        rows = zip(outcome.findings, outcome.excerpts, outcome.occurrences, strict=True)
        return "".join(
            self._begin()
            + json.dumps(self._result(outcome, finding, fingerprint(finding, line, n)))
            for finding, line, n in rows
        )

    def end(self) -> str:
        lead = "\n" if self._begun else self._begin()
        run: Json = {
            "tool": {"driver": self._driver()},
            "invocations": [
                {
                    "executionSuccessful": not self._failed,
                    "toolExecutionNotifications": self._notifications,
                }
            ],
            "originalUriBaseIds": {_BASE: {"uri": f"{self._root.as_uri()}/"}},
            "columnKind": "unicodeCodePoints",
        }
        return f"{lead}], {json.dumps(run)[1:]}]}}\n"

    def _begin(self) -> str:
        """What stands before a result."""
        if self._begun:
            return ",\n"
        self._begun = True
        head = json.dumps({"$schema": SCHEMA, "version": "2.1.0"})[:-1]
        return f'{head}, "runs": [{{"results": [\n'

    def _result(self, outcome: Outcome, finding: Finding, mark: str) -> Json:
        file = self._file(finding.path)
        result: Json = {
            "ruleId": finding.code,
            "ruleIndex": self._rules.setdefault(finding.code, len(self._rules)),
            "level": level(finding.quiet),
            "message": {"text": finding.message},
            "locations": [
                {"physicalLocation": {"artifactLocation": file, "region": _region(finding)}}
            ],
            "partialFingerprints": {_FINGERPRINT: mark},
            "properties": {"fix": finding.fix.value, "quiet": finding.quiet},
        }
        replacements = [_replacement(edit) for edit in _edits(finding, outcome.edits)]
        if replacements:
            changes = [{"artifactLocation": file, "replacements": replacements}]
            text = "Rewrite the statement for NPUs"
            result["fixes"] = [{"description": {"text": text}, "artifactChanges": changes}]
        if self._new:
            result["baselineState"] = "new"
        return result

    def _notify(self, level: str, outcome: Outcome, text: str) -> None:
        place = {"physicalLocation": {"artifactLocation": self._file(outcome.path)}}
        self._notifications.append(
            {"level": level, "message": {"text": text}, "locations": [place]}
        )

    def _driver(self) -> Json:
        rules: list[Json] = []
        if self._rules:
            from cuda2npu.packs import load_rules
            from cuda2npu.report.sarif_rules import descriptor

            known = {rule.code: rule for rule in load_rules()}
            rules = [descriptor(known[code]) for code in self._rules]
        return {"name": "cuda2npu", "semanticVersion": __version__, "rules": rules}

    def _file(self, path: str) -> Json:
        """The place of a file, relative to the workspace if it is below."""
        real = Path(path).absolute()
        if real.is_relative_to(self._root):
            return {"uri": quote(real.relative_to(self._root).as_posix()), "uriBaseId": _BASE}
        return {"uri": real.as_uri()}


def level(quiet: bool) -> str:
    """A leftover that nothing else will tell of is an error, one that raises a warning."""
    return "error" if quiet else "warning"


def _region(place: Finding | Edit) -> Json:
    return {
        "startLine": place.line,
        "startColumn": place.column,
        "endLine": place.end_line,
        "endColumn": place.end_column,
    }


def _replacement(edit: Edit) -> Json:
    return {"deletedRegion": _region(edit), "insertedContent": {"text": edit.text}}


def _edits(finding: Finding, edits: tuple[Edit, ...]) -> list[Edit]:
    """The edits that make an applied fix: of its statement, and the imports that are added."""
    if not finding.applied:
        return []
    start = (finding.line, finding.column)
    return [
        edit
        for edit in edits
        if edit[:2] == edit[2:4] or edit[:2] <= start < (edit.end_line, edit.end_column)
    ]

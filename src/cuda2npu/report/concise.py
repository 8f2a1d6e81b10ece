"""One line for each finding."""

from __future__ import annotations

from cuda2npu.model import Finding
from cuda2npu.project import Outcome
from cuda2npu.report import place, style, tags


def headline(finding: Finding, color: bool) -> str:
    shown = f"{place(finding)}:{(finding.cell or finding).column}:"
    message = " ".join(finding.message.split())
    code = style(finding.code, "1;33" if finding.quiet else "1;31", color)
    return f"{style(shown, '1', color)} {code} {message} {style(tags(finding), '36', color)}"


class ConciseReporter:
    def __init__(self, color: bool = False) -> None:
        self._color = color

    def add(self, outcome: Outcome) -> str:
        return "".join(f"{headline(finding, self._color)}\n" for finding in outcome.findings)

    def end(self) -> str:
        return ""

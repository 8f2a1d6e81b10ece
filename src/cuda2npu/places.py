"""Where findings are in a source that was rewritten."""

from __future__ import annotations

import re
from dataclasses import replace

from cuda2npu.model import Finding
from cuda2npu.source import decode

_LINE_END = re.compile(r"\r\n?|\n")


def source_lines(data: bytes) -> list[str]:
    """The lines of a source, as findings count them. Raises SourceError."""
    return _LINE_END.split(decode(data)[0])


def relocated(findings: tuple[Finding, ...], old: list[str], new: list[str]) -> tuple[Finding, ...]:
    """The findings with their lines in the rewritten source, which is what the user opens."""
    findings = tuple(map(_in_new_cell, findings))
    if len(old) == len(new):
        return findings
    from difflib import SequenceMatcher

    lines: dict[int, int] = {}
    for _, i1, i2, j1, j2 in SequenceMatcher(None, old, new).get_opcodes():
        last = max(j2 - 1, j1 - 1, 0)
        lines.update((line, min(j1 + line - i1, last)) for line in range(i1, i2))
    return tuple(
        replace(
            finding,
            line=lines[finding.line - 1] + 1,
            end_line=lines[finding.end_line - 1] + 1,
        )
        for finding in findings
    )


def _in_new_cell(finding: Finding) -> Finding:
    if finding.cell is None:
        return finding
    line, text = finding.cell.after
    last = finding.cell.end_line + line - finding.cell.line
    return replace(finding, cell=finding.cell._replace(line=line, end_line=last, text=text))

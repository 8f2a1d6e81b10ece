"""Workflow commands, which GitHub Actions shows beside the lines of a pull request."""

from __future__ import annotations

import os
from pathlib import Path

from cuda2npu.model import Finding
from cuda2npu.project import Outcome
from cuda2npu.report import tags


def workspace() -> Path:
    """The folder that paths are told relative to: that of the workflow, else the working one."""
    return Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd()).resolve()


class GithubReporter:
    def __init__(self) -> None:
        self._workspace = workspace()

    def add(self, outcome: Outcome) -> str:
        lines = [self._finding(finding) for finding in outcome.findings]
        if outcome.error is not None:
            file = _property(self._file(outcome.path))
            lines.append(f"::error file={file}::{_data(outcome.error)}\n")
        return "".join(lines)

    def end(self) -> str:
        return ""

    def _finding(self, finding: Finding) -> str:
        properties = {"file": self._file(finding.path), "line": str(finding.line)}
        if finding.end_line == finding.line:  # GitHub refuses columns of several lines
            properties |= {"col": str(finding.column), "endColumn": str(finding.end_column)}
        properties |= {"endLine": str(finding.end_line), "title": f"{finding.code} {finding.name}"}
        listed = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
        return f"::warning {listed}::{_data(f'{finding.message} {tags(finding)}')}\n"

    def _file(self, path: str) -> str:
        """The path relative to the workspace, as GitHub wants it."""
        real = Path(path).absolute()
        if real.is_relative_to(self._workspace):
            return real.relative_to(self._workspace).as_posix()
        return path


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")

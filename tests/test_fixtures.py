"""Scripts in the shape of real ones: what is written, what is reported, what is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuda2npu.engine import rewrite_source
from cuda2npu.model import Options, Result

SCRIPTS = Path(__file__).parent.parent / "fixtures" / "scripts"
NAMES = sorted(folder.name for folder in SCRIPTS.iterdir())


def _rewrite(name: str) -> Result:
    return rewrite_source((SCRIPTS / name / "before.py").read_text(encoding="utf-8"), Options())


@pytest.mark.parametrize("name", NAMES)
def test_rewritten_as_an_expert_would(name: str) -> None:
    after = (SCRIPTS / name / "after.py").read_text(encoding="utf-8")
    assert _rewrite(name).text.splitlines() == after.splitlines()


@pytest.mark.parametrize("name", NAMES)
def test_a_second_run_changes_nothing(name: str) -> None:
    assert not rewrite_source(_rewrite(name).text, Options()).changed


@pytest.mark.parametrize("name", NAMES)
def test_findings_that_remain(name: str) -> None:
    """Each line that must be reported is, and no other line, judgement calls aside."""
    rows = (SCRIPTS / name / "findings.txt").read_text(encoding="utf-8").splitlines()
    expected = {int(row.split("\t")[0]) for row in rows if row and "\tjudgement:" not in row}
    judgement = {int(row.split("\t")[0]) for row in rows if "\tjudgement:" in row}
    found = {line for f in _rewrite(name).remaining for line in range(f.line, f.end_line + 1)}
    starts = {finding.line for finding in _rewrite(name).remaining}
    assert expected <= found, "not reported"
    assert starts <= expected | judgement, "reported without need"

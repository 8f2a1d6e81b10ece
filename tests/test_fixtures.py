"""Files in the shape of real ones: what is written, what is reported, what is left."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from laws import vanished

from cuda2npu import formats
from cuda2npu.model import Options, Result

FIXTURES = Path(__file__).parent.parent / "fixtures"
SCRIPTS = sorted((FIXTURES / "scripts").iterdir())
DOCUMENTS = sorted((FIXTURES / "documents").iterdir())
FOLDERS = pytest.mark.parametrize("folder", [*SCRIPTS, *DOCUMENTS], ids=lambda folder: folder.name)


def _read(folder: Path, stem: str) -> tuple[str, str]:
    """The text of the folder's ``before`` or ``after``, and its name."""
    (path,) = folder.glob(f"{stem}.*")
    return path.read_text(encoding="utf-8"), path.name


def _rewrite(folder: Path) -> Result:
    text, name = _read(folder, "before")
    return formats.rewrite_bytes(text.encode(), Options(), path=name)[1]


@FOLDERS
def test_rewritten_as_an_expert_would(folder: Path) -> None:
    result = _rewrite(folder)
    assert result.text.splitlines() == _read(folder, "after")[0].splitlines()


@FOLDERS
def test_a_second_run_changes_nothing(folder: Path) -> None:
    text, name = _read(folder, "after")
    assert not formats.rewrite_bytes(text.encode(), Options(), path=name)[1].changed


@FOLDERS
@pytest.mark.parametrize("unsafe", [False, True])
def test_what_a_run_leaves_is_found_again(folder: Path, unsafe: bool) -> None:
    text, name = _read(folder, "before")
    options = Options(unsafe=unsafe)
    new, first = formats.rewrite_bytes(text.encode(), options, path=name)
    assert list(vanished(first, formats.rewrite_bytes(new, options, path=name)[1])) == []


@FOLDERS
def test_findings_that_remain(folder: Path) -> None:
    """Each line that must be reported is, and no other line, judgement calls aside."""
    rows = (folder / "findings.txt").read_text(encoding="utf-8").splitlines()
    expected = {int(row.split("\t")[0]) for row in rows if row and "\tjudgement:" not in row}
    judgement = {int(row.split("\t")[0]) for row in rows if "\tjudgement:" in row}
    remaining = _rewrite(folder).remaining
    found = {line for f in remaining for line in range(f.line, f.end_line + 1)}
    starts = {finding.line for finding in remaining}
    assert expected <= found, "not reported"
    assert starts <= expected | judgement, "reported without need"


@pytest.mark.parametrize("name", ["launch_script/after.sh", "slurm_job/after.slurm"])
def test_the_scripts_are_sound(name: str) -> None:
    subprocess.run(["bash", "-n", str(FIXTURES / "documents" / name)], check=True, timeout=60)

"""The laws over real files: ours by default, six packages with ``-m slow``."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cuda2npu_codemods.counterparts import OF_TORCH, RENAMED
from laws import Verdict, compare, judge

from cuda2npu.engine import rewrite_source
from cuda2npu.model import Options
from cuda2npu.releases import NEWEST, RELEASES, exists

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tools"))

from corpus import PACKAGES, fetch, python_files  # noqa: E402

TARGETS = (NEWEST, "2.6.0", "2.1.0")
OURS = sorted(
    path
    for name in ("fixtures", "src", "codemods", "tests")
    for path in (ROOT / name).rglob("*.py")
)

Note = Callable[[str, object], None]


def _hold(files: list[Path], release: str, name: str, note: Note) -> None:
    options = Options(torch_npu=release)
    verdicts = {path: judge(path.read_bytes(), options) for path in files}
    note("laws", _summary(f"{name}, torch_npu {release}", list(verdicts.values())))
    broken = [
        f"{path.relative_to(ROOT)}: {law}"
        for path, verdict in verdicts.items()
        for law in [*verdict.broken, *verdict.vanished, *filter(None, [verdict.refused])]
    ]
    assert not broken, f"{len(broken)} broken laws:\n" + "\n".join(broken[:40])


def _summary(name: str, verdicts: list[Verdict]) -> str:
    findings = [finding for verdict in verdicts for finding in verdict.findings]
    return (
        f"{name}: {len(verdicts)} files, {sum(v.triggered for v in verdicts)} with a trigger "
        f"word, {sum(v.changed for v in verdicts)} changed, {sum(f.applied for f in findings)} "
        f"edits, {sum(not f.applied for f in findings)} findings left, "
        f"{sum(bool(v.refused) for v in verdicts)} refused"
    )


@pytest.mark.parametrize("release", TARGETS)
def test_our_own_files(release: str, record_property: Note) -> None:
    assert len(OURS) > 60
    _hold(OURS, release, "our own", record_property)


@pytest.mark.slow
@pytest.mark.parametrize("release", TARGETS)
@pytest.mark.parametrize("package", [package.name for package in PACKAGES])
def test_packages(package: str, release: str, record_property: Note) -> None:
    files = python_files(fetch((package,)))
    assert len(files) > 80
    _hold(files, release, package, record_property)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("old", RENAMED)
def test_a_renamed_name_exists_or_is_reported(old: str, release: str) -> None:
    use = f"{old} = True" if re.search(r"allow_tf32$", old) else f"use({old})"
    before = f"import torch\n\n{use}\n"
    result = rewrite_source(before, Options(torch_npu=release))
    ast.parse(result.text)
    if old in result.text:
        assert any(finding.line == 3 for finding in result.remaining)
        return
    verdict = judge(before.encode(), Options(torch_npu=release))
    assert verdict.broken + verdict.vanished == []
    new = RENAMED[old]
    if new in OF_TORCH:
        assert RELEASES.index(release) >= RELEASES.index(OF_TORCH[new])
    else:
        assert exists(new, release)


BEFORE = b"import torch\n# cuda\nx = y.cuda()\nif z:\n    w = 1\n"


@pytest.mark.parametrize(
    ("wrong", "law"),
    [
        (BEFORE.replace(b"# cuda", b"# npu"), "this text is gone"),
        (BEFORE.replace(b"w = 1", b"w = 2"), "this text is gone"),
        (BEFORE.replace(b"\n", b"\r\n"), "this text is gone"),
        (BEFORE + b"more()\n", "the end changed"),
        (b"import os\n" + BEFORE, "statements came or went"),
        (BEFORE.replace(b"cuda()", b"npu("), "does not parse"),
        (BEFORE.replace(b"y.cuda()", b"torch.npu.optimize()"), "does not exist"),
        (BEFORE.replace(b"y.cuda()", b"mock('torch_npu.nothing')"), "does not exist"),
    ],
)
def test_the_laws_see_a_wrong_output(wrong: bytes, law: str) -> None:
    applied = rewrite_source(BEFORE.decode(), Options()).applied
    assert any(law in text for text in compare(BEFORE, wrong, applied, Options()))

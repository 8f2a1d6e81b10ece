"""Programs as users have them, on the simulated NPU."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cuda2npu.smoke.outcome import Status
from cuda2npu.smoke.stage import Report
from smoke.support import Smoke


def explain(report: Report) -> str:
    rows = report.comparison.rows if report.comparison else []
    bad = [row for row in rows if row.status is Status.DIFFERS]
    problems = report.comparison.problems if report.comparison else []
    return "\n".join(map(str, [*report.failures, *bad, *problems]))


@pytest.mark.parametrize("name", ["cnn.py", "lstm.py", "gan.py"])
def test_float32_programs_agree_to_the_fifth_place(run: Smoke, folder: Path, name: str) -> None:
    before = sorted(folder.rglob("*"))
    report = run(name, steps=3)
    assert report.code == 0, explain(report)
    assert report.comparison is not None
    assert len(report.comparison.losses) >= 3
    for old, new in report.comparison.losses:
        assert old is not None
        assert new == pytest.approx(old, abs=1e-5)
    assert report.simulated == (not Path("/dev/davinci0").exists())
    assert sorted(folder.rglob("*")) == before, "the working folder is not written to"


def test_both_optimizers_of_a_gan_do_their_steps(run: Smoke) -> None:
    report = run("gan.py", steps=2)
    assert report.comparison is not None
    calls = {row.name: row.calls for row in report.comparison.rows if row.kind == "step"}
    assert calls == {"Adam: gradients": 2, "Adam#2: gradients": 2}


def test_mixed_precision(run: Smoke) -> None:
    report = run("gpt.py", steps=2, dropout=False)
    assert report.code == 0, explain(report)
    names = {row.name for row in report.comparison.rows}  # type: ignore[union-attr]
    assert {"GPT.blocks.1.mlp.0", "GPT.norm", "GPT"} <= names


def test_an_edit_that_changes_results_is_the_suspect(run: Smoke) -> None:
    report = run("segment.py", steps=1)
    assert report.code == 1, explain(report)
    assert report.comparison is not None
    assert report.comparison.first is not None
    assert report.comparison.first.layer == "Net.up"
    assert [edit.before for edit in report.suspects] == [
        'return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)'
    ]


def test_float64_on_the_device_is_noted_with_its_line(run: Smoke, folder: Path) -> None:
    report = run("segment.py", steps=1, preserve_numerics=True)
    assert report.code == 0, explain(report)
    if report.simulated:
        places = {(note.kind, note.path, note.line) for note in report.notes}
        assert ("float64", str(folder / "segment.py"), 15) in places


def test_an_original_that_stays_on_the_cpu_is_no_pass(run: Smoke, folder: Path) -> None:
    text = (folder / "cnn.py").read_text()
    (folder / "left.py").write_text(text.replace(".cuda()", "").replace('device="cuda"', ""))
    report = run("cnn.py", steps=1, rewritten=folder / "left.py")
    assert report.code in (1, 2)
    if report.comparison is not None:
        assert "nothing of the rewritten script ran on the NPU" in report.comparison.problems


def test_a_failing_script_shows_both_lines(run: Smoke, folder: Path) -> None:
    (folder / "fails.py").write_text(
        "import torch\n"
        "import torch.nn as nn\n"
        "net = nn.Linear(4, 4)\n"
        "net.cuda()\n"
        "extra = torch.ones(4)\n"
        "out = net(torch.ones(2, 4).cuda()) + extra.cuda()\n"
        "print((out + torch.ones(2, 4)).sum().item())\n"
    )
    report = run("fails.py")
    assert report.code == 2
    failure = report.failures[-1]
    assert failure.which == "npu", failure.traceback
    assert failure.cause is not None
    assert failure.cause.name == "device mismatch"
    assert failure.pairs[-1].line == 7
    assert failure.pairs[-1].rewritten_line == 8
    assert str(folder) in failure.traceback
    assert os.sep + "copy" not in failure.traceback

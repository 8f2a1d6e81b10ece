"""The table of docs/comparison.md: each program under each tool, run on the simulated NPU."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from running import outcomes

sys.path.append(str(Path(__file__).resolve().parent.parent.parent / "tools"))

from comparison import CASES, RIGHT, TOOLS, sed

pytestmark = pytest.mark.skipif(find_spec("torch_npu") is None, reason="torch_npu is not installed")


@pytest.mark.parametrize("tool", TOOLS)
def test_outcomes(tool: str, tmp_path: Path) -> None:
    for number, case in enumerate(CASES):
        text = TOOLS[tool](case.program)
        (tmp_path / f"{number:02}.py").write_text(text, encoding="utf-8")
    found = outcomes("run_programs.py", folder=tmp_path).values()
    seen = {case.title: outcome for case, outcome in zip(CASES, found, strict=True)}
    told = {case.title: case.outcomes[tool] for case in CASES}
    expected = {c.title: c.prints if told[c.title] == RIGHT else told[c.title] for c in CASES}
    assert seen == expected


def test_sed_is_the_program_of_that_name() -> None:
    for case in CASES:
        done = subprocess.run(
            ["sed", "s/cuda/npu/g; s/nccl/hccl/g"],
            input=case.program, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout == sed(case.program)

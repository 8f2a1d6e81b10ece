"""What a real chip refuses or does slowly is recorded with the line of the user's script."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from needs import needs
from running import simulate

pytestmark = needs("torch_npu")

SCRIPT = """\
import torch
import torch_npu

def half(x):
    return x / 2

x = torch.ones(3, dtype=torch.float64).npu()
for _ in range(4):
    half(x)
torch.ones(3, device="npu").double()
torch.ones(2, dtype=torch.complex128, device="npu") * 2
torch.linalg.matrix_exp(torch.eye(2).npu())
torch.compile(torch.nn.Linear(1, 1))
w = torch.ones(2, dtype=torch.float64, device="npu", requires_grad=True)
loss = w.exp().sum()
loss.backward()
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], str, Path]:
    folder = tmp_path_factory.mktemp("record")
    script, target = folder / "train.py", folder / "record.json"
    script.write_text(SCRIPT, "utf-8")
    done = simulate(str(script), CUDA2NPU_SIMULATOR_RECORD=str(target))
    assert done.returncode == 0, done.stderr
    return json.loads(target.read_text("utf-8")), done.stderr, script


def lines(events: list[dict[str, Any]], kind: str) -> set[int]:
    return {event["line"] for event in events if event["kind"] == kind}


def test_double_precision_is_recorded_where_it_happens(found: Any) -> None:
    events, _, script = found
    assert {5, 7, 10, 14, 15} <= lines(events, "float64")
    assert lines(events, "complex128") == {11}
    assert {event["path"] for event in events} == {str(script)}


def test_a_line_is_counted_not_repeated(found: Any) -> None:
    events, _, _ = found
    (division,) = [e for e in events if e["line"] == 5 and e["name"] == "aten::div.Tensor"]
    assert division["count"] == 4


def test_the_backward_pass_is_told_with_its_line(found: Any) -> None:
    events, _, _ = found
    assert 16 in lines(events, "float64")


def test_fallbacks_and_compilation(found: Any) -> None:
    events, stderr, _ = found
    assert lines(events, "cpu-fallback") == {12}
    assert lines(events, "compile") == {13}
    assert stderr.count("torch.compile runs eagerly on the simulated NPU") == 1
    assert "is not currently supported on the NPU backend and will fall back" in stderr

"""Operators and training on the simulated NPU give what they give on the CPU."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from running import names, outcomes

pytestmark = pytest.mark.skipif(find_spec("torch_npu") is None, reason="torch_npu is not installed")


@pytest.mark.parametrize("case", names("operators.py"))
def test_operators(case: str) -> None:
    assert outcomes("operators.py")[case] == ""


@pytest.mark.parametrize("case", names("training.py"))
def test_training(case: str) -> None:
    assert outcomes("training.py")[case] == ""

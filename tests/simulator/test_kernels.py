"""Operators and training on the simulated NPU give what they give on the CPU."""

from __future__ import annotations

import pytest
from needs import needs
from running import names, outcomes

pytestmark = needs("torch_npu")


@pytest.mark.parametrize("case", names("operators.py"))
def test_operators(case: str) -> None:
    assert outcomes("operators.py")[case] == ""


@pytest.mark.parametrize("case", names("training.py"))
def test_training(case: str) -> None:
    assert outcomes("training.py")[case] == ""

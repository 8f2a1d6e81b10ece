"""Two processes talk over ``hccl`` on two simulated devices."""

from __future__ import annotations

import pytest
from needs import needs
from running import names, outcomes

pytestmark = needs("torch_npu")


@pytest.mark.parametrize("case", names("collectives.py"))
def test_collectives(case: str) -> None:
    assert outcomes("collectives.py", processes=2)[case] == ""


def test_a_model_may_outlive_its_group() -> None:
    assert outcomes("model_outlives_group.py", processes=2) == {}

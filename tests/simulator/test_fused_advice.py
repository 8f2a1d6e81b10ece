"""What the rules about fused operators advise computes what the code by hand computes."""

from __future__ import annotations

import pytest
from needs import needs
from running import names, outcomes

pytestmark = needs("torch_npu")


@pytest.mark.parametrize("case", names("fused.py"))
def test_advised_operators(case: str) -> None:
    assert outcomes("fused.py")[case] == ""

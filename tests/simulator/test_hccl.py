"""Two processes talk over ``hccl`` on two simulated devices."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from running import names, outcomes

pytestmark = pytest.mark.skipif(find_spec("torch_npu") is None, reason="torch_npu is not installed")


@pytest.mark.parametrize("case", names("collectives.py"))
def test_collectives(case: str) -> None:
    assert outcomes("collectives.py", processes=2)[case] == ""

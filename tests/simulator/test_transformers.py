"""transformers and its Trainer, unpatched, on the simulated NPU."""

from __future__ import annotations

import pytest
from needs import needs
from running import names, outcomes

pytestmark = needs("torch_npu", "transformers", "accelerate")


@pytest.mark.parametrize("case", names("transformer_models.py"))
def test_transformers(case: str) -> None:
    assert outcomes("transformer_models.py")[case] == ""

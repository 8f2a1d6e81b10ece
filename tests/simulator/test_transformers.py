"""transformers and its Trainer, unpatched, on the simulated NPU."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from running import names, outcomes

needed = ("torch_npu", "transformers", "accelerate")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        any(find_spec(name) is None for name in needed), reason=f"needs {', '.join(needed)}"
    ),
]


@pytest.mark.parametrize("case", names("transformer_models.py"))
def test_transformers(case: str) -> None:
    assert outcomes("transformer_models.py")[case] == ""

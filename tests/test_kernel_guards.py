"""What a finding about a guard of a kernel says, beside the examples of its rule."""

from __future__ import annotations

import pytest

from cuda2npu.engine import rewrite_source
from cuda2npu.model import Options


@pytest.mark.parametrize(
    ("code", "quiet"),
    [
        ("if x.is_cuda: y = ext_cuda.run(x)\nelse: y = run(x)", True),
        ("if x.is_cuda: y = ext_cuda.run(x)\nelse: raise RuntimeError", False),
        ("if not x.is_cuda: raise NotImplementedError\ny = ext_cuda.run(x)", False),
        ("if not x.is_cuda: y = ext.run_cpu(x)\nelse: y = ext_cuda.run(x)", False),
        (
            "def f(gs, cpu_gs=[]):\n    for g in gs:\n        if g.is_cuda: ext_cuda.run(g)\n"
            "        else: cpu_gs.append(g)",
            True,
        ),
        (
            "def f(x):\n    if not x.is_cuda and ready: return run_cpu(x)\n"
            "    elif x.is_cuda: return ext_cuda.run(x)\n    else: raise RuntimeError",
            False,
        ),
        ("def f(x):\n    if x.is_cuda: return ext_cuda.run(x)\n    return x.cpu().run()", True),
        ("def f(x):\n    if x.is_cuda: return ext_cuda.run(x)\n    raise RuntimeError", False),
        ("assert x.is_cuda\ny = ext_cuda.run(x)", False),
    ],
)
def test_a_guard_is_quiet_only_where_an_npu_tensor_finds_a_way(code: str, quiet: bool) -> None:
    result = rewrite_source(f"import torch\n{code}\n", Options())
    assert [f.quiet for f in result.remaining if f.code == "NPU104"][-1] is quiet


def test_a_file_has_one_finding_for_its_cuda_home() -> None:
    code = (
        "from torch.utils.cpp_extension import CUDA_HOME\n"
        "def a():\n    if CUDA_HOME is None: raise RuntimeError\n    return CUDA_HOME\n"
        "def b(): return CUDA_HOME + '/bin'\n"
    )
    found = [f.line for f in rewrite_source(code, Options()).findings if f.code == "NPU522"]
    assert found == [3]

"""Imports that the edits need, and imports that they make unused."""

from __future__ import annotations

import pytest

from cuda2npu.engine import rewrite_source
from cuda2npu.model import Options

NPU = "import torch_npu  # noqa: F401\n"

CASES = {
    "another name of the same import stays": (
        "from torch import cuda, nn\nx = nn.Linear(1, 1).cuda()\n",
        "from torch_npu import npu as cuda\nfrom torch import nn\n"
        + NPU
        + "x = nn.Linear(1, 1).npu()\n",
    ),
    "a name that was never used is not made unused": (
        "import torch\nfrom torch import cuda\nHAS = torch.cuda.is_available()\n",
        "import torch\n"
        + NPU
        + "from torch_npu import npu as cuda\nHAS = torch.npu.is_available()\n",
    ),
    "a name that the edit took the last use of goes": (
        "import torch\nfrom torch import float64, nn\nx = torch.ones(2, dtype=float64)\n",
        "import torch\nfrom torch import nn\nx = torch.ones(2, dtype=torch.float32)\n",
    ),
    "a whole import goes with its line": (
        "import torch\nfrom torch import float64  # wide\nx = torch.ones(2, dtype=float64)\n",
        "import torch\nx = torch.ones(2, dtype=torch.float32)\n",
    ),
    "in a function": (
        "def f():\n    from torch import cuda, nn\n    x = nn.Linear(1, 1).cuda()\n",
        "def f():\n    from torch_npu import npu as cuda\n    from torch import nn\n    "
        + NPU
        + "    x = nn.Linear(1, 1).npu()\n",
    ),
    "a module that a test asks for": (
        'import pytest\ntorch = pytest.importorskip("torch", reason="none")\n'
        "x = torch.ones(1).cuda()\ntorch.cuda.synchronize()\n",
        'import pytest\ntorch = pytest.importorskip("torch", reason="none")\n'
        + NPU
        + "x = torch.ones(1).npu()\ntorch.npu.synchronize()\n",
    ),
    "a module that is loaded under another name": (
        'import importlib\nth: object = (\n    importlib.import_module("torch")\n)\n'
        "th.cuda.synchronize()\n",
        'import importlib\nth: object = (\n    importlib.import_module("torch")\n)\n'
        + NPU
        + "th.npu.synchronize()\n",
    ),
    "a module that is loaded in a function": (
        'def f():\n    dist = import_module("torch.distributed")\n'
        '    dist.init_process_group("nccl")\n',
        'def f():\n    dist = import_module("torch.distributed")\n    '
        + NPU
        + '    dist.init_process_group("hccl")\n',
    ),
    "a module of the package itself": (
        'torch = importlib.import_module(".torch", __name__)\ntorch.cuda.synchronize()\n',
        'torch = importlib.import_module(".torch", __name__)\ntorch.cuda.synchronize()\n',
    ),
    "behind a guard": (
        "try:\n    import torch\nexcept ImportError:\n    torch = None\ntorch.cuda.synchronize()\n",
        "try:\n    import torch\n    "
        + NPU
        + "except ImportError:\n    torch = None\ntorch.npu.synchronize()\n",
    ),
    "on a shared line": (
        "import torch; torch.cuda.synchronize()\n",
        "import torch; import torch_npu; torch.npu.synchronize()\n",
    ),
    "without a last line end": (
        "x.cuda()\nimport torch",
        "x.npu()\nimport torch\nimport torch_npu  # noqa: F401",
    ),
    "behind the docstring and __future__": (
        '"""Doc."""\nfrom __future__ import annotations\nimport torch\nx = torch.ones(1).cuda()\n',
        '"""Doc."""\nfrom __future__ import annotations\nimport torch\n'
        + NPU
        + "x = torch.ones(1).npu()\n",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_imports(case: str) -> None:
    before, after = CASES[case]
    result = rewrite_source(before, Options())
    assert result.text == after
    assert not rewrite_source(after, Options()).changed


def test_a_package_keeps_what_it_offers() -> None:
    source = "import torch\nfrom torch import float64\nx = torch.ones(2, dtype=float64)\n"
    result = rewrite_source(source, Options(), path="package/__init__.py")
    assert "from torch import float64" in result.text

"""What somebody has ported by hand stays as it is; what this tool ported goes on to be told of."""

from __future__ import annotations

from textwrap import indent

import pytest

from cuda2npu.engine import rewrite_source
from cuda2npu.gathering.twins import twins
from cuda2npu.model import Options

SYNCHRONIZE = """\
def synchronize(device):
    if device.type == "npu":
        torch.npu.synchronize()
    elif device.type == "cuda":
        torch.cuda.synchronize()
"""
BY_HAND = {
    "two types": SYNCHRONIZE,
    "two ifs": SYNCHRONIZE.replace("elif", "if"),
    "a list": 'if x.device.type in ("cuda", "npu"):\n    x = x.float()\n',
    "two modules": "if torch.npu.is_available():\n    torch.npu.empty_cache()\n"
    "else:\n    torch.cuda.empty_cache()\n    net = nn.DataParallel(net)\n",
    "a name of its own": "if is_torch_npu_available():\n    net = net.npu()\n"
    "elif torch.cuda.is_available():\n    net = nn.DataParallel(net)\n",
    "a question of its own": "def is_cuda_available():\n    return torch.version.cuda is not None\n"
    "def is_npu_available():\n    return False\n",
    "another method of the class": "class Adam:\n    def __init__(self):\n"
    "        if torch.cuda.is_available():\n            self.op = torch.cuda.Stream()\n"
    + indent(SYNCHRONIZE, "    "),
    "an arm without a twin": 'if torch.npu.is_available():\n    d = "npu"\n'
    "else:\n    net = net.cuda()\n",
}
MAPPED = {
    "assigned": 'def f(kind):\n    if kind == "npu":\n        kind = "cuda"\n    x.to(kind)\n',
    "one of two": 'if kind in ("npu", "xpu"):\n    kind = "cuda"\nx.to(kind)\n',
    "a number": 'if device.startswith("npu"):\n    device = "cuda:0"\n',
    "returned": 'def f(device):\n    if device.type == "npu":\n        return "cuda"\n',
    "a case": 'match device:\n    case "npu":\n        device = "cuda"\n',
    "replaced": 'd = torch.device(str(x.device).replace("npu", "cuda"))\n',
    "an expression": 'device = "cuda" if x.device.type == "npu" else x.device.type\n',
}
IMPORTS = "import torch\nimport torch_npu  # noqa: F401\nfrom torch import nn\n"


def _after(code: str, options: Options | None = None) -> str:
    return rewrite_source(IMPORTS + code, options or Options()).text


def _codes(code: str) -> list[str]:
    return [finding.code for finding in rewrite_source(IMPORTS + code, Options()).remaining]


@pytest.mark.parametrize("code", {**BY_HAND, **MAPPED}.values(), ids=[*BY_HAND, *MAPPED])
def test_what_is_ported_by_hand_stays_and_is_not_told_of(code: str) -> None:
    assert _after(code, Options(unsafe=True)) == IMPORTS + code
    assert _codes(code) == []


@pytest.mark.parametrize(
    ("leftover", "edited"),
    [
        (
            'if x.device.type == "npu":\n    n = torch.cuda.device_count()\n',
            "torch.npu.device_count",
        ),
        ('if x.device.type != "npu":\n    kind = "cpu"\nx.cuda()\n', "x.npu()"),
        ('if kind == "npu":\n    y = torch.ones(2, device="cuda")\n', 'device="npu"'),
    ],
)
def test_a_half_ported_place_is_edited(leftover: str, edited: str) -> None:
    assert edited in _after(leftover)


GUARDS = (
    "if cuda and torch.cuda.device_count() > 1:",
    "if use_cuda:\n    torch.cuda.is_available()\nif use_cuda:",
    'if x.device.type == "cuda" and fast:',
    "if not torch.cuda.is_available():",
    "if tpu:\n    pass\nelif torch.cuda.is_available():\n    pass\nelse:",
    "def use_cuda_graph(x=torch.cuda.is_available()):",
)


@pytest.mark.parametrize("guard", GUARDS)
def test_below_a_guard_that_was_rewritten_findings_stand(guard: str) -> None:
    body = indent(f"{guard}\n    net = nn.DataParallel(net)\n    fetch('b0', 'cuda')\n", "    ")
    code = f"import torch\nfrom torch import nn\ndef f(cuda, use_cuda, x):\n{body}"
    new = rewrite_source(code, Options()).text
    left = rewrite_source(new, Options())
    assert "torch.npu" in new or '"npu"' in new
    assert "NPU141" in {finding.code for finding in left.remaining}
    assert not left.changed
    assert "fetch('b0', 'npu')" in rewrite_source(new, Options(unsafe=True)).text


def test_a_branch_for_another_runtime_keeps_what_is_said_of_packages() -> None:
    branch = (
        "if engine:\n    import onnxruntime\n"
        '    s = onnxruntime.InferenceSession(w, providers=["CUDAExecutionProvider"])\n'
        '    device = torch.device("cuda:0")\n'
    )
    assert _after(branch) == IMPORTS + branch
    assert _codes(branch) == ["NPU621"]


@pytest.mark.parametrize(
    ("path", "twin"),
    [
        ("a/cuda_accelerator.py", "a/npu_accelerator.py"),
        ("a/CudaOps.py", "a/NpuOps.py"),
        ("requirements/cuda.txt", "requirements/npu.txt"),
        ("a/cuda/ops.py", "a/npu/ops.py"),
        ("a/cuda/norm/ops.py", "a/npu/norm/ops.py"),
        ("a/cuda/cuda_ops.py", "a/npu/npu_ops.py"),
        ("a/cuda/cuda_ops.py", "a/cuda/npu_ops.py"),
    ],
)
def test_a_file_has_a_twin(path: str, twin: str) -> None:
    assert twins([twin, "z.py", path]) == {path: twin}


@pytest.mark.parametrize(
    ("path", "other"),
    [
        ("a/cuda_accelerator.py", "b/npu_accelerator.py"),
        ("a/cuda_accelerator.py", "a/npu_accelerator.txt"),
        ("a/cuda/ops.py", "a/npu/norm.py"),
        ("a/ops.py", "a/npu/ops.py"),
    ],
)
def test_a_file_has_none(path: str, other: str) -> None:
    assert twins([path, other]) == {}


@pytest.mark.parametrize(
    "code",
    [
        "import torch\ny = x.to(torch.float64 if torch.cuda.is_available() else torch.float32)\n",
        "from torch.cuda.amp import GradScaler\nscaler = GradScaler()\ny = x.double()\n",
    ],
)
def test_precision_that_was_kept_goes_on_to_be_told_of(code: str) -> None:
    options = Options(preserve_numerics=True)
    first = rewrite_source(code, options)
    again = rewrite_source(first.text, options)
    assert first.changed
    assert [f.code for f in first.remaining] == [f.code for f in again.remaining] != []


def test_a_guard_of_a_kernel_that_was_left_makes_no_choice_by_hand() -> None:
    code = (
        "import torch\nfrom lib import is_flash_attn_available\nclass Net:\n    def f(self):\n"
        "        self.on = is_flash_attn_available() and torch.cuda.is_available()\n"
        "        return torch.cuda.is_available()\n"
    )
    first = rewrite_source(code, Options())
    assert "torch.npu.is_available()" in first.text
    assert [f.code for f in first.remaining] == ["NPU105"]
    assert [f.code for f in rewrite_source(first.text, Options()).remaining] == ["NPU105"]

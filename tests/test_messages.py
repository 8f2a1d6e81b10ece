"""What findings advise: by what the code does, where a rule is about several things."""

from __future__ import annotations

import pytest

from cuda2npu.engine import rewrite_source
from cuda2npu.model import Options

ROTARY = "torch_npu.npu_rotary_mul"
SPECTRUM = "Compute spectra where the data is loaded"
SDPA = "scaled_dot_product_attention"
SPARSE = "torch.sparse_csr_tensor"
ENTROPY = "torch.nn.CrossEntropyLoss"


@pytest.mark.parametrize(
    ("code", "source", "said", "unsaid"),
    [
        ("NPU421", "def rotary(x): return torch.view_as_complex(x)", ROTARY, SPECTRUM),
        ("NPU421", "freqs_cis = torch.polar(one, angle)", ROTARY, SPECTRUM),
        ("NPU421", "z = torch.stft(x, 8)\ny = torch.view_as_complex(mask)", SPECTRUM, ROTARY),
        (
            "NPU421",
            "class Spectrogram:\n    def __call__(self, x): return torch.view_as_complex(x)",
            SPECTRUM,
            ROTARY,
        ),
        ("NPU421", "state = torch.view_as_complex(b)", "on the CPU", ROTARY),
        ("NPU603", "from xformers.ops import memory_efficient_attention", SDPA, SPARSE),
        ("NPU603", "from xformers.sparse import SparseCSRTensor", SPARSE, SDPA),
        ("NPU602", "from flash_attn.losses.cross_entropy import CrossEntropyLoss", ENTROPY, SDPA),
        ("NPU602", "from flash_attn.bert_padding import pad_input", "bert_padding", SDPA),
    ],
)
def test_advice_by_use(code: str, source: str, said: str, unsaid: str) -> None:
    result = rewrite_source(f"import torch\n{source}\n", Options())
    (message,) = [finding.message for finding in result.findings if finding.code == code]
    assert said in message
    assert unsaid not in message


def test_advice_for_all_that_a_file_takes_from_a_package() -> None:
    source = "import flash_attn.bert_padding\nfrom flash_attn import flash_attn_func\n"
    result = rewrite_source(f"import torch\n{source}", Options())
    (message,) = [finding.message for finding in result.findings if finding.code == "NPU602"]
    assert "bert_padding" in message
    assert SDPA in message


@pytest.mark.parametrize(
    "source",
    [
        "assert torch.cuda.device_count() > rank, 'insufficient CUDA devices'",
        "p.add_argument('--device', default='', help='cuda device, i.e. 0 or cpu')",
        "raise RuntimeError('set CUDA_VISIBLE_DEVICES')",
    ],
)
def test_texts_that_name_nothing_edited_stay(source: str) -> None:
    result = rewrite_source(f"import torch\n{source}\n", Options())
    assert source.rpartition("'")[0].rpartition("'")[2] in result.text

"""What the advice on fused operators says is evaluated beside the code that it is about."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import Any

import torch
import torch_npu
from cuda2npu_codemods import advice_activations, advice_attention, advice_norms, advice_rotary
from support import run_cases
from torch.nn import functional

from cuda2npu.engine import rewrite_source
from cuda2npu.model import Options

Names = dict[str, Any]


def run(code: str) -> Names:
    names: Names = {"__name__": "example"}
    exec(compile(code, "example.py", "exec"), names)
    return names


def advised(code: str, rule: str, **names: Any) -> Any:
    """The value of the call that the rule's first finding about the code names."""
    findings = rewrite_source(code, Options(select=(rule,))).findings
    assert findings, code
    text = findings[0].message.partition("torch_npu.")[2]
    ends = (index for index, letter in enumerate(text, 1) if letter == ")")
    call = next(text[:end] for end in ends if text[:end].count("(") == text[:end].count(")"))
    whole = "torch_npu." + call + ("[0]" if text[len(call) :].startswith("[0]") else "")
    ast.parse(whole, mode="eval")
    known = {"torch": torch, "torch_npu": torch_npu, "math": math, **names}
    return eval(whole, known)


def drawn(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator).to("npu")


def same(one: torch.Tensor, other: torch.Tensor) -> None:
    torch.testing.assert_close(one.cpu(), other.cpu(), atol=1e-5, rtol=1e-5)


def norm(code: str) -> tuple[Any, torch.Tensor]:
    module = run(code)["RMSNorm"](16).to("npu")
    with torch.no_grad():
        module.weight.copy_(drawn(16))
    return module, drawn(2, 5, 16)


def case_rms_norm() -> None:
    module, x = norm(advice_norms._LLAMA)
    same(module(x), advised(advice_norms._LLAMA, "NPU750", self=module, x=x))


def case_rms_norm_that_adds_one() -> None:
    code = advice_norms._GEMMA.replace(
        "    def _norm",
        "    def __init__(self, dim):\n"
        "        super().__init__()\n"
        "        self.weight = torch.nn.Parameter(torch.ones(dim))\n"
        "        self.eps = 1e-6\n\n"
        "    def _norm",
    )
    module, x = norm(code)
    same(module(x), advised(code, "NPU750", self=module, x=x))
    named = code.replace("output * (1.0 + self.weight.float())", "output * (1.0 + w)").replace(
        "        output = self._norm", "        w = self.weight\n        output = self._norm"
    )
    same(module(x), advised(named, "NPU750", self=module, x=x))
    gemma = torch_npu.npu_gemma_rms_norm(x, module.weight.detach(), module.eps)[0]
    same(module(x), gemma)


def case_rms_norm_has_a_gradient() -> None:
    module, x = norm(advice_norms._LLAMA)
    x.requires_grad_()
    advised(advice_norms._LLAMA, "NPU750", self=module, x=x).sum().backward()
    fused = x.grad, module.weight.grad
    x.grad = module.weight.grad = None
    module(x).sum().backward()
    for one, other in zip(fused, (x.grad, module.weight.grad), strict=True):
        same(one, other)


def case_add_then_rms_norm() -> None:
    code = advice_norms._LLAMA + advice_norms._BLOCK
    block = run(code)["Block"](16).to("npu")
    x, residual = drawn(2, 5, 16), drawn(2, 5, 16) * 2
    adds_and_normalizes(code, block, block(x, residual), x=x, residual=residual)


def adds_and_normalizes(code: str, block: Any, expected: Any, **names: Any) -> None:
    with torch.no_grad():
        y, _, total = advised(code, "NPU756", self=block, **names)
    same(y, expected[0])
    same(total, expected[1])


_ADDING = """import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.project, self.ln_1 = nn.Linear(dim, dim), nn.RMSNorm(dim, eps=0.1)

    def attention(self, hidden, position_embeddings, attention_mask):
        return self.project(hidden) * position_embeddings + attention_mask

    def forward(self, x, position_embeddings, attention_mask):
        SUM
        return y, total
"""


def adding(*statements: str) -> None:
    """A sum and a norm, written so, beside what is advised for them."""
    code = _ADDING.replace("SUM", "\n        ".join(statements))
    block = run(code)["Block"](16).to("npu")
    tensors = {
        "x": drawn(2, 5, 16),
        "position_embeddings": drawn(2, 5, 16) * 2,
        "attention_mask": drawn(5, 1),
    }
    with torch.no_grad():
        block.ln_1.weight.copy_(drawn(16))
        expected = block(**{name: tensor.clone() for name, tensor in tensors.items()})
    adds_and_normalizes(code, block, expected, **tensors)


_LONG = "self.attention(x, position_embeddings=position_embeddings, attention_mask=attention_mask)"


def case_long_operand_of_add_then_rms_norm() -> None:
    adding(f"total = x + {_LONG}", "y = self.ln_1(total)")


def case_sum_in_place_before_rms_norm() -> None:
    adding("x += self.project(x)", "y, total = self.ln_1(x), x")


def case_names_that_hold_the_sum_at_the_norm() -> None:
    moved = "x = position_embeddings + x", "position_embeddings = x", "x = self.ln_1(x)"
    adding(*moved, "y, total = x, position_embeddings")


def case_epsilon_that_is_not_given() -> None:
    code = _ADDING.replace(", eps=0.1", "").replace("SUM", "total = x + x; y = self.ln_1(total)")
    block, x = run(code)["Block"](16).to("npu"), drawn(2, 5, 16)
    adds_and_normalizes(code, block, block(x, None, None), x=x)


def case_names_that_change_between_scores_and_mask() -> None:
    code = advice_attention._ATTENTION.replace(
        "    if mask", "    mask, v = mask[:, None], v * 2\n    if mask"
    )
    tensors, mask = attention_inputs(), (drawn(2, 6, 7) > -0.5).int()
    mask[..., 0] = 1
    expected = run(code)["attention"](**tensors, mask=mask)
    same(expected, advised(code, "NPU755", mask=mask, **tensors))


def angles(width: int) -> torch.Tensor:
    return drawn(1, 1, 6, width)


def case_rotary_half() -> None:
    code = advice_rotary._HALF + advice_rotary._APPLY
    q, wide = drawn(2, 4, 6, 8), torch.cat((angles(4), angles(4)), dim=-1)
    cos, sin = wide.cos(), wide.sin()
    expected = run(code)["apply_rotary_pos_emb"](q, q, cos, sin)[0]
    same(expected, advised(code, "NPU751", q=q, cos=cos, sin=sin))


def case_rotary_interleaved() -> None:
    code = advice_rotary._EVERY_TWO + advice_rotary._APPLY
    q, wide = drawn(2, 4, 6, 8), angles(4).repeat_interleave(2, dim=-1)
    cos, sin = wide.cos(), wide.sin()
    expected = run(code)["apply_rotary_pos_emb"](q, q, cos, sin)[0]
    same(expected, advised(code, "NPU751", q=q, cos=cos, sin=sin))


def case_rotary_of_half_width() -> None:
    x, cos, sin = drawn(2, 4, 6, 8), angles(4).cos(), angles(4).sin()
    expected = run(advice_rotary._NARROW)["rotate"](x, cos, sin)
    same(expected, advised(advice_rotary._NARROW, "NPU751", x=x, cos=cos, sin=sin))


def case_rotary_of_complex_numbers() -> None:
    x, turn = drawn(2, 4, 6, 8), angles(4).cpu()
    freqs = torch.polar(torch.ones_like(turn), turn).to("npu")
    expected = run(advice_rotary._COMPLEX)["apply_rotary_emb"](x, freqs)
    same(expected, advised(advice_rotary._COMPLEX, "NPU751", xq=x, freqs_cis=freqs))


def case_rotary_of_complex_numbers_in_bfloat16() -> None:
    x, turn = drawn(2, 4, 6, 8).bfloat16(), angles(4).cpu()
    freqs = torch.polar(torch.ones_like(turn), turn).to("npu")
    expected = run(advice_rotary._COMPLEX)["apply_rotary_emb"](x, freqs)
    given = advised(advice_rotary._COMPLEX, "NPU751", xq=x, freqs_cis=freqs)
    assert given.dtype == torch.float32
    same(expected, given.type_as(x))


def case_swiglu_of_two_projections() -> None:
    module, x = run(advice_activations._MLP)["MLP"](16, 8).npu(), drawn(2, 5, 16)
    hidden = advised(advice_activations._MLP, "NPU753", self=module, x=x)
    same(module(x), module.w2(hidden))


def case_swiglu_and_geglu_of_halves() -> None:
    x = drawn(2, 5, 16)
    first, second = x.chunk(2, dim=-1)
    code = advice_activations._CHUNKED
    for activation in ("gelu(gate)", 'gelu(gate, approximate="tanh")', "silu(gate)"):
        for turned in (False, True):
            text = code.replace("gelu(gate)", activation)
            text = text.replace("x, gate =", "gate, x =") if turned else text
            gate, up = (first, second) if turned else (second, first)
            rule = "NPU753" if "silu" in activation else "NPU754"
            rest = {"gate": gate} if rule == "NPU753" and not turned else {}
            given = advised(text, rule, x=up if rest else x, **rest)
            same(run(text)["geglu"](x), given)


def case_group_norm_then_silu() -> None:
    module, x = run(advice_activations._RESNET)["Block"](64).npu(), drawn(2, 64, 3, 3)
    same(module(x), advised(advice_activations._RESNET, "NPU757", self=module, x=x))


def attention_inputs() -> Names:
    return {"q": drawn(2, 4, 6, 8), "k": drawn(2, 4, 7, 8), "v": drawn(2, 4, 7, 8)}


def case_attention_with_a_mask() -> None:
    tensors = attention_inputs()
    mask = (drawn(2, 1, 6, 7) > -0.5).int()
    mask[..., 0] = 1
    expected = run(advice_attention._ATTENTION)["attention"](**tensors, mask=mask)
    given = advised(advice_attention._ATTENTION, "NPU755", mask=mask, **tensors)
    same(expected, given)
    same(
        expected,
        functional.scaled_dot_product_attention(**by_position(tensors), attn_mask=mask == 1),
    )


def by_position(tensors: Names) -> Names:
    return {"query": tensors["q"], "key": tensors["k"], "value": tensors["v"]}


def case_attention_with_a_bias() -> None:
    tensors, bias = attention_inputs(), drawn(2, 4, 6, 7)
    expected = run(advice_attention._ADDED)["attention"](**tensors, mask=bias)
    scale = 1 / math.sqrt(8)
    given = torch_npu.npu_fusion_attention(
        *tensors.values(), 4, "BNSD", pse=bias / scale, scale=scale
    )[0]
    same(expected, given)


def case_attention_by_einsum() -> None:
    tensors = attention_inputs()
    expected = run(advice_attention._EINSUM)["attention"](**tensors, scale=0.3)
    given = advised(advice_attention._EINSUM, "NPU755", scale=0.3, **tensors)
    same(expected, given)


def case_attention_with_heads_last() -> None:
    code = (
        "import torch\n"
        "def attention(q, k, v):\n"
        '    weights = torch.einsum("bqhd,bkhd->bhqk", q, k).softmax(-1)\n'
        '    return torch.einsum("bhqk,bkhd->bqhd", weights, v)\n'
    )
    tensors = {name: t.transpose(1, 2).contiguous() for name, t in attention_inputs().items()}
    same(run(code)["attention"](**tensors), advised(code, "NPU755", **tensors))


def learns(operator: Callable[..., Any], *tensors: torch.Tensor) -> bool:
    leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    try:
        operator(*leaves)[0].sum().backward()
    except RuntimeError as error:
        assert "derivative for npu::" in str(error)  # noqa: PT017
    return all(leaf.grad is not None for leaf in leaves)


def case_gradients() -> None:
    x, weight, image, ones = drawn(2, 5, 16), drawn(16), drawn(2, 4, 3, 3), drawn(4)
    q, k, v = attention_inputs().values()
    cos, sin = angles(8).cos(), angles(8).sin()
    assert learns(torch_npu.npu_rms_norm, x, weight)
    assert learns(torch_npu.npu_rotary_mul, q, cos, sin)
    assert learns(lambda *t: torch_npu.npu_rotary_mul(*t, "interleave"), q, cos, sin)
    assert learns(torch_npu.npu_swiglu, x)
    assert learns(torch_npu.npu_geglu, x)
    assert learns(lambda *t: torch_npu.npu_fusion_attention(*t, 4, "BNSD"), q, k, v)
    assert learns(lambda x, *rest: torch_npu.npu_group_norm_swish(x, 2, *rest), image, ones, ones)
    assert not learns(torch_npu.npu_gemma_rms_norm, x, weight)
    assert not learns(torch_npu.npu_add_rms_norm, x, x, weight)
    assert not learns(lambda *t: torch_npu.npu_group_norm_silu(*t, 2), image, ones, ones)


if __name__ == "__main__":
    run_cases(globals())

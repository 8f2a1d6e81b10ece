"""The fused attentions of torch_npu, computed step by step on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from cuda2npu.simulator.hosted import gradients, hosted

Tensor = torch.Tensor
_NO_MASK, _ALL_MASK, _LEFT_UP_CAUSAL, _RIGHT_DOWN_CAUSAL, _BAND = 0, 1, 2, 3, 4


def _heads_apart(tensor: Tensor, heads: int) -> Tensor:
    return tensor.reshape(*tensor.shape[:-1], heads, -1)


def _to_bnsd(tensor: Tensor, heads: int, layout: str) -> Tensor:
    if layout == "BNSD":
        return tensor
    if layout == "BSND":
        return tensor.transpose(1, 2)
    if layout == "BSH":
        return _heads_apart(tensor, heads).transpose(1, 2)
    if layout == "SBH":
        return _heads_apart(tensor, heads).permute(1, 2, 0, 3)
    raise NotImplementedError(f"not simulated: attention with input_layout={layout!r}")


def _from_bnsd(tensor: Tensor, layout: str) -> Tensor:
    if layout == "BSND":
        return tensor.transpose(1, 2).contiguous()
    if layout == "BSH":
        return tensor.transpose(1, 2).flatten(2)
    if layout == "SBH":
        return tensor.permute(2, 0, 1, 3).flatten(2)
    return tensor


def _hidden_positions(
    query: Tensor, key: Tensor, mask: Tensor | None, mode: int, before: int, after: int
) -> Tensor | None:
    """True where a query must not see a key."""
    rows, columns = query.size(-2), key.size(-2)
    if mode in (_NO_MASK, _ALL_MASK):
        return None if mask is None else mask.bool()
    row = torch.arange(rows).unsqueeze(1)
    column = torch.arange(columns).unsqueeze(0)
    if mode == _LEFT_UP_CAUSAL:
        return column > row
    shift = columns - rows
    if mode == _RIGHT_DOWN_CAUSAL:
        return column > row + shift
    if mode == _BAND:
        return (column > row + shift + after) | (column < row + shift - before)
    raise NotImplementedError(f"not simulated: attention with sparse_mode={mode}")


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    pse: Tensor | None = None,
    hidden: Tensor | None = None,
    scale: float = 1.0,
    keep_prob: float = 1.0,
    seed: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention of tensors in BNSD, with the maximum and the sum of each row's softmax."""
    groups = query.size(1) // key.size(1)
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scores = query.float() @ key.float().transpose(-1, -2)
    if pse is not None:
        scores = scores + pse.float()
    scores = scores * scale
    if hidden is not None:
        scores = scores.masked_fill(hidden, torch.finfo(torch.float32).min)
    top = scores.amax(-1, keepdim=True)
    powers = (scores - top).exp()
    total = powers.sum(-1, keepdim=True)
    weights = powers / total
    if keep_prob < 1.0:
        draws = torch.rand(weights.shape, generator=torch.Generator().manual_seed(seed))
        weights = weights * (draws < keep_prob) / keep_prob
    return (weights @ value.float()).to(query.dtype), top, total


def _pieces(
    query: Tensor, ends_q: Sequence[int], ends_k: Sequence[int]
) -> list[tuple[slice, slice]]:
    starts_q, starts_k = [0, *ends_q[:-1]], [0, *ends_k[:-1]]
    return [
        (slice(a, b), slice(c, d))
        for a, b, c, d in zip(starts_q, ends_q, starts_k, ends_k, strict=True)
    ]


def _forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    pse: Tensor | None,
    heads: int,
    layout: str,
    options: dict[str, Any],
    seed: int,
) -> tuple[Tensor, Tensor, Tensor]:
    mode = options.get("sparse_mode", 0)
    bounds = [options.get(k, 2147483647) for k in ("pre_tockens", "next_tockens")]
    mask = options.get("atten_mask")
    scale, keep = options.get("scale", 1.0), options.get("keep_prob", 1.0)
    if layout == "TND":
        outs, tops, totals = [], [], []
        ends_q, ends_k = _lengths(options["actual_seq_qlen"]), _lengths(options["actual_seq_kvlen"])
        for rows, columns in _pieces(query, ends_q, ends_k):
            q, k, v = (
                t[part].transpose(0, 1).unsqueeze(0)
                for t, part in ((query, rows), (key, columns), (value, columns))
            )
            hidden = _hidden_positions(q, k, _fit(mask, q, k, mode), mode, bounds[0], bounds[1])
            out, top, total = attend(q, k, v, hidden=hidden, scale=scale, keep_prob=keep, seed=seed)
            outs.append(out[0].transpose(0, 1))
            tops.append(top[0].transpose(0, 1))
            totals.append(total[0].transpose(0, 1))
        return torch.cat(outs), torch.cat(tops), torch.cat(totals)
    q = _to_bnsd(query, heads, layout)
    width = q.size(-1)
    kv_heads = key.size(-1) // width if layout in ("BSH", "SBH") else heads
    k, v = _to_bnsd(key, kv_heads, layout), _to_bnsd(value, kv_heads, layout)
    hidden = _hidden_positions(q, k, mask, mode, bounds[0], bounds[1])
    out, top, total = attend(
        q, k, v, pse=pse, hidden=hidden, scale=scale, keep_prob=keep, seed=seed
    )
    return _from_bnsd(out, layout), top, total


def _lengths(value: Any) -> list[int]:
    if value is None:
        raise RuntimeError("input_layout TND needs actual_seq_qlen and actual_seq_kvlen")
    return [int(v) for v in (value.tolist() if isinstance(value, Tensor) else value)]


def _fit(mask: Tensor | None, query: Tensor, key: Tensor, mode: int) -> Tensor | None:
    if mask is None or mode > _ALL_MASK:
        return mask
    return mask[..., : query.size(-2), : key.size(-2)]


@hosted
def fusion_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    head_num: int,
    input_layout: str,
    pse: Tensor | None = None,
    padding_mask: Tensor | None = None,
    atten_mask: Tensor | None = None,
    scale: float = 1.0,
    keep_prob: float = 1.0,
    pre_tockens: int = 2147483647,
    next_tockens: int = 2147483647,
    inner_precise: int = 0,
    prefix: Any = None,
    actual_seq_qlen: Any = None,
    actual_seq_kvlen: Any = None,
    sparse_mode: int = 0,
    *rest: Any,
    **more: Any,
) -> Any:
    seed = int(torch.randint(2**31, ())) if keep_prob < 1.0 else 0
    out, top, total = _forward(
        query,
        key,
        value,
        pse,
        head_num,
        input_layout,
        {
            "atten_mask": atten_mask,
            "scale": scale,
            "keep_prob": keep_prob,
            "pre_tockens": pre_tockens,
            "next_tockens": next_tockens,
            "actual_seq_qlen": actual_seq_qlen,
            "actual_seq_kvlen": actual_seq_kvlen,
            "sparse_mode": sparse_mode,
        },
        seed,
    )
    shape = [*top.shape[:-1], 8]  # the chip keeps eight copies of each
    return out, top.expand(shape), total.expand(shape), torch.empty(0), seed, 0, 0


@hosted
def fusion_attention_grad(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dy: Tensor,
    head_num: int,
    input_layout: str,
    *,
    pse: Tensor | None = None,
    scale_value: float = 1.0,
    seed: int = 0,
    **options: Any,
) -> Any:
    options["scale"] = scale_value
    inputs = [query, key, value, pse]

    def forward(q: Tensor, k: Tensor, v: Tensor, p: Tensor | None) -> Tensor:
        return _forward(q, k, v, p, head_num, input_layout, options, seed)[0]

    found = gradients(forward, inputs, [dy])
    return *(torch.empty(0) if g is None else g for g in found), torch.empty(0)


def _inference(returns_lse: bool) -> Callable[..., Any]:
    @hosted
    def kernel(query: Tensor, key: Any, value: Any, **options: Any) -> Any:
        for name in ("block_table", "quant_scale1", "dequant_scale1", "antiquant_scale"):
            if options.get(name) is not None:
                raise NotImplementedError(f"not simulated: attention with {name}")
        key, value = (t[0] if isinstance(t, list) else t for t in (key, value))
        heads = options.get("num_heads", 1)
        options["scale"] = options.get("scale_value", options.get("scale", 1.0))
        layout = options.get("input_layout", "BSH")
        out, top, total = _forward(
            query, key, value, options.get("pse_shift"), heads, layout, options, 0
        )
        return (out, top + total.log()) if returns_lse else out

    return kernel


KERNELS: dict[str, Callable[..., Any]] = {
    "npu_fusion_attention": fusion_attention,
    "npu_fusion_attention_grad": fusion_attention_grad,
    "npu_prompt_flash_attention": _inference(False),
    "npu_incre_flash_attention": _inference(False),
    "npu_fused_infer_attention_score": _inference(True),
}

"""The operators that the generic kernel cannot serve: copies, recurrent cells, attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cuda2npu.simulator import record
from cuda2npu.simulator.aliases import current_device, device_of, host_view, on_device
from cuda2npu.simulator.hosted import hosted
from cuda2npu.simulator.libraries import library, redirect

Tensor = torch.Tensor
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
_CPU_FLASH = 1

_composite = redirect("aten::scaled_dot_product_attention", _COMPOSITE)
_cpu_choice: Any = torch._fused_sdp_choice
_host_to_copy = torch.ops.aten._to_copy.default


def _as_seen(tensor: Tensor) -> Tensor:
    """The CPU's view with the lazy conjugation and negation that the tensor carries."""
    if tensor.get_device() < 0 or tensor.device.type != "npu":
        return tensor
    view = host_view(tensor)
    if tensor.dtype.is_complex and tensor.is_conj():
        view = torch._conj(view)
    return torch._neg_view(view) if tensor.is_neg() else view


def copy_(target: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    _as_seen(target).copy_(_as_seen(source))
    return target


def copy_from_and_resize(source: Tensor, target: Tensor) -> Tensor:
    target.resize_(source.size())
    return copy_(target, source)


def to_copy(
    source: Tensor,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format | None = None,
) -> Tensor:
    target = source.device if device is None else torch.device(device)
    dtype = source.dtype if dtype is None else dtype
    if target.type == "meta":
        return torch.empty_like(source, dtype=dtype, device=target)
    seen = _as_seen(source)
    if target.type == "cpu" or dtype != source.dtype or memory_format is not None:
        made: Tensor = _host_to_copy(
            seen, dtype=dtype, pin_memory=pin_memory, memory_format=memory_format
        )
        if target.type == "cpu":
            return made
        seen = made
    if dtype in (torch.float64, torch.complex128):
        kind = str(dtype).removeprefix("torch.")
        record.note(kind, "aten::_to_copy", f"a tensor of {kind} is put on the NPU")
    index = current_device() if target.index is None else target.index
    return on_device(seen, device_of(index))


def ones_like(source: Tensor, **options: Any) -> Tensor:
    """On the device that is asked for, as torch_npu's own ``empty_like`` makes it."""
    return torch.empty_like(source, **options).fill_(1)


def clone(source: Tensor, *, memory_format: torch.memory_format | None = None) -> Tensor:
    seen = _as_seen(source)
    if memory_format is not None and memory_format is not torch.preserve_format:
        seen = seen.clone(memory_format=memory_format)
    return on_device(seen, source.device)


@hosted
def lstm_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    cx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, ...]:
    gates = input_gates + hidden_gates
    if input_bias is not None and hidden_bias is not None:
        gates = gates + input_bias + hidden_bias
    i, f, g, o = gates.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat((i, f, g, o), 1)


@hosted
def lstm_cell_backward(
    grad_hy: Tensor | None,
    grad_cy: Tensor | None,
    cx: Tensor,
    cy: Tensor,
    workspace: Tensor,
    has_bias: bool,
) -> tuple[Tensor | None, ...]:
    if grad_hy is None and grad_cy is None:
        return None, None, None
    i, f, g, o = workspace.chunk(4, 1)
    squashed = cy.tanh()
    through = torch.zeros_like(cy) if grad_cy is None else grad_cy
    grad_o = torch.zeros_like(cy)
    if grad_hy is not None:
        through = through + grad_hy * o * (1 - squashed * squashed)
        grad_o = grad_hy * squashed
    gates = torch.cat(
        (
            through * g * i * (1 - i),
            through * cx * f * (1 - f),
            through * i * (1 - g * g),
            grad_o * o * (1 - o),
        ),
        1,
    )
    return gates, through * f, gates.sum(0) if has_bias else None


@hosted
def gru_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    hx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, ...]:
    if input_bias is not None:
        input_gates = input_gates + input_bias
    if hidden_bias is not None:
        hidden_gates = hidden_gates + hidden_bias
    input_r, input_z, input_n = input_gates.chunk(3, 1)
    hidden_r, hidden_z, hidden_n = hidden_gates.chunk(3, 1)
    r, z = (input_r + hidden_r).sigmoid(), (input_z + hidden_z).sigmoid()
    n = (input_n + r * hidden_n).tanh()
    return n + z * (hx - n), torch.cat((r, z, n, hx, hidden_n), 1)


@hosted
def gru_cell_backward(grad_hy: Tensor, workspace: Tensor, has_bias: bool) -> Any:
    r, z, n, hx, hidden_n = workspace.chunk(5, 1)
    grad_z = grad_hy * (hx - n) * (1 - z) * z
    grad_n = grad_hy * (1 - z) * (1 - n * n)
    grad_r = grad_n * hidden_n * (1 - r) * r
    inputs = torch.cat((grad_r, grad_z, grad_n), 1)
    hidden = torch.cat((grad_r, grad_z, grad_n * r), 1)
    biases = (inputs.sum(0), hidden.sum(0)) if has_bias else (None, None)
    return inputs, hidden, grad_hy * z, *biases


def sdp_choice(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> bool:
    """Whether the CPU would take its fused attention, and not plain operators."""
    if query.dtype is torch.float16 or (mask is not None and mask.requires_grad):
        return False
    views = [host_view(tensor) for tensor in (query, key, value)]
    seen = None if mask is None else host_view(mask)
    choice: int = _cpu_choice(*views, seen, dropout_p, is_causal, scale=scale)
    return choice == _CPU_FLASH


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """The choice is made here: torch asks a table that torch_npu has no entry in."""
    tensors = (query, key, value)
    mask = attn_mask
    on_one_device = all(t.get_device() == query.get_device() for t in tensors) and (
        mask is None or mask.get_device() == query.get_device()
    )
    if on_one_device and not enable_gqa and sdp_choice(*tensors, mask, dropout_p, is_causal, scale):
        if mask is not None and mask.dtype is torch.bool:
            hidden = torch.zeros((), dtype=query.dtype, device=query.device)
            mask = torch.where(mask, hidden, hidden - float("inf"))
        fused: Tensor = _fused(*tensors, mask, dropout_p, is_causal, False, scale=scale)[0]
        return fused
    plain: Tensor = _composite(
        *tensors, mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )
    return plain


_fused = torch.ops.aten._scaled_dot_product_fused_attention_overrideable
_attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_attend_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


@hosted
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    out, logsumexp = _attend(
        query, key, value, dropout_p, is_causal, attn_mask=attn_bias, scale=scale
    )
    none, zero = torch.empty(0), torch.zeros((), dtype=torch.int64)
    lengths = torch.empty(0, dtype=torch.int32)
    return out, logsumexp, lengths, lengths, query.size(2), key.size(2), zero, zero, none


@hosted
def attention_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor,
    grad_input_mask: list[bool],
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Tensor,
    cum_seq_k: Tensor,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Tensor,
    philox_offset: Tensor,
    *,
    scale: float | None = None,
) -> Any:
    grads = _attend_backward(
        grad_out,
        query,
        key,
        value,
        out,
        logsumexp,
        dropout_p,
        is_causal,
        attn_mask=attn_bias if attn_bias is not None and attn_bias.numel() else None,
        scale=scale,
    )
    return *grads, None


def pack_padded_sequence(source: Tensor, lengths: Tensor, batch_first: bool) -> Any:
    """The sizes of the batches stay on the CPU, where the recurrent layers read them."""
    seen = host_view(source) if source.get_device() >= 0 else source
    data, sizes = torch.ops.aten._pack_padded_sequence.default(seen, lengths.cpu(), batch_first)
    return on_device(data, source.device), sizes


_KERNELS: dict[str, Callable[..., Any]] = {
    "copy_": copy_,
    "_copy_from_and_resize": copy_from_and_resize,
    "_to_copy": to_copy,
    "clone": clone,
    "ones_like": ones_like,
    "_thnn_fused_lstm_cell": lstm_cell,
    "_thnn_fused_lstm_cell_backward_impl": lstm_cell_backward,
    "_thnn_fused_gru_cell": gru_cell,
    "_thnn_fused_gru_cell_backward": gru_cell_backward,
    "_pack_padded_sequence": pack_padded_sequence,
    "_scaled_dot_product_fused_attention_overrideable": attention,
    "_scaled_dot_product_fused_attention_overrideable_backward": attention_backward,
}


def register() -> None:
    put = library("aten")
    for key in ("AutogradPrivateUse1", "PrivateUse1"):
        put("scaled_dot_product_attention", key, scaled_dot_product_attention)
    for name, kernel in _KERNELS.items():
        put(name, "PrivateUse1", kernel)

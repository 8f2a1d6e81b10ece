"""The operators of the namespace ``npu``: the commonest have a body, the others say so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from cuda2npu.simulator import native_attention, native_norms
from cuda2npu.simulator.hosted import gradients, hosted
from cuda2npu.simulator.libraries import library

Tensor = torch.Tensor
# torch_npu's own: they allocate or describe memory, or work on the host.
_NATIVE = frozenset(
    """
    get_npu_format get_storage_size empty_with_format unsafe_empty_with_format copy_memory_
    npu_change_data_ptr empty_with_swapped_memory set_op_timeout_ms super_kernel_scope_begin
    super_kernel_scope_end _npu_distribute_barrier
    """.split()
)
_DTYPES = (
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32,
    torch.float64, torch.complex32, torch.complex64, torch.complex128, torch.bool, None, None, None,
    torch.bfloat16,
)  # fmt: skip


def _dtype(value: Any) -> torch.dtype:
    found = value if isinstance(value, torch.dtype) else _DTYPES[value]
    if found is None:
        raise NotImplementedError(f"not simulated: a cast to the scalar type {value}")
    return found


def rotated(x: Tensor, mode: str) -> Tensor:
    if mode == "half":
        a, b = x.chunk(2, -1)
        return torch.cat((-b, a), -1)
    pairs = x.reshape(*x.shape[:-1], -1, 2)
    return torch.stack((-pairs[..., 1], pairs[..., 0]), -1).flatten(-2)


def rotary(x: Tensor, r1: Tensor, r2: Tensor, mode: str = "half", rotate: Any = None) -> Tensor:
    turned = x @ rotate if rotate is not None else rotated(x, mode)
    return x * r1 + turned * r2


def rotary_both(
    query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, layout: str = "", mode: str = "half"
) -> tuple[Tensor, Tensor]:
    return rotary(query, cos, sin, mode), rotary(key, cos, sin, mode)


def swiglu(x: Tensor, dim: int = -1) -> Tensor:
    a, b = x.chunk(2, dim)
    return functional.silu(a) * b


def geglu(x: Tensor, dim: int = -1, approximate: int = 1, activate_left: bool = False) -> Any:
    a, b = x.chunk(2, dim)
    if activate_left:
        a, b = b, a
    gelu = functional.gelu(b, approximate="tanh" if approximate else "none")
    return a * gelu, gelu


def fast_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    return functional.gelu(x, approximate=approximate)


def gelu_mul(x: Tensor, *, approximate: str = "none") -> Tensor:
    a, b = x.chunk(2, -1)
    return functional.gelu(a, approximate=approximate) * b


def scaled_masked_softmax(
    x: Tensor, mask: Tensor, scale: float = 1.0, fixed_triu_mask: bool = False
) -> Tensor:
    if fixed_triu_mask:
        mask = torch.ones(x.shape[-2:], dtype=torch.bool).triu(1)
    return torch.softmax((x.float() * scale).masked_fill(mask.bool(), -10000.0), -1).to(x.dtype)


def scaled_masked_softmax_backward(
    grad: Tensor, y: Tensor, mask: Tensor, scale: float, fixed_triu_mask: bool
) -> Tensor:
    if fixed_triu_mask:
        mask = torch.ones(y.shape[-2:], dtype=torch.bool).triu(1)
    inner = torch._softmax_backward_data(grad.float(), y.float(), -1, torch.float32)
    return (inner * scale).masked_fill(mask.bool(), 0.0).to(y.dtype)


def soft_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return -(labels * functional.log_softmax(logits, -1)).sum(-1)


def dropout(x: Tensor, p: float) -> tuple[Tensor, Tensor]:
    mask = torch.empty_like(x).bernoulli_(1 - p)
    return x * mask / (1 - p) if p < 1 else torch.zeros_like(x), mask.to(torch.uint8)


def dropout_backward(grad: Tensor, mask: Tensor, p: float) -> Tensor:
    return grad * mask / (1 - p) if p < 1 else torch.zeros_like(grad)


def confusion_transpose(x: Tensor, perm: list[int], shape: list[int], first: bool) -> Tensor:
    return x.permute(perm).reshape(shape) if first else x.reshape(shape).permute(perm).contiguous()


def confusion_transpose_backward(
    grad: Tensor, perm: list[int], shape: list[int], first: bool
) -> Tensor:
    """``first`` is the forward's, negated: torch_npu's formula passes it so."""
    back = sorted(range(len(perm)), key=perm.__getitem__)
    if not first:
        return grad.reshape([shape[p] for p in perm]).permute(back).contiguous()
    return grad.permute(back).reshape(shape)


def linear_backward(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    return grad @ weight, grad.flatten(0, -2).t() @ x.flatten(0, -2)


def one_hot(x: Tensor, classes: int = -1, depth: int = 1, on: Any = 1, off: Any = 0) -> Tensor:
    count = depth if classes < 0 else classes
    hit = x.long().unsqueeze(-1) == torch.arange(count)
    return torch.where(hit, float(on), float(off))


def extreme_backward(
    grad: Tensor, dim: int, indices: Tensor, sizes: list[int], keepdim: bool
) -> Tensor:
    if not keepdim and sizes:
        grad, indices = grad.unsqueeze(dim), indices.unsqueeze(dim)
    return torch.zeros(sizes, dtype=grad.dtype).scatter(dim, indices.long(), grad)


def extreme(function: Callable[..., Any]) -> Callable[..., Any]:
    def body(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
        values, indices = function(x, dim, keepdim)
        return values, indices.int()

    return body


def slice_(x: Tensor, offsets: list[int], size: list[int]) -> Tensor:
    for dim, (start, length) in enumerate(zip(offsets, size, strict=True)):
        x = x.narrow(dim, start, x.size(dim) - start if length < 0 else length)
    return x.contiguous()


def backward_of(forward: Callable[..., Any], inputs: int, **fixed: Any) -> Callable[..., Any]:
    """``backward(grad, *inputs, *options)`` of a forward that is differentiated by autograd."""

    def body(grad: Tensor, *args: Any, **options: Any) -> Any:
        tensors, rest = args[:inputs], args[inputs:]

        def run(*leaves: Any) -> Any:
            return forward(*leaves, *rest, **options, **fixed)

        found = gradients(run, tensors, [grad])
        return found[0] if inputs == 1 else tuple(found)

    return body


def cross_entropy(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    *_rest: Any,
) -> Any:
    log_prob = functional.log_softmax(logits, -1)
    loss = functional.cross_entropy(
        logits,
        target,
        weight,
        reduction=reduction,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
    )
    return loss, log_prob, torch.empty(0), torch.empty(0)


def cross_entropy_backward(
    grad: Tensor,
    log_prob: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    grad_zloss: Any = None,
    lse: Any = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    *_rest: Any,
) -> Any:
    def forward(logits: Tensor) -> Any:
        return cross_entropy(logits, target, weight, reduction, ignore_index, label_smoothing)[0]

    return gradients(forward, [log_prob], [grad])[0]


def token_permute(
    tokens: Tensor, indices: Tensor, count: int | None = None, padded_mode: bool = False
) -> tuple[Tensor, Tensor]:
    per_token = 1 if indices.dim() == 1 else indices.size(1)
    order = torch.argsort(indices.flatten(), stable=True)
    kept = order if not count else order[:count]
    return tokens.index_select(0, kept // per_token), torch.argsort(order).int()


def token_unpermute(
    permuted: Tensor,
    positions: Tensor,
    probs: Tensor | None = None,
    padded_mode: bool = False,
    restore_shape: Any = None,
) -> Tensor:
    per_token = 1 if probs is None else probs.size(1)
    rows = permuted.new_zeros(positions.numel(), permuted.size(-1))
    inside = positions.long() < permuted.size(0)
    rows[inside] = permuted[positions.long()[inside]]
    rows = rows.reshape(-1, per_token, permuted.size(-1))
    return (rows * probs.unsqueeze(-1) if probs is not None else rows).sum(1).to(permuted.dtype)


def non_finite(grads: list[Tensor]) -> bool:
    return any(not bool(torch.isfinite(grad).all()) for grad in grads)


def cast(x: Tensor, dtype: Any, *_rest: Any, **_more: Any) -> Tensor:
    return x.to(_dtype(dtype), copy=True)


def same_values(x: Tensor, *_rest: Any, **_more: Any) -> Tensor:
    return x.clone()


def same_tensor(x: Tensor, *_rest: Any, **_more: Any) -> Tensor:
    return x


_BODIES: dict[str, Callable[..., Any]] = {
    "npu_dtype_cast": cast,
    "_npu_dtype_cast": cast,
    "npu_dtype_cast_backward": cast,
    "_npu_dtype_cast_backward": cast,
    "npu_dtype_cast_": lambda x, src: x.copy_(src),
    "npu_format_cast": same_values,
    "npu_format_cast.Tensor": same_values,
    "_npu_format_cast": same_values,
    "_npu_format_cast.aclnn": same_values,
    "_npu_format_cast.input_dtype": same_values,
    "npu_format_cast_": same_tensor,
    "npu_format_cast_.acl_format": same_tensor,
    "npu_rotary_mul": rotary,
    "npu_rotary_mul_backward": backward_of(rotary, 3),
    "npu_apply_rotary_pos_emb": rotary_both,
    "npu_swiglu": swiglu,
    "npu_swiglu_backward": backward_of(swiglu, 1),
    "npu_geglu": geglu,
    "npu_geglu_grad": lambda grad, x, _gelu, *rest: backward_of(geglu, 1)(grad, x, *rest),
    "npu_gelu": gelu,
    "npu_gelu_backward": backward_of(gelu, 1),
    "npu_gelu_mul": gelu_mul,
    "fast_gelu": fast_gelu,
    "npu_fast_gelu": fast_gelu,
    "npu_fast_gelu_backward": backward_of(fast_gelu, 1),
    "npu_silu": functional.silu,
    "npu_silu_": lambda x: functional.silu(x, inplace=True),
    "npu_silu_backward": lambda grad, x, _y: backward_of(functional.silu, 1)(grad, x),
    "npu_mish": functional.mish,
    "npu_mish_backward": backward_of(functional.mish, 1),
    "npu_linear": functional.linear,
    "npu_linear_backward": linear_backward,
    "npu_bmmV2": lambda a, b, _sizes: a @ b,
    "npu_bmm_v2_mat1_backward": lambda g, a, b, size: (g @ b.transpose(-1, -2)).reshape(size),
    "npu_bmm_v2_mat2_backward": lambda g, a, b, size: (a.transpose(-1, -2) @ g).reshape(size),
    "npu_scaled_masked_softmax": scaled_masked_softmax,
    "npu_scaled_masked_softmax_backward": scaled_masked_softmax_backward,
    "npu_softmax_cross_entropy_with_logits": soft_cross_entropy,
    "npu_softmax_cross_entropy_with_logits_backward": backward_of(soft_cross_entropy, 1),
    "npu_cross_entropy_loss": cross_entropy,
    "npu_cross_entropy_loss_backward": cross_entropy_backward,
    "_npu_dropout": dropout,
    "npu_dropout_backward": dropout_backward,
    "npu_dropout_do_mask": lambda x, mask, p: (dropout_backward(x, mask, p), mask.clone()),
    "npu_confusion_transpose": confusion_transpose,
    "npu_confusion_transpose_backward": confusion_transpose_backward,
    "npu_transpose": lambda x, perm, *_: x.permute(perm).contiguous(),
    "npu_reshape": lambda x, shape, *_: x.reshape(shape).clone(),
    "npu_broadcast": lambda x, size: x.expand(size).contiguous(),
    "npu_slice": slice_,
    "npu_view_copy": lambda x, other, *_: x.copy_(other),
    "npu_stride_copy": lambda x, shape, stride, offset: x.as_strided(
        shape, stride, int(offset)
    ).clone(),
    "npu_one_hot": one_hot,
    "npu_sort_v2": lambda x, dim=-1, descending=False: torch.sort(x, dim, descending)[0],
    "npu_max.dim": extreme(torch.max),
    "npu_min.dim": extreme(torch.min),
    "npu_max_backward": extreme_backward,
    "npu_min_backward": extreme_backward,
    "npu_moe_token_permute": token_permute,
    "npu_moe_token_unpermute": token_unpermute,
    "_npu_moe_token_unpermute": lambda tokens, *rest: (
        token_unpermute(tokens, *rest),
        tokens.clone(),
    ),
    "one_": lambda x: x.fill_(1),
    "npu_alloc_float_status": lambda x: torch.zeros(8),
    "npu_get_float_status": same_tensor,
    "npu_clear_float_status": lambda x, mode=0: x.zero_(),
    "_amp_foreach_non_finite_check": non_finite,
}


def _refusal(name: str) -> Callable[..., Any]:
    def kernel(*_args: Any, **_kwargs: Any) -> Any:
        raise NotImplementedError(f"not simulated: {name}")

    return kernel


def simulated() -> frozenset[str]:
    """The operators of the namespace that have a body."""
    return (
        frozenset(_BODIES) | frozenset(native_attention.KERNELS) | frozenset(native_norms.KERNELS)
    )


def register() -> None:
    put = library("npu")
    bodies = {name: hosted(body) for name, body in _BODIES.items()}
    bodies.update(native_attention.KERNELS)
    bodies.update(native_norms.KERNELS)
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    for full in torch._C._dispatch_get_all_op_names():
        namespace, _, name = full.partition("::")
        if namespace != "npu" or name in _NATIVE:
            continue
        if name in bodies:
            put(name, "PrivateUse1", bodies[name])
        elif has(full, "PrivateUse1"):
            put(name, "PrivateUse1", _refusal(full))
    put = library("aten")
    for name, kernel in native_norms.ATEN_KERNELS.items():
        put(name, "PrivateUse1", kernel)

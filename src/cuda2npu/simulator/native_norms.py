"""The fused normalizations of torch_npu, and the steps of synchronized batch norm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from cuda2npu.simulator.hosted import gradients, hosted

Tensor = torch.Tensor


def _last_dims(tensor: Tensor, gamma: Tensor) -> list[int]:
    return list(range(tensor.dim() - gamma.dim(), tensor.dim()))


def _rms(x: Tensor, gamma: Tensor, epsilon: float, shift: float = 0.0) -> tuple[Tensor, Tensor]:
    wide = x.float()
    rstd = (wide.pow(2).mean(_last_dims(x, gamma), keepdim=True) + epsilon).rsqrt()
    return (wide * rstd * (gamma.float() + shift)).to(x.dtype), rstd


@hosted
def rms_norm(x: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> Any:
    return _rms(x, gamma, epsilon)


@hosted
def gemma_rms_norm(x: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> Any:
    return _rms(x, gamma, epsilon, 1.0)


@hosted
def rms_norm_backward(dy: Tensor, x: Tensor, gamma: Tensor, rstd: Tensor) -> Any:
    dims = _last_dims(x, gamma)
    normal = x.float() * rstd
    scaled = dy.float() * gamma.float()
    dx = rstd * (scaled - normal * (scaled * normal).mean(dims, keepdim=True))
    outer = list(range(x.dim() - gamma.dim()))
    dgamma = (dy.float() * normal).sum(outer) if outer else dy.float() * normal
    return dx.to(x.dtype), dgamma


@hosted
def add_rms_norm(x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> Any:
    total = x1 + x2
    return *_rms(total, gamma, epsilon), total


@hosted
def add_layer_norm(
    x1: Tensor,
    x2: Tensor,
    gamma: Tensor,
    beta: Tensor,
    epsilon: float = 1e-5,
    additional_output: bool = False,
) -> Any:
    total = x1 + x2
    y, mean, rstd = torch.native_layer_norm(total, gamma.shape, gamma, beta, epsilon)
    return y, mean.float(), rstd.float(), total


@hosted
def add_layer_norm_backward(
    dy: Tensor | None,
    x1: Tensor,
    x2: Tensor,
    rstd: Tensor,
    mean: Tensor,
    gamma: Tensor,
    dsum: Tensor | None,
) -> Any:
    total = (x1 + x2).float()
    normal = (total - mean) * rstd
    dims = _last_dims(total, gamma)
    outer = list(range(total.dim() - gamma.dim()))
    upper = torch.zeros_like(total) if dy is None else dy.float()
    scaled = upper * gamma.float()
    dx = rstd * (
        scaled
        - scaled.mean(dims, keepdim=True)
        - normal * (scaled * normal).mean(dims, keepdim=True)
    )
    if dsum is not None:
        dx = dx + dsum.float()
    dx = dx.to(x1.dtype)
    return dx, dx.clone(), (upper * normal).sum(outer), upper.sum(outer)


@hosted
def deep_norm(
    x: Tensor,
    gx: Tensor,
    beta: Tensor,
    gamma: Tensor,
    alpha: float = 0.3,
    epsilon: float = 1e-6,
) -> Any:
    y, mean, rstd = torch.native_layer_norm(x * alpha + gx, gamma.shape, gamma, beta, epsilon)
    return mean.float(), rstd.float(), y


@hosted
def deep_norm_backward(
    dy: Tensor,
    x: Tensor,
    gx: Tensor,
    gamma: Tensor,
    mean: Tensor,
    rstd: Tensor,
    alpha: float = 0.3,
) -> Any:
    total = x * alpha + gx
    dx, dgamma, dbeta = torch.ops.aten.native_layer_norm_backward(
        dy, total, gamma.shape, mean, rstd, gamma, gamma, [True, True, True]
    )
    return dx * alpha, dx, dbeta, dgamma


@hosted
def layer_norm_eval(
    x: Tensor,
    normalized_shape: list[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    return functional.layer_norm(x, normalized_shape, weight, bias, eps)


def _group_norm(x: Tensor, groups: int, weight: Any, bias: Any, eps: float) -> Any:
    n, c = x.shape[:2]
    return torch.native_group_norm(
        x.contiguous(), weight, bias, n, c, x.numel() // max(n * c, 1), groups, eps
    )


@hosted
def group_norm_silu(x: Tensor, weight: Any, bias: Any, group: int, eps: float = 1e-5) -> Any:
    y, mean, rstd = _group_norm(x, group, weight, bias, eps)
    return functional.silu(y), mean, rstd


@hosted
def group_norm_swish(
    x: Tensor,
    num_groups: int,
    weight: Tensor,
    bias: Tensor,
    eps: float | None = 1e-5,
    swish_scale: float | None = 1.0,
) -> Any:
    y, mean, rstd = _group_norm(x, num_groups, weight, bias, 1e-5 if eps is None else eps)
    return y * torch.sigmoid(y * (1.0 if swish_scale is None else swish_scale)), mean, rstd


@hosted
def group_norm_swish_grad(
    grad: Tensor,
    x: Tensor,
    num_groups: int,
    weight: Tensor,
    bias: Tensor,
    mean: Tensor,
    rstd: Tensor,
    mask: list[bool],
    swish_scale: float | None = 1.0,
) -> Any:
    scale = 1.0 if swish_scale is None else swish_scale
    shape = (x.size(0), num_groups, -1)

    def forward(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        normal = functional.group_norm(x, num_groups, None, None, 0.0 + _epsilon)
        wide = [-1] + [1] * (x.dim() - 2)
        y = normal * weight.view(wide) + bias.view(wide)
        return y * torch.sigmoid(y * scale)

    variance = x.float().reshape(shape).var(-1, unbiased=False)
    _epsilon = max(float((rstd.float().reshape(variance.shape) ** -2 - variance).mean()), 0.0)
    return tuple(gradients(forward, [x, weight, bias], [grad]))


def _channels(x: Tensor) -> tuple[list[int], list[int]]:
    return [d for d in range(x.dim()) if d != 1], [1, -1] + [1] * (x.dim() - 2)


@hosted
def batch_norm_stats(x: Tensor, eps: float) -> Any:
    dims, _ = _channels(x)
    variance, mean = torch.var_mean(x.float(), dims, unbiased=False)
    return mean, (variance + eps).rsqrt()


@hosted
def batch_norm_reduce(x: Tensor, eps: float) -> Any:
    dims, _ = _channels(x)
    wide = x.float()
    return wide.sum(dims), wide.pow(2).sum(dims)


def _follow(running: Tensor | None, now: Tensor, momentum: float) -> None:
    """Move a running statistic towards the batch's, in place."""
    if running is not None:
        running.mul_(1 - momentum).add_(now.to(running.dtype), alpha=momentum)


@hosted
def batch_norm_gather_stats(
    x: Tensor,
    mean: Tensor,
    invstd: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> Any:
    weights = counts.float().reshape(-1, 1)
    total = weights.sum()
    joint = (mean * weights).sum(0) / total
    variance = invstd.float() ** -2 - eps
    joint_variance = ((variance + (mean - joint) ** 2) * weights).sum(0) / total
    _follow(running_mean, joint, momentum)
    _follow(running_var, joint_variance * total / (total - 1), momentum)
    return joint, (joint_variance + eps).rsqrt()


@hosted
def batch_norm_gather_update(
    x: Tensor,
    sums: Tensor,
    squares: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> Any:
    total = counts.float().sum()
    joint = sums.sum(0) / total
    variance = squares.sum(0) / total - joint**2
    _follow(running_mean, joint, momentum)
    _follow(running_var, variance * total / (total - 1), momentum)
    return joint, (variance + eps).rsqrt()


@hosted
def batch_norm_elemt(
    x: Tensor, weight: Any, bias: Any, mean: Tensor, invstd: Tensor, eps: float
) -> Tensor:
    _, wide = _channels(x)
    y = (x.float() - mean.view(wide)) * invstd.view(wide)
    y = y * weight.view(wide) if weight is not None else y
    y = y + bias.view(wide) if bias is not None else y
    return y.to(x.dtype)


@hosted
def batch_norm_backward_reduce(
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Any,
    input_g: bool,
    weight_g: bool,
    bias_g: bool,
) -> Any:
    dims, wide = _channels(x)
    upper = grad.float()
    sum_dy = upper.sum(dims)
    sum_dy_xmu = (upper * (x.float() - mean.view(wide))).sum(dims)
    dtype = x.dtype if weight is None else weight.dtype
    return sum_dy, sum_dy_xmu, (sum_dy_xmu * invstd).to(dtype), sum_dy.clone().to(dtype)


@hosted
def batch_norm_backward_elemt(
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Any,
    sum_dy: Tensor,
    sum_dy_xmu: Tensor,
    count: Tensor,
) -> Tensor:
    _, wide = _channels(x)
    total = count.float().sum()
    scale = invstd if weight is None else invstd * weight.float()
    centred = x.float() - mean.view(wide)
    inner = grad.float() - (sum_dy / total).view(wide)
    inner = inner - centred * (invstd**2 * sum_dy_xmu / total).view(wide)
    return (inner * scale.view(wide)).to(x.dtype)


KERNELS: dict[str, Callable[..., Any]] = {
    "npu_rms_norm": rms_norm,
    "npu_gemma_rms_norm": gemma_rms_norm,
    "npu_rms_norm_backward": rms_norm_backward,
    "npu_add_rms_norm": add_rms_norm,
    "npu_add_layer_norm": add_layer_norm,
    "npu_add_layer_norm_backward": add_layer_norm_backward,
    "npu_deep_norm": deep_norm,
    "npu_deep_norm_backward": deep_norm_backward,
    "npu_layer_norm_eval": layer_norm_eval,
    "npu_group_norm_silu": group_norm_silu,
    "npu_group_norm_swish": group_norm_swish,
    "npu_group_norm_swish_grad": group_norm_swish_grad,
    "batch_norm_reduce": batch_norm_reduce,
    "batch_norm_gather_stats_update": batch_norm_gather_update,
}
ATEN_KERNELS: dict[str, Callable[..., Any]] = {
    "batch_norm_stats": batch_norm_stats,
    "batch_norm_gather_stats_with_counts": batch_norm_gather_stats,
    "batch_norm_elemt": batch_norm_elemt,
    "batch_norm_backward_reduce": batch_norm_backward_reduce,
    "batch_norm_backward_elemt": batch_norm_backward_elemt,
}

"""What CUDA's autocast computes in float32 and the CPU's does not. Child side.

The lists of the two differ: on the CPU ``layer_norm`` of a float16 tensor stays float16. With its
arguments made float32 beforehand, an operation gives the type that it gives on CUDA and on NPUs.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

_NAMES = (
    "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow __pow__ "
    "__rpow__ softplus layer_norm group_norm rms_norm frobenius_norm nuclear_norm "
    "cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss hinge_embedding_loss "
    "kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss "
    "multilabel_margin_loss soft_margin_loss triplet_margin_loss multi_margin_loss "
    "binary_cross_entropy_with_logits cross_entropy dist pdist cdist renorm logsumexp prod "
    "softmax log_softmax cumprod cumsum sum norm"
).split()
_OWNERS: tuple[Any, ...] = (torch, F, torch.Tensor)
_HALF = (torch.float16, torch.bfloat16)

IN_FLOAT32 = frozenset(
    getattr(owner, name) for owner in _OWNERS for name in _NAMES if hasattr(owner, name)
)


def in_float32(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments as CUDA's autocast hands them to the operation."""
    if not torch.is_autocast_enabled("cpu"):
        return args
    return tuple(
        value.float() if isinstance(value, torch.Tensor) and value.dtype in _HALF else value
        for value in args
    )

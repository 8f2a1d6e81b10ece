"""Collectives over tensors of different sizes, which NCCL and HCCL know and Gloo does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Tensor = torch.Tensor


def differ(tensors: Sequence[Tensor]) -> bool:
    return len({tensor.numel() for tensor in tensors}) > 1


def gather(
    outputs: Sequence[Tensor], own: Tensor, rank: int, broadcast: Callable[[Tensor, int], Any]
) -> None:
    """``all_gather``: each rank in turn tells all others."""
    outputs[rank].copy_(own)
    for root, tensor in enumerate(outputs):
        whole = tensor.contiguous()
        broadcast(whole, root)
        tensor.copy_(whole)


def exchange(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    all_to_all: Callable[[Tensor, Tensor, list[int], list[int]], Any],
) -> None:
    """``all_to_all`` of lists, by that of one tensor with its splits."""
    sizes = [tensor.numel() for tensor in outputs]
    sent = torch.cat([tensor.reshape(-1) for tensor in inputs])
    received = sent.new_empty(sum(sizes))
    all_to_all(received, sent, sizes, [tensor.numel() for tensor in inputs])
    for tensor, part in zip(outputs, torch.split(received, sizes), strict=True):
        tensor.copy_(part.view_as(tensor))

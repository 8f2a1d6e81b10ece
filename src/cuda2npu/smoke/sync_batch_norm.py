"""``SyncBatchNorm`` on the CPU, where torch has none. Child side, in the reference run alone."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.modules.batchnorm import SyncBatchNorm, _BatchNorm

from cuda2npu.simulator.libraries import library
from cuda2npu.simulator.native_norms import ATEN_KERNELS


def replace_sync_batch_norm() -> None:
    """The layer synchronizes tensors of the CPU as it does those of a GPU."""
    put = library("aten")
    for name, kernel in ATEN_KERNELS.items():
        if name.startswith("batch_norm_"):
            put(name, "CPU", kernel.__wrapped__)  # type: ignore[attr-defined]
    parallel: Any = torch.nn.parallel.DistributedDataParallel
    parallel._passing_sync_batchnorm_handle = lambda *_: None
    layer: Any = SyncBatchNorm
    layer.forward = _forward


def _forward(layer: Any, source: torch.Tensor) -> torch.Tensor:
    distributed: Any = torch.distributed
    together = layer.training and distributed.is_initialized()
    group = layer.process_group or distributed.group.WORLD if together else None
    size = distributed.get_world_size(group) if together else 1
    if size == 1:
        plain: torch.Tensor = _BatchNorm.forward(layer, source)
        return plain
    layer._check_input_dim(source)
    layer._check_non_zero_input_channels(source)
    return _synchronized(layer, source, group, size)


def _synchronized(layer: Any, source: torch.Tensor, group: Any, size: int) -> torch.Tensor:
    factor = 0.0 if layer.momentum is None else layer.momentum
    mean = variance = None
    if layer.track_running_stats:
        layer.num_batches_tracked.add_(1)
        if layer.momentum is None:
            factor = 1.0 / layer.num_batches_tracked.item()
        mean, variance = layer.running_mean, layer.running_var
    functions: Any = torch.nn.modules._functions
    done: torch.Tensor = functions.SyncBatchNorm.apply(
        source, layer.weight, layer.bias, mean, variance, layer.eps, factor, group, size
    )
    return done

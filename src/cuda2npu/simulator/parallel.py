"""What ``nn.DataParallel`` asks of the device: broadcast, scatter and gather, done by plain copies.

torch's own are part of its CUDA build, and torch_npu's need collectives within one process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.parallel import comm

from cuda2npu.simulator.aliases import current_device

Tensor = torch.Tensor
_installed = False


def _place(device: Any) -> torch.device:
    return torch.device("npu", device) if isinstance(device, int) else torch.device(device)


def broadcast(tensor: Tensor, devices: Sequence[Any] | None = None, *, out: Any = None) -> Any:
    if out is not None:
        for target in out:
            target.copy_(tensor)
        return tuple(out)
    return tuple(tensor.to(_place(device), copy=n > 0) for n, device in enumerate(devices or ()))


def broadcast_coalesced(
    tensors: Sequence[Tensor], devices: Sequence[Any], buffer_size: int = 0
) -> list[list[Tensor]]:
    return [
        [tensor if n == 0 else tensor.to(_place(device), copy=True) for tensor in tensors]
        for n, device in enumerate(devices)
    ]


def reduce_add(inputs: Sequence[Tensor], destination: Any = None) -> Tensor:
    place = inputs[0].device if destination is None else _place(destination)
    total = inputs[0].to(place, copy=True)
    for other in inputs[1:]:
        total.add_(other.to(place))
    return total


def reduce_add_coalesced(
    inputs: Sequence[Sequence[Tensor]], destination: Any = None, buffer_size: int = 0
) -> tuple[Tensor, ...]:
    return tuple(reduce_add(each, destination) for each in zip(*inputs, strict=True))


def scatter(
    tensor: Tensor,
    devices: Sequence[Any] | None = None,
    chunk_sizes: Sequence[int] | None = None,
    dim: int = 0,
    streams: Any = None,
    *,
    out: Any = None,
) -> tuple[Tensor, ...]:
    count = len(devices if devices is not None else out)
    parts = (
        tensor.chunk(count, dim)
        if chunk_sizes is None
        else torch.split(tensor, list(chunk_sizes), dim)
    )
    if out is not None:
        for target, part in zip(out, parts, strict=True):
            target.copy_(part)
        return tuple(out)
    return tuple(p.to(_place(d)) for p, d in zip(parts, devices or (), strict=False))


def gather(
    tensors: Sequence[Tensor], dim: int = 0, destination: Any = None, *, out: Any = None
) -> Tensor:
    place = _place(current_device() if destination is None else destination)
    if out is not None:
        place = out.device
    joined = torch.cat([tensor.to(place) for tensor in tensors], dim)
    return joined if out is None else out.copy_(joined)


def _has_npu(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.device.type == "npu"
    return isinstance(value, (list, tuple)) and any(_has_npu(each) for each in value)


def _led(ours: Callable[..., Any], theirs: Callable[..., Any]) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        places = [*args[1:3], *kwargs.values()]
        on_npu = _has_npu(args[:1]) or any("npu" in str(place) for place in places)
        return (ours if on_npu or not torch.cuda.is_available() else theirs)(*args, **kwargs)

    function.__name__ = ours.__name__
    return function


def install() -> None:
    global _installed
    if _installed:
        return
    _installed = True
    ours: tuple[Callable[..., Any], ...] = (
        broadcast,
        broadcast_coalesced,
        reduce_add,
        reduce_add_coalesced,
        scatter,
        gather,
    )
    for function in ours:
        setattr(comm, function.__name__, _led(function, getattr(comm, function.__name__)))

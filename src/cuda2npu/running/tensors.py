"""The tensors in what a module is called with and what it gives back. Child side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch

from cuda2npu.running.inputs import Drawn


def flatten(value: object, path: str = "", depth: int = 0) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in nested tuples, lists, mappings and dataclasses, with their places."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif depth > 8:
        return
    elif isinstance(value, Mapping):
        for key, item in list(value.items()):
            yield from flatten(item, f"{path}[{key!r}]", depth + 1)
    elif isinstance(value, (tuple, list)):
        for index, item in enumerate(value):
            yield from flatten(item, f"{path}[{index}]", depth + 1)
    elif is_dataclass(value) and not isinstance(value, type):
        for item in fields(value):
            yield from flatten(getattr(value, item.name, None), f"{path}.{item.name}", depth + 1)


def draw(given: Drawn, generator: torch.Generator) -> torch.Tensor:
    """A tensor on the CPU; of whole numbers, those from 0 on."""
    dtype: torch.dtype = getattr(torch, given.dtype)
    if dtype.is_floating_point:
        return torch.randn(given.shape, generator=generator).to(dtype)
    return torch.randint(0, given.below, given.shape, generator=generator).to(dtype)


def call_arguments(
    inputs: Any, kwargs: Mapping[str, Any] | None = None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments, as ``torch.onnx.export`` reads its ``args``."""
    if isinstance(inputs, Mapping):
        return (), {**inputs, **(kwargs or {})}
    args = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    if not kwargs and args and isinstance(args[-1], Mapping):
        return args[:-1], dict(args[-1])
    return args, dict(kwargs or {})

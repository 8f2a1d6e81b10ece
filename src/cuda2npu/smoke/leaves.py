"""Tensors as the recorder keeps them: exact figures, and values up to a size. Child side."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

SAMPLE = 65_536
"""Values kept of one tensor; of a larger one, evenly spread ones."""
BUDGET = 256 * 2**20
"""Bytes of values kept of a whole run."""

FLOAT = torch.float32


class Keeper:
    """Turns tensors into entries of the record, and holds the values within the budget."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self._left = BUDGET

    def entry(
        self, tensor: torch.Tensor, keep: bool = True, sample: int = SAMPLE
    ) -> dict[str, Any]:
        tensor = local(tensor)
        entry: dict[str, Any] = {
            "shape": list(tensor.shape),
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "device": tensor.device.type,
        }
        flat = _flat(tensor)
        if flat is None or flat.numel() == 0:
            return entry
        entry.update(_figures(flat))
        if keep and self._left > 0:
            chosen = _spread(flat, sample)
            key = str(len(self.values))
            self.values[key] = chosen.numpy()
            self._left -= chosen.numel() * 4
            entry["key"] = key
        return entry


@contextmanager
def outside_transforms() -> Iterator[None]:
    """What is done here is no part of a ``vmap`` or ``grad`` of torch.func that is under way."""
    functions: Any = torch._C._functorch
    if functions.peek_interpreter_stack() is None:
        yield
        return
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

    with temporarily_clear_interpreter_stack():
        yield


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The shard of a distributed tensor that lies here; any other tensor itself.

    Of one that torch.func maps over or differentiates, all that it stands for.
    """
    functions: Any = torch._C._functorch
    while functions.is_functorch_wrapped_tensor(tensor):
        tensor = functions.get_unwrapped(tensor)
    shard: Any = getattr(tensor, "to_local", None)
    if shard is None:
        return tensor
    found: torch.Tensor = shard()
    return found


def _flat(tensor: torch.Tensor) -> torch.Tensor | None:
    """All values in a row, on the host; None where a tensor has none to show."""
    if tensor.is_meta or tensor.is_nested or tensor.layout is not torch.strided:
        return None
    host = tensor.detach().cpu()
    if host.is_quantized:
        host = host.dequantize()
    if host.is_complex():
        host = torch.view_as_real(host.resolve_conj())
    return host.reshape(-1).to(FLOAT)


def _figures(flat: torch.Tensor) -> dict[str, Any]:
    finite = torch.isfinite(flat)
    count = int(finite.sum())
    figures = {"nan": int(torch.isnan(flat).sum()), "inf": 0, "norm": 0.0, "mean": 0.0}
    figures["inf"] = flat.numel() - count - figures["nan"]
    if count:
        good = flat if count == flat.numel() else flat[finite]
        figures["norm"] = float(torch.linalg.vector_norm(good, dtype=torch.float64))
        figures["mean"] = float(good.mean(dtype=torch.float64))
    return figures


def _spread(flat: torch.Tensor, sample: int) -> torch.Tensor:
    """At most ``sample`` values, the same places for the same size; a copy of them."""
    if flat.numel() <= sample:
        return flat.clone()
    return flat[torch.arange(sample) * flat.numel() // sample]

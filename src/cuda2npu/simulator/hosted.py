"""Kernels written in Python on tensors of the CPU, called with tensors of the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import torch

from cuda2npu.simulator.aliases import current_device, device_of, host_view, on_device

Tensor = torch.Tensor


def hosted(body: Callable[..., Any]) -> Callable[..., Any]:
    """``body`` sees CPU tensors over the same memory; what it returns is put on the device.

    A result that *is* an argument comes back as that argument.
    """

    @wraps(body)
    def kernel(*args: Any, **kwargs: Any) -> Any:
        seen: dict[int, Tensor] = {}
        index = -1

        def enter(value: Any) -> Any:
            nonlocal index
            if isinstance(value, Tensor):
                if value.get_device() < 0:
                    return value
                index = value.get_device()
                view = host_view(value)
                seen[id(view)] = value
                kept.append(view)
                return view
            return [enter(v) for v in value] if isinstance(value, (list, tuple)) else value

        def leave(value: Any) -> Any:
            if isinstance(value, Tensor):
                return seen[id(value)] if id(value) in seen else on_device(value, device)
            if isinstance(value, (list, tuple)):
                return type(value)([leave(v) for v in value])
            return value

        kept: list[Tensor] = []
        host_args = [enter(value) for value in args]
        host_kwargs = {key: enter(value) for key, value in kwargs.items()}
        device = device_of(index if index >= 0 else current_device())
        return leave(body(*host_args, **host_kwargs))

    return kernel


_outside: tuple[Any, Any] | None = None


def remember_dispatch_state() -> None:
    """Keeps the thread state of ordinary code, in which autograd records operators."""
    global _outside
    _outside = (
        torch._C._dispatch_tls_local_include_set(),
        torch._C._dispatch_tls_local_exclude_set(),
    )


def gradients(
    forward: Callable[..., Any], inputs: Sequence[Tensor | None], grads: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """The gradients of ``inputs``, from autograd on the CPU: below it a kernel records nothing."""
    assert _outside is not None
    with torch._C._ForceDispatchKeyGuard(*_outside), torch.enable_grad():
        leaves = [
            t.detach().requires_grad_(t.is_floating_point()) if t is not None else None
            for t in inputs
        ]
        results = forward(*leaves)
        if isinstance(results, Tensor):
            results = (results,)
        pairs = [
            (r, g.to(r.dtype).reshape(r.shape))
            for r, g in zip(results, grads, strict=False)
            if g is not None and isinstance(r, Tensor) and r.requires_grad
        ]
        wanted = [t for t in leaves if t is not None and t.requires_grad]
        found = iter(
            torch.autograd.grad(
                [r for r, _ in pairs], wanted, [g for _, g in pairs], allow_unused=True
            )
        )
        return [next(found) if leaf is not None and leaf.requires_grad else None for leaf in leaves]

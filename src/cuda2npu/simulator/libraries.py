"""The dispatcher's own bindings: the name of an operator, and registering kernels.

torch.library spends a millisecond on each operator, the binding a few microseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def split(name: str) -> tuple[str, str]:
    base, _, overload = name.partition(".")
    return base, overload


_kept: list[Any] = []


def library(namespace: str) -> Callable[[str, str, Callable[..., Any]], None]:
    """A function (operator, dispatch key, kernel) that registers and replaces without a warning."""
    binding: Any = torch._C._dispatch_library("IMPL", namespace, "", __file__, 1)
    _kept.append(binding)

    def register(name: str, key: str, kernel: Callable[..., Any]) -> None:
        binding.impl(name, key, kernel, False)

    return register


def redirect(name: str, key: Any) -> Callable[..., Any]:
    """A kernel that runs the operator's kernel of another dispatch key on the same tensors."""
    call: Any = None

    def kernel(*args: Any, **kwargs: Any) -> Any:
        nonlocal call
        if call is None:
            found: Any = torch._C._get_operation_overload(*split(name))
            call = found[1]
        return call(key, *args, **kwargs)

    return kernel

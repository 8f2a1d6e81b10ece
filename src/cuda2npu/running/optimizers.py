"""The optimizers that a script makes. Child side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def tell_new_optimizers(told: Callable[[Any], None]) -> None:
    """Call ``told`` with each optimizer of torch that is made from here on, once."""
    optimizers: Any = torch.optim.Optimizer
    init = optimizers.__init__
    known: list[Any] = []

    def seen_init(optimizer: Any, *arguments: Any, **options: Any) -> None:
        init(optimizer, *arguments, **options)
        if not any(optimizer is other for other in known):
            known.append(optimizer)
            told(optimizer)

    optimizers.__init__ = seen_init

"""Modes of torch functions that stay on, in every thread and while autograd runs. Child side."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def enter(mode: Any) -> None:
    """Turn a mode on for the rest of the process, and in each thread that it starts.

    A mode belongs to one thread; those of torch's autograd take on that of the one that waits.
    ``Tensor.backward`` and ``torch.autograd.grad`` are torch functions themselves, behind which a
    mode is off: what a checkpoint computes anew there would not pass it.
    """
    autograd: Any = torch.autograd
    run = autograd._engine_run_backward

    def run_backward(*args: Any, **options: Any) -> Any:
        with _on(mode):
            return run(*args, **options)

    autograd._engine_run_backward = run_backward
    thread: Any = threading.Thread
    begin = thread._bootstrap_inner

    def begin_in_mode(self: Any) -> None:
        with mode:
            begin(self)

    thread._bootstrap_inner = begin_in_mode
    mode.__enter__()


@contextmanager
def _on(mode: Any) -> Iterator[None]:
    overrides: Any = torch.overrides
    if any(mode is other for other in overrides._get_current_function_mode_stack()):
        yield
        return
    with mode:
        yield

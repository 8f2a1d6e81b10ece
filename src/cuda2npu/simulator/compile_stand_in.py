"""``torch.compile`` without a code generator for the device: it runs eagerly and says so."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from cuda2npu.simulator import record

NOTICE = "cuda2npu: torch.compile runs eagerly on the simulated NPU"
_installed = False
_said = False


def _say_once() -> None:
    global _said
    if not _said:
        _said = True
        print(NOTICE, file=sys.stderr)


def _as_compiled(model: Any) -> Any:
    """A module gets the wrapper of real compilation, whose name is in the keys of state dicts."""
    if isinstance(model, torch.nn.Module):
        from torch._dynamo.eval_frame import OptimizedModule

        class Eager:
            """What OptimizedModule asks of a compiler's context, compiling nothing."""

            def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
                return function

        return OptimizedModule(model, Eager())  # type: ignore[arg-type]
    return model


def install() -> None:
    global _installed
    if _installed:
        return
    _installed = True
    original = torch.compile

    @wraps(original)
    def compile(model: Any = None, **options: Any) -> Any:
        if options.get("backend", "inductor") not in ("inductor", "npugraphs", "npu"):
            return original(model, **options)
        _say_once()
        record.note("compile", "torch.compile", "compiled code is not simulated; it runs eagerly")
        if model is None:
            return _as_compiled
        return _as_compiled(model)

    torch.compile = compile

"""Loads the module that is exported, with the inputs it is exported with. Child side."""

from __future__ import annotations

from typing import Any

import torch

from cuda2npu.export.arguments import Call, drawn_call
from cuda2npu.export.spec import Spec
from cuda2npu.model import UsageError
from cuda2npu.running.inputs import drawn
from cuda2npu.running.named import named
from cuda2npu.running.tensors import call_arguments

FORMS = "a module, a class of one, or a function without arguments that returns (module, inputs)"


def load(spec: Spec) -> Call:
    """The call that is exported; raises UsageError when the target names none."""
    module, inputs = _made(named(spec.target), spec.target)
    if not isinstance(module, torch.nn.Module):
        raise UsageError(f"{spec.target}: gives {type(module).__name__}, not {FORMS}")
    if spec.inputs:
        return drawn_call(module, [drawn(text) for text in spec.inputs], spec.seed)
    if inputs is None:
        raise UsageError(
            f"{spec.target}: gives a module without inputs; say --inputs 1x3x224x224:float32"
        )
    return Call(module, *call_arguments(inputs))


def _made(found: Any, target: str) -> tuple[Any, Any]:
    """The module, and its inputs where the target brings them."""
    if isinstance(found, torch.nn.Module):
        return found, None
    if not callable(found):
        raise UsageError(f"{target}: is {type(found).__name__}, not {FORMS}")
    made = found()
    if isinstance(made, tuple) and len(made) == 2:
        return made
    return made, None

"""Measures a function, or the module or function that a factory makes. Child side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cuda2npu.benchmark.clock import Clock
from cuda2npu.benchmark.meter import Meter
from cuda2npu.benchmark.outermost import Outermost
from cuda2npu.benchmark.spec import FUNCTION, BenchError, Spec, Target
from cuda2npu.running.named import named
from cuda2npu.running.tensors import draw

Subject = Callable[[], object]


class FunctionRun:
    """One iteration is one call."""

    unit = FUNCTION

    def __init__(self, spec: Spec, clock: Clock) -> None:
        self._spec = spec
        self.meter = Meter(clock, spec.warmup, spec.iterations)
        self._clock = clock
        self.outermost = Outermost(lambda call: self.meter.saw(call))

    def run(self) -> None:
        target = load(self._spec.target)
        self.outermost.install()
        subject: Subject = target
        if isinstance(target, torch.nn.Module):
            subject = called(target, self._spec)
        else:
            made = self._call(target)
            if callable(made):  # it was a factory: what it made is measured, its call is not
                subject = called(made, self._spec)
                self.meter = Meter(self._clock, self._spec.warmup, self._spec.iterations)
            elif self._spec.inputs:
                raise BenchError(
                    f"{self._spec.target.name}: gives back a {type(made).__name__}; --inputs is "
                    "for a factory, which gives back the module or function that takes them"
                )
        while not self.meter.full:
            self._call(subject)
            if self.meter.count >= max(self._spec.warmup, 1):
                self.outermost.settle()

    def close(self) -> None:
        """Measure no more."""
        self.outermost.close()

    def _call(self, subject: Subject) -> object:
        self.meter.begin()
        result = subject()
        self.meter.end()
        return result


def load(target: Target) -> Any:
    """What the target names; raises UsageError where there is none, BenchError for a value."""
    found = named(f"{target.place}:{target.function}")
    if not callable(found):
        raise BenchError(f"{target.name} is a {type(found).__name__}, which cannot be called")
    return found


def called(made: Any, spec: Spec) -> Subject:
    """What calls it with ``--inputs``: a module on the device, for inference; else as it is."""
    generator = torch.Generator().manual_seed(0)
    given = [(each.name, draw(each, generator).to(spec.device)) for each in spec.inputs]
    tensors = [tensor for name, tensor in given if not name]
    options = {name: tensor for name, tensor in given if name}
    if not isinstance(made, torch.nn.Module):
        return lambda: made(*tensors, **options)
    if not given:
        raise BenchError(
            f"{spec.target.name}: is a module; say what to call it with, as in "
            "--inputs 1x3x224x224:float16"
        )
    made.to(spec.device).eval()
    floats = [tensor.dtype for _, tensor in given if tensor.is_floating_point()]
    if floats:
        made.to(floats[0])
    return lambda: _infer(made, tensors, options)


def _infer(module: Any, tensors: list[torch.Tensor], options: dict[str, torch.Tensor]) -> object:
    with torch.inference_mode():
        return module(*tensors, **options)

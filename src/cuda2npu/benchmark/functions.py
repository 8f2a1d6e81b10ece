"""Measures a function, or the module or function that a factory makes. Child side."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, cast

import torch
from torch.utils import _pytree as pytree

from cuda2npu.benchmark.clock import Clock
from cuda2npu.benchmark.meter import Meter
from cuda2npu.benchmark.outermost import Outermost
from cuda2npu.benchmark.spec import FUNCTION, BenchError, Spec, Target
from cuda2npu.running.named import named
from cuda2npu.running.tensors import call_arguments, draw

Subject = Callable[[], object]


class FunctionRun:
    """One iteration is one call."""

    unit = FUNCTION

    def __init__(self, spec: Spec, clock: Clock) -> None:
        self._spec = spec
        self.meter = Meter(clock, spec.warmup, spec.iterations)
        self._clock = clock
        self.outermost = Outermost(lambda *call: self.meter.saw(*call))

    def run(self) -> None:
        target = load(self._spec.target)
        self.outermost.install()
        subject = self._subject(target)
        while not self.meter.full:
            self._call(subject)
            if self.meter.count >= max(self._spec.warmup, 1):
                self.outermost.settle()

    def _subject(self, target: Any) -> Subject:
        """What is measured: the target, or what it makes where it is a factory."""
        spec = self._spec
        if isinstance(target, torch.nn.Module):
            return called(target, spec)
        made = self._call(target)
        module, inputs = made if _is_model(made) else (made, None)
        if isinstance(made, type):
            raise BenchError(
                f"{spec.target.name}: gives back the class {made.__name__}, which makes something "
                "at each call; give back what it makes"
            )
        if callable(module):  # what a factory made is measured, its own call is not
            self.meter = Meter(self._clock, spec.warmup, spec.iterations)
            return called(module, spec, inputs)
        if isinstance(target, type):
            raise BenchError(
                f"{spec.target.name}: is a class whose objects cannot be called; name a function "
                "that does what is to be measured"
            )
        if spec.inputs:
            raise BenchError(
                f"{spec.target.name}: gives back a {type(made).__name__}; --inputs is "
                "for a factory, which gives back the module or function that takes them"
            )
        return cast(Subject, target)

    def close(self) -> None:
        """Measure no more."""
        self.outermost.close()

    def _call(self, subject: Subject) -> Any:
        self.meter.begin()
        result = subject()
        self.meter.end()
        if inspect.isgenerator(result) or inspect.isawaitable(result) or inspect.isasyncgen(result):
            raise BenchError(
                f"{self._spec.target.name}: gives back an object of type {type(result).__name__}, "
                "which computes nothing until it is run; measure a function that runs it to its "
                "end, as asyncio.run and list do"
            )
        return result


def _is_model(made: object) -> bool:
    """Whether it is ``(module, inputs)``, as ``export`` takes it too."""
    return isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], torch.nn.Module)


def load(target: Target) -> Any:
    """What the target names; raises UsageError where there is none, BenchError for a value."""
    found = named(f"{target.place}:{target.function}")
    if not callable(found):
        raise BenchError(f"{target.name} is a {type(found).__name__}, which cannot be called")
    return found


def called(made: Any, spec: Spec, inputs: Any = None) -> Subject:
    """What calls it, with ``--inputs`` if there are any: a module on the device, for inference."""
    if spec.inputs:
        args, options = _drawn(spec)
    else:
        args, options = ((), {}) if inputs is None else call_arguments(_moved(inputs, spec.device))
    if not isinstance(made, torch.nn.Module):
        return lambda: made(*args, **options)
    if not spec.inputs and inputs is None:
        raise BenchError(
            f"{spec.target.name}: is a module; say what to call it with, as in "
            "--inputs 1x3x224x224:float16"
        )
    made.to(spec.device).eval()
    tensors = (*args, *options.values()) if spec.inputs else ()
    floats = [tensor.dtype for tensor in tensors if tensor.is_floating_point()]
    if floats:
        made.to(floats[0])
    return lambda: _infer(made, args, options)


def _drawn(spec: Spec) -> tuple[tuple[Any, ...], dict[str, Any]]:
    generator = torch.Generator().manual_seed(0)
    given = [(each.name, draw(each, generator).to(spec.device)) for each in spec.inputs]
    return (
        tuple(tensor for name, tensor in given if not name),
        {name: tensor for name, tensor in given if name},
    )


def _moved(inputs: Any, device: str) -> Any:
    return pytree.tree_map(
        lambda leaf: leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf, inputs
    )


def _infer(module: Any, args: tuple[Any, ...], options: dict[str, Any]) -> object:
    with torch.inference_mode():
        return module(*args, **options)

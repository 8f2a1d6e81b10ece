"""Measures a function, or the module or function that a factory makes. Child side."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import torch

from cuda2npu.benchmark.clock import Clock
from cuda2npu.benchmark.meter import Meter
from cuda2npu.benchmark.outermost import Outermost
from cuda2npu.benchmark.spec import FLOATS, FUNCTION, BenchError, Input, Spec, Target

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
        named = load(self._spec.target)
        self.outermost.install()
        subject: Subject = named
        if isinstance(named, torch.nn.Module):
            subject = called(named, self._spec)
        else:
            made = self._call(named)
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
    """What the target names; raises BenchError where its file or module has no such thing."""
    if target.is_file:
        sys.path.insert(0, str(Path(target.place).parent))
        module = _module_of(Path(target.place))
    else:
        sys.path.insert(0, str(Path.cwd()))
        try:
            module = import_module(target.place)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{target.place}.".startswith(f"{error.name}."):
                raise  # one that it imports
            raise BenchError(
                f"{target.name}: no module {error.name}, seen from {Path.cwd()}"
            ) from None
    found = getattr(module, target.function, None)
    if found is None:
        raise BenchError(f"{target.place} has no {target.function}")
    if not callable(found):
        raise BenchError(f"{target.name} is a {type(found).__name__}, which cannot be called")
    return found


def _module_of(path: Path) -> Any:
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def called(made: Any, spec: Spec) -> Subject:
    """What calls it with ``--inputs``: a module on the device, for inference; else as it is."""
    tensors = [_tensor(each, spec.device) for each in spec.inputs]
    if not isinstance(made, torch.nn.Module):
        return lambda: made(*tensors)
    if not tensors:
        raise BenchError(
            f"{spec.target.name}: is a module; say what to call it with, as in "
            "--inputs 1x3x224x224:float16"
        )
    made.to(spec.device).eval()
    floats = [each.dtype for each in spec.inputs if each.dtype in FLOATS]
    if floats:
        made.to(getattr(torch, floats[0]))
    return lambda: _infer(made, tensors)


def _infer(module: Any, tensors: list[torch.Tensor]) -> object:
    with torch.inference_mode():
        return module(*tensors)


def _tensor(asked: Input, device: str) -> torch.Tensor:
    """Random floats; of whole numbers 0 and 1, which are indices into any table."""
    dtype = getattr(torch, asked.dtype)
    generator = torch.Generator().manual_seed(0)
    if dtype.is_floating_point:
        return torch.randn(asked.shape, generator=generator).to(dtype).to(device)
    return torch.randint(0, 2, asked.shape, generator=generator).to(dtype).to(device)

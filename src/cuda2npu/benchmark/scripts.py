"""Measures a script without an edit: its optimizer steps, else its calls. Child side."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import optimizer as optim

from cuda2npu.benchmark.clock import Clock
from cuda2npu.benchmark.meter import Call, Meter
from cuda2npu.benchmark.outermost import Outermost
from cuda2npu.benchmark.spec import CALL, STEP, Spec
from cuda2npu.running.optimizers import tell_new_optimizers
from cuda2npu.running.program import StepsDone, execute


class ScriptRun:
    """One iteration is a step of the optimizer that steps most often.

    Of a script that makes no step it is a call of an outermost module; both are counted until the
    first step.
    """

    def __init__(self, spec: Spec, clock: Clock, finish: Callable[[dict[str, Any]], None]) -> None:
        """``finish`` writes the record, should the script not let itself be stopped."""
        self._spec = spec
        self._finish = finish
        self._steps = Meter(clock, spec.warmup, spec.iterations, chained=True)
        self._calls = Meter(clock, spec.warmup, spec.iterations)
        self._taken: dict[int, int] = {}
        self._optimizers: list[Any] = []
        self._stopped = False
        self._closed = False
        self.outermost = Outermost(self._before_call, self._after_call)

    @property
    def unit(self) -> str:
        return STEP if self._taken else CALL

    @property
    def meter(self) -> Meter:
        return self._steps if self._taken else self._calls

    def run(self) -> None:
        self.outermost.install()
        optim.register_optimizer_step_pre_hook(self._before_step)
        optim.register_optimizer_step_post_hook(self._after_step)
        tell_new_optimizers(self._new_optimizer)
        execute(self._spec.target.place, self._spec.arguments)

    def close(self) -> None:
        """Measure no more."""
        self._closed = True
        self.outermost.close()

    def _new_optimizer(self, optimizer: Any) -> None:
        """What was called before belongs to no step."""
        self._optimizers.append(optimizer)
        self._steps.forget()
        self.outermost.look()

    def _before_call(self, call: Call, module: int) -> None:
        if torch.is_grad_enabled():  # no evaluation before the first step
            self._steps.begin()
        self._steps.saw(call, module)
        if not self._taken:
            self._calls.begin()
            self._calls.saw(call, module)

    def _after_call(self) -> None:
        if self._taken:
            return
        self._calls.end()
        self._settle()
        if self._calls.full and not self._optimizers:
            self._stop()

    def _before_step(self, *_: object) -> None:
        if not (torch.compiler.is_compiling() or self._closed):
            self._steps.begin()

    def _after_step(self, optimizer: Any, *_: object) -> None:
        if torch.compiler.is_compiling() or self._closed:
            return
        most = max(self._taken.values(), default=0)
        taken = self._taken[id(optimizer)] = self._taken.get(id(optimizer), 0) + 1
        if taken > most:
            self._steps.end()
            self._settle()
        if self._steps.full:
            self._stop()

    def _settle(self) -> None:
        """One iteration before the measured ones, since code that is compiled is so anew then."""
        meter = self._steps if self._optimizers else self._calls
        if meter.count >= max(self._spec.warmup, 1):
            self.outermost.settle()

    def _stop(self) -> None:
        """End the script; where it catches everything and goes on, the whole process."""
        if self._stopped:
            self._finish({"ended": "steps"})
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
        self._stopped = True
        raise StepsDone

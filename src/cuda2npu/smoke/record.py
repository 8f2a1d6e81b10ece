"""Records what a training or inference script computes. Child side."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.nn.modules import module as hooks
from torch.optim import optimizer as optim

from cuda2npu.running.optimizers import tell_new_optimizers
from cuda2npu.running.process import PROGRESS, RECORD
from cuda2npu.running.program import StepsDone
from cuda2npu.running.tensors import flatten
from cuda2npu.smoke.leaves import Keeper, local, outside_transforms
from cuda2npu.smoke.naming import Names, kept_state, qualified
from cuda2npu.smoke.placement import Placement
from cuda2npu.smoke.spec import SIMULATOR_NOTES, TENSORS, Spec

CALLS_WITH_VALUES = 8
"""Calls of one module whose values are kept; of later ones the figures alone."""
CALLS = 200
"""Calls of one module that are recorded at all."""
UNSEEN = 1_000
"""Calls of one module in a row, past those, after which a loop counts as one without end."""
INPUT_SAMPLE = 8_192


class Recorder:
    """Hooks that see every module call, backward pass and optimizer step."""

    def __init__(self, spec: Spec, placement: Placement, folder: Path) -> None:
        self._spec = spec
        self._folder = folder
        self._placement = placement
        self._keeper = Keeper()
        self._names = Names()
        self._calls: dict[str, int] = {}
        self._unseen: dict[str, int] = {}
        """Calls that were not recorded since the last one that was."""
        self._steps: dict[int, int] = {}
        self._gradients: dict[int, float] = {}
        self._optimizers: list[Any] = []
        self._events: list[dict[str, Any]] = []
        self._handles: list[Any] = []
        self._losses = 0
        self._own = threading.local()
        self._lock = threading.RLock()
        self._stopped = self._finished = False
        self.extra: dict[str, Any] = {}
        """What is known about the process, for a record that has to be written from inside."""
        self._told = 0.0
        self._rank: int | None = None
        self._started = time.time()
        self.in_child = False
        """Whether the script started this process: its end is not that of the run."""
        self.first_event: Callable[[], None] = lambda: None

    def restart(self, folder: Path) -> None:
        """Forget what was recorded in the process that this one was forked from."""
        self._folder = folder
        self._keeper = Keeper()
        self._calls, self._steps, self._events, self._losses = {}, {}, [], 0
        self._unseen = {}
        self._own, self._lock = threading.local(), threading.RLock()
        self._stopped = False
        self._started = time.time()
        self.in_child = True

    @property
    def empty(self) -> bool:
        return not self._events

    def _add(self, event: dict[str, Any]) -> None:
        self._events.append(event)
        self._unseen.clear()
        if len(self._events) == 1:
            self.first_event()

    def install(self) -> None:
        self._handles = [
            hooks.register_module_forward_pre_hook(self._before_call),
            hooks.register_module_forward_hook(self._after_call),
            optim.register_optimizer_step_pre_hook(self._before_step),
            optim.register_optimizer_step_post_hook(self._after_step),
        ]
        self._see_losses()
        # So that a run ends when each of them has done its steps.
        tell_new_optimizers(self._optimizers.append)

    @property
    def _busy(self) -> bool:
        return self._finished or getattr(self._own, "busy", False)

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """Nothing is seen of what is done here; of what another thread does, it is seen after."""
        with self._lock, torch.no_grad(), self._placement.paused():
            self._own.busy = True
            try:
                yield
            finally:
                self._own.busy = False

    def _before_call(self, module: Any, inputs: Any) -> None:
        if not self._busy:
            with self._lock:
                self._names.of(module)

    def _after_call(self, module: Any, inputs: Any, output: Any) -> None:
        """Each call with the tensors that went in and out; nothing is seen of our own work."""
        if self._busy or _traced():
            return
        with self._lock:
            name = self._names.of(module)
            call = self._calls[name] = self._calls.get(name, 0) + 1
        if call > CALLS or self._stopped:
            self._count_unseen(name)
            return
        with outside_transforms(), self._at_work():
            event = {"kind": "call", "name": name, "call": call}
            event["out"] = self._leaves(output, call)
            event["in"] = self._leaves(inputs, call, INPUT_SAMPLE)
            placed = self._placement.of_module(module)
            if placed is not None:
                event["placed"] = placed
            self._add(event)
        self._progress()

    def _count_unseen(self, name: str) -> None:
        """End a script without an optimizer that goes on and on with nothing new to record."""
        self._unseen[name] = self._unseen.get(name, 0) + 1
        if self._unseen[name] > UNSEEN and self._spec.steps and not self._optimizers:
            self._unseen.clear()
            self._stop()

    def _leaves(self, value: object, call: int, sample: int = 0) -> list[dict[str, Any]]:
        keep = call <= CALLS_WITH_VALUES
        found = []
        for path, tensor in flatten(value):
            options = {"sample": sample} if sample else {}
            found.append({"path": path, **self._keeper.entry(tensor, keep, **options)})
        return found

    def _see_losses(self) -> None:
        tensors: Any = torch.Tensor
        scalers: Any = torch.amp.GradScaler
        backward = tensors.backward

        def seen_backward(tensor: Any, *arguments: Any, **options: Any) -> Any:
            own = self._own
            if getattr(own, "inside", False):  # torch functions come twice, once behind each mode
                return backward(tensor, *arguments, **options)
            self._loss(getattr(tensor, "_cuda2npu_unscaled", tensor))
            own.inside = True
            try:
                return backward(tensor, *arguments, **options)
            finally:
                own.inside = False

        def new_scaler(kind: Any, *_: Any, **__: Any) -> Any:
            if "_cuda2npu_seen" not in kind.__dict__:
                kind._cuda2npu_seen = True
                kind.scale = _remembering(kind.scale)
            return object.__new__(kind)

        tensors.backward = seen_backward
        scalers.__new__ = new_scaler

    def _loss(self, tensor: Any) -> None:
        if self._busy or self._stopped:
            return
        with self._at_work():
            self._losses += 1
            event: dict[str, Any] = {"kind": "loss", "name": "loss", "call": self._losses}
            event["out"] = [{"path": "", **self._keeper.entry(tensor)}]
            event["value"] = float(tensor.detach().float().sum().cpu())
            self._add(event)

    def _before_step(self, optimizer: Any, args: Any = (), options: Any = None) -> None:
        if self._spec.steps and self._steps.get(id(optimizer), 0) >= self._spec.steps:
            self._stop()
        if not any(map(callable, _values(args, options))):  # a closure computes them in the step
            with self._at_work():
                scale = getattr(optimizer, "grad_scale", None)  # a fused one divides by itself
                self._gradients = {
                    id(p): _norm(p.grad) / (1.0 if scale is None else float(scale))
                    for p in _parameters(optimizer)
                    if p.grad is not None
                }

    def _stop(self) -> None:
        """End the script; where it catches everything and goes on, the whole process.

        A process that the script started ends at once and in order, whatever waits for it; so
        does a script that trains in another thread than its first.
        """
        in_thread = threading.current_thread() is not threading.main_thread()
        if self._stopped or self.in_child or in_thread:
            self.finish({**self.extra, "ended": "steps"}, at_once=True)
            sys.stdout.flush()
            sys.stderr.flush()
            _end_helpers()
            os._exit(0)
        self._stopped = True
        raise StepsDone

    def _after_step(self, optimizer: Any, *_: Any) -> None:
        if self._stopped:
            self._stop()
        if _is_skipped(optimizer):
            return
        step = self._steps[id(optimizer)] = self._steps.get(id(optimizer), 0) + 1
        self._rank = _rank() if self._rank is None else self._rank
        with self._at_work():
            name = self._optimizer_name(optimizer)
            event: dict[str, Any] = {"kind": "step", "name": name, "call": step}
            event["norms"] = self._norms(optimizer)
            event["losses"] = self._losses
            self._add(event)
        self._progress(force=True)
        if self._spec.steps and self._all_done():
            self._stop()

    def _all_done(self) -> bool:
        return all(self._steps.get(id(o), 0) >= self._spec.steps for o in self._optimizers)

    def _optimizer_name(self, optimizer: Any) -> str:
        """The class, and a number when a script has several of it."""
        kind = type(optimizer).__name__
        alike = [o for o in self._optimizers if type(o).__name__ == kind]
        place = next((i for i, o in enumerate(alike) if o is optimizer), 0)
        return kind if place == 0 else f"{kind}#{place + 1}"

    def _norms(self, optimizer: Any) -> dict[str, dict[str, Any]]:
        names = self._names.parameters()
        found: dict[str, dict[str, Any]] = {}
        before, self._gradients = self._gradients, {}
        for index, parameter in enumerate(_parameters(optimizer)):
            gradient = before.get(id(parameter))  # a step may change them: SGD with nesterov does
            if gradient is None and parameter.grad is not None:
                gradient = _norm(parameter.grad)
            found[names.get(id(parameter), f"parameter {index}")] = {
                "parameter": _norm(parameter),
                "gradient": gradient,
                "device": parameter.device.type,
                "placed": self._placement.of_tensor(local(parameter)),
            }
        return found

    def _progress(self, force: bool = False) -> None:
        now = time.monotonic()
        if force or now - self._told > 0.5:
            self._told = now
            steps = max(self._steps.values(), default=0)
            text = json.dumps({"steps": steps, "calls": len(self._events), "losses": self._losses})
            if not self._rank:
                (Path(self._spec.folder) / PROGRESS).write_text(text, encoding="utf-8")

    def finish(self, extra: dict[str, Any], at_once: bool = False) -> None:
        """Take the hooks away, add the final state, and write everything to the folder.

        ``at_once``: the process ends without what else it would do at its end.
        """
        from safetensors.numpy import save_file

        if self._finished:
            return
        self._finished = True
        rank = _rank() if self._rank is None else self._rank
        for handle in self._handles:
            handle.remove()
        with self._at_work():
            state = self._state()
        record = {
            "events": self._events,
            "state": state,
            "modules": self._names.places(),
            "steps": max(self._steps.values(), default=0),
            "rank": _rank_variable() if rank is None else rank,
            "started": self._started,
            **extra,
        }
        self._names.close()
        self._folder.mkdir(exist_ok=True)
        save_file(self._keeper.values, str(self._folder / TENSORS))
        temporary = self._folder / (RECORD + ".tmp")
        temporary.write_text(json.dumps(record), encoding="utf-8")
        temporary.replace(self._folder / RECORD)
        if self.in_child or self._stopped or at_once:
            self._write_notes()

    def _write_notes(self) -> None:
        """What the simulator saw, should this process not come to write it at its exit."""
        simulator = sys.modules.get("cuda2npu.simulator.record")
        if simulator is not None and simulator.events():
            simulator.dump(self._folder / SIMULATOR_NOTES)

    def _state(self) -> list[dict[str, Any]]:
        found: dict[int, dict[str, Any]] = {}
        for root, module in self._names.roots():
            for name, tensor in kept_state(module):
                if id(tensor) not in found:
                    placed = self._placement.of_tensor(local(tensor))
                    path = qualified(root, name)
                    found[id(tensor)] = {"path": path, "placed": placed,
                                         **self._keeper.entry(tensor)}  # fmt: skip
        return list(found.values())


def _rank() -> int | None:
    """The rank in the process group, while there is one."""
    distributed: Any = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return None
    return int(distributed.get_rank())


def _rank_variable() -> int | None:
    text = os.environ.get("RANK", "")
    return int(text) if text.isdecimal() else None


def _end_helpers() -> None:
    """What ``multiprocessing`` does at an exit: workers hold open what others wait for."""
    for process in multiprocessing.active_children():
        if process.daemon:
            process.terminate()


def _remembering(scale: Any) -> Any:
    """A scaled loss knows the loss: the scale itself may differ from device to device."""

    def seen_scale(scaler: Any, outputs: Any) -> Any:
        scaled = scale(scaler, outputs)
        if isinstance(scaled, torch.Tensor) and scaled is not outputs:
            scaled._cuda2npu_unscaled = outputs.detach()  # type: ignore[attr-defined]
        return scaled

    return seen_scale


def _parameters(optimizer: Any) -> list[Any]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _values(args: Any, options: Any) -> list[Any]:
    """What a step was called with, less the optimizer itself."""
    return [value for value in (*args[1:], *(options or {}).values()) if value is not None]


def _is_skipped(optimizer: Any) -> bool:
    """Whether a GradScaler saw an overflow and leaves it to the fused optimizer to do nothing.

    The step of any other optimizer is then not called at all.
    """
    found = getattr(optimizer, "found_inf", None)
    return isinstance(found, torch.Tensor) and bool(found)


def _norm(tensor: Any) -> float:
    host = local(tensor).detach()
    if host.layout is not torch.strided:
        host = host.to_dense()
    return float(torch.linalg.vector_norm(host.float()).cpu())


def _traced() -> bool:
    jit: Any = torch.jit
    return bool(jit.is_tracing() or torch.compiler.is_compiling())

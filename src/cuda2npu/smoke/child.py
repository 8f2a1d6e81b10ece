"""The process that runs one script under the recorder: ``python -c BOOTSTRAP SPEC``."""

from __future__ import annotations

import faulthandler
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cuda2npu.running import program
from cuda2npu.running.program import ended_by, environment_of, how_it_ends
from cuda2npu.smoke.kept import announce_saves
from cuda2npu.smoke.spec import Spec

if TYPE_CHECKING:
    from cuda2npu.smoke.record import Recorder

BOOTSTRAP = program.BOOTSTRAP.format("cuda2npu.smoke.child")

is_root = False
"""Whether this process was started by the stage, not by the script."""


def main(spec_path: str) -> None:
    global is_root
    is_root = True
    spec = Spec.read(Path(spec_path))
    faulthandler.enable()
    if spec.cuda_on_cpu:
        hide("torch_npu")
    import torch

    recorder = instrument(torch, spec, Path(spec.folder))
    extra = how_it_ends(lambda: program.execute(spec.script, spec.arguments, spec.module))
    recorder.finish({**extra, "environment": environment_of(torch)})
    sys.stdout.flush()
    sys.stderr.flush()
    if extra.get("error"):
        sys.exit(1)


def instrument(torch: Any, spec: Spec, folder: Path) -> Recorder:
    """Lead and record this process from here on."""
    from cuda2npu.smoke import randomness
    from cuda2npu.smoke.placement import Placement
    from cuda2npu.smoke.record import Recorder

    placement: Placement = Placement()
    if spec.cuda_on_cpu:
        from cuda2npu.smoke.cuda_on_cpu import activate

        hide("torch_npu")
        placement = activate(spec.devices)
    recorder = Recorder(spec, placement, folder)
    recorder.install()
    _run_eagerly(torch)
    if spec.kept:
        announce_saves(torch)
    if not spec.dropout:
        randomness.without_dropout()
    if spec.device != "cpu" and not spec.cuda_on_cpu:
        randomness.draw_on_host(spec.device)
    randomness.seed(spec.seed)
    recorder.extra = {"environment": environment_of(torch)}
    watch_forks(recorder, spec)
    watch_exit(recorder)
    return recorder


def watch_exit(recorder: Recorder) -> None:
    """``os._exit`` passes all that runs at the end of a process: the record is written before."""
    from cuda2npu.smoke.adopted import finish_child

    leave = os._exit

    def _exit(status: int) -> None:
        error = SystemExit(status)
        try:
            if is_root:
                recorder.finish({**recorder.extra, **ended_by(error)}, at_once=True)
            else:
                finish_child(recorder, error)
        finally:
            leave(status)

    system: Any = os
    system._exit = _exit


def watch_forks(recorder: Recorder, spec: Spec) -> None:
    """A process that is forked has a record of its own."""
    from cuda2npu.smoke.adopted import forked

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: forked(recorder, spec))


def hide(package: str) -> None:
    """Libraries that look for an NPU package find none in the reference, as on a CUDA machine."""
    modules: dict[str, Any] = sys.modules
    modules.setdefault(package, None)


def _run_eagerly(torch: Any) -> None:
    """``torch.compile`` gives back what it was given, so that each layer can be seen."""

    def compile(model: Any = None, **_: Any) -> Any:
        return (lambda function: function) if model is None else model

    torch.compile = compile
    torch.nn.Module.compile = lambda self, *_, **__: None

"""The process that runs one script under the recorder.

Started as ``python -c BOOTSTRAP SPEC``: the bootstrap takes the working folder off ``sys.path``
before anything but ``sys`` is imported, so that no file of the user's is taken for a module.
"""

from __future__ import annotations

import faulthandler
import os
import platform
import signal
import sys
import time
import traceback
from importlib.abc import InspectLoader
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import TYPE_CHECKING, Any

from cuda2npu.smoke.kept import announce_saves
from cuda2npu.smoke.spec import Spec

if TYPE_CHECKING:
    from cuda2npu.smoke.record import Recorder

BOOTSTRAP = "import sys; sys.path.pop(0); from cuda2npu.smoke.child import main; main(sys.argv[1])"

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
    extra = _run(spec)
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


def _run(spec: Spec) -> dict[str, Any]:
    """Run the script as ``__main__``; how it ended."""
    from cuda2npu.smoke.record import StepsDone

    def stop(_: int, __: FrameType | None) -> None:
        raise StepsDone("timeout")

    signal.signal(signal.SIGTERM, stop)
    # Says where a process hangs that native code keeps from its handlers: in a collective.
    faulthandler.register(signal.SIGTERM, chain=True)
    try:
        return _how_it_ends(spec)
    except StepsDone as done:  # also when the time is up while an error is dealt with
        return {"ended": str(done) or "steps"}
    finally:
        faulthandler.unregister(signal.SIGTERM)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _how_it_ends(spec: Spec) -> dict[str, Any]:
    from cuda2npu.smoke.record import StepsDone

    try:
        execute(spec)
    except StepsDone:
        raise
    except SystemExit as leave:
        return ended_by(leave)
    except BaseException as error:
        traceback.print_exc()
        return ended_by(error)
    return {"ended": "script"}


def ended_by(error: BaseException | None) -> dict[str, Any]:
    """How a process ended that this exception leaves."""
    if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
        return {"ended": "script"}
    return {"ended": "error", "error": _error(error)}


def execute(spec: Spec) -> None:
    """As ``python SCRIPT`` or ``python -m MODULE`` does."""
    sys.argv = [spec.script, *spec.arguments]
    main = ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    if spec.module:
        sys.path.insert(0, str(Path.cwd()))
        code = _module(spec.module, main)
    else:
        sys.path.insert(0, str(Path(spec.script).parent))
        main.__file__ = spec.script
        code = compile(Path(spec.script).read_bytes(), spec.script, "exec", dont_inherit=True)
    exec(code, main.__dict__)


def _module(name: str, main: ModuleType) -> CodeType:
    """The code of a module, which ``main`` is made to stand for."""
    found = find_spec(name)
    if found is not None and found.submodule_search_locations is not None:
        found = find_spec(f"{name}.__main__")
    if found is None or not isinstance(found.loader, InspectLoader):
        raise ImportError(f"No module named {name}")
    code = found.loader.get_code(found.name)
    if code is None:
        raise ImportError(f"{name} has no Python code")
    main.__file__, main.__package__ = found.origin, found.parent
    main.__spec__, main.__loader__ = found, found.loader
    return code


def _error(error: BaseException) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    places = [{"file": f.filename, "line": f.lineno, "function": f.name} for f in frames]
    if isinstance(error, SyntaxError) and error.filename:
        places.append({"file": error.filename, "line": error.lineno, "function": ""})
    return {
        "type": type(error).__name__,
        "message": str(error),
        "frames": places,
        "text": text,
        "when": time.time(),
    }


def environment_of(torch: Any) -> dict[str, str]:
    torch_npu = sys.modules.get("torch_npu")
    found = {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "machine": f"{platform.system()} {platform.machine()}",
    }
    if torch_npu is not None:
        found["torch_npu"] = str(getattr(torch_npu, "__version__", "unknown"))
    if torch.version.cuda and torch.cuda.is_available():
        found["cuda"] = f"{torch.version.cuda}, {torch.cuda.get_device_name()}"
    return found

"""A script or a module that runs as ``__main__`` in this process, and how it ends. Child side."""

from __future__ import annotations

import faulthandler
import linecache
import platform
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from importlib.abc import InspectLoader
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

BOOTSTRAP = "import sys; sys.path.pop(0); from {0} import main; main(sys.argv[1])"
"""Takes the working folder off ``sys.path`` before anything but ``sys`` is imported, so that no
file of the user's is taken for a module."""


class StepsDone(BaseException):
    """Ends the script from inside: all steps that were asked for are done."""


def how_it_ends(run: Callable[[], None]) -> dict[str, Any]:
    """Run to the end, to ``StepsDone``, to an error, or until SIGTERM says that the time is up."""

    def stop(_: int, __: FrameType | None) -> None:
        raise StepsDone("timeout")

    signal.signal(signal.SIGTERM, stop)
    # Says where a process hangs that native code keeps from its handlers: in a collective.
    faulthandler.register(signal.SIGTERM, chain=True)
    try:
        return _end_of(run)
    except StepsDone as done:  # also when the time is up while an error is dealt with
        return {"ended": str(done) or "steps"}
    finally:
        faulthandler.unregister(signal.SIGTERM)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _end_of(run: Callable[[], None]) -> dict[str, Any]:
    try:
        run()
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


def execute(script: str, arguments: Sequence[str], module: str = "") -> None:
    """As ``python SCRIPT`` or ``python -m MODULE`` does."""
    sys.argv = [script, *arguments]
    main = ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    if module:
        sys.path.insert(0, str(Path.cwd()))
        code = _module(module, main)
    else:
        sys.path.insert(0, str(Path(script).parent))
        main.__file__ = script
        code = compile(Path(script).read_bytes(), script, "exec", dont_inherit=True)
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
    places = [
        {"file": f.filename, "line": f.lineno, "function": f.name, "marked": _marked(f)}
        for f in frames
    ]
    if isinstance(error, SyntaxError) and error.filename:
        places.append({"file": error.filename, "line": error.lineno, "function": ""})
    return {
        "type": type(error).__name__,
        "message": str(error),
        "frames": places,
        "text": text,
        "when": time.time(),
    }


def _marked(frame: traceback.FrameSummary) -> str:
    """The part of its line that a traceback marks; nothing before Python 3.11."""
    first, last = getattr(frame, "colno", None), getattr(frame, "end_colno", None)
    if first is None or last is None or frame.lineno != getattr(frame, "end_lineno", 0):
        return ""
    line = linecache.getline(frame.filename, frame.lineno or 0)
    return line.encode()[first:last].decode(errors="replace")  # columns are those of bytes


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

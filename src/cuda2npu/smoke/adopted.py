"""Processes that the script starts: they are led and recorded as the script itself is.

``adopt`` is called at the end of ``import torch`` in each Python process below a run. A process
that computes nothing, such as a worker of a DataLoader, leaves no record.
"""

from __future__ import annotations

import atexit
import faulthandler
import os
import signal
import sys
from contextlib import suppress
from multiprocessing import parent_process, util
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from cuda2npu.running.program import ended_by
from cuda2npu.simulator import RECORDED
from cuda2npu.smoke import child
from cuda2npu.smoke.spec import Spec

if TYPE_CHECKING:
    from cuda2npu.smoke.record import Recorder

CHILD = "child-"
"""Before the process number, the name of the folder that holds a child's record."""
_FIRST = 1_000
"""The priority of what runs before all else at the end of a process of ``multiprocessing``."""


def adopt() -> None:
    """Lead and record this process, when a script of a run started it."""
    path = Path(os.environ[RECORDED])
    if child.is_root or not path.is_file():
        return
    import torch

    spec = Spec.read(path)
    recorder = child.instrument(torch, spec, _folder(spec))
    recorder.in_child = True
    _end_in_order(recorder)


def forked(recorder: Recorder, spec: Spec) -> None:
    """In a process that was just forked from a recorded one."""
    child.is_root = False
    recorder.restart(_folder(spec))
    faulthandler.unregister(signal.SIGTERM)
    with suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _end_in_order(recorder)


def _folder(spec: Spec) -> Path:
    return Path(spec.folder) / f"{CHILD}{os.getpid()}"


def _end_in_order(recorder: Recorder) -> None:
    """However this process ends, its record is written; it has to have something to tell."""
    errors: list[BaseException] = []

    def finish() -> None:
        finish_child(recorder, sys.exc_info()[1] or (errors[-1] if errors else None))

    def first_event() -> None:
        atexit.register(finish)
        with suppress(ValueError):  # not the main thread
            if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
                signal.signal(signal.SIGTERM, stop)
                faulthandler.register(signal.SIGTERM, chain=True)

    def stop(number: int, _: FrameType | None) -> None:
        recorder.finish({**recorder.extra, "ended": "timeout"})
        os._exit(128 + number)

    def before_run(_: object) -> None:
        util.Finalize(None, finish, exitpriority=_FIRST)

    hook = sys.excepthook

    def seen(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        errors.append(error)
        hook(kind, error, trace)

    recorder.first_event = first_event
    util.register_after_fork(recorder, before_run)
    if parent_process() is not None:
        before_run(None)
    else:
        sys.excepthook = seen


def finish_child(recorder: Recorder, error: BaseException | None) -> None:
    if isinstance(error, SystemExit) and error.code not in (None, 0):
        # torch.multiprocessing hands an exception to the parent and exits.
        error = error.__context__ or error
    worker: Any = sys.modules["torch"].utils.data.get_worker_info()
    ended = ended_by(error)
    if worker is None and (ended["ended"] == "error" or not recorder.empty):
        recorder.finish({**recorder.extra, **ended})

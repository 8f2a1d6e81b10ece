"""The worker processes of this machine: how they start, and how they end with their parent."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cuda2npu import writing

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from multiprocessing.process import BaseProcess

_GRACE = 2.0
"""Seconds that a worker goes on when it is told to end."""


def process_pool(workers: int) -> Executor:
    """The default executor."""
    from concurrent.futures import ProcessPoolExecutor

    return ProcessPoolExecutor(workers, initializer=_start_worker)


def _start_worker() -> None:
    import signal
    from multiprocessing import parent_process
    from threading import Thread

    # Ctrl-C reaches the whole process group; the parent alone decides what is finished.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end_soon)
    parent = parent_process()
    if parent is not None:
        Thread(target=_follow, args=(parent,), daemon=True).start()


def _follow(parent: BaseProcess) -> None:
    """A worker whose parent was killed would wait for work for ever."""
    parent.join()
    _end_worker()


def _end_soon(*_: object) -> None:
    """Leave the time to tell what is done: half an outcome would block the parent for ever.

    A signal for the whole group reaches the parent, too, which then ends its workers itself.
    """
    from threading import Timer

    timer = Timer(_GRACE, _end_worker)
    timer.daemon = True
    timer.start()


def _end_worker() -> None:
    """End at once; the file in work stays as it was."""
    writing.remove_temporaries()
    os._exit(1)

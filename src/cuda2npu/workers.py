"""The worker processes of this machine: how they start, and how they end with their parent."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol, TypeVar

from cuda2npu import writing

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from multiprocessing.process import BaseProcess

_T = TypeVar("_T")
_Contents = Iterable[tuple[str, bytes]]
_BATCH = 256 * 1024
"""Bytes of source that travel to a worker at once."""
_GRACE = 2.0
"""Seconds that a worker goes on when it is told to end."""


class Each(Protocol):
    """Calls a pure function with the bytes of each file; tells the results in the same order."""

    def __call__(
        self, function: Callable[[bytes], _T], contents: _Contents, /
    ) -> Iterable[tuple[str, _T]]: ...


def one_by_one(function: Callable[[bytes], _T], contents: _Contents, /) -> Iterator[tuple[str, _T]]:
    """Call it here."""
    return ((path, function(data)) for path, data in contents)


def by_workers(executor: Executor, workers: int) -> Each:
    """Have the workers of an executor call it; what one dies of is done here."""

    def each(function: Callable[[bytes], _T], contents: _Contents, /) -> Iterator[tuple[str, _T]]:
        window: deque[Callable[[], list[tuple[str, _T]]]] = deque()
        for batch in _batches(contents):
            window.append(_begun(executor, function, batch))
            if len(window) > 2 * workers:
                yield from window.popleft()()
        for rest in window:
            yield from rest()

    return each


def _batches(contents: _Contents) -> Iterator[list[tuple[str, bytes]]]:
    batch: list[tuple[str, bytes]] = []
    size = 0
    for path, data in contents:
        batch.append((path, data))
        size += len(data)
        if size >= _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _begun(
    executor: Executor, function: Callable[[bytes], _T], batch: list[tuple[str, bytes]]
) -> Callable[[], list[tuple[str, _T]]]:
    """Hand a batch to a worker; gives what waits for the results."""
    from concurrent.futures import BrokenExecutor

    try:
        future = executor.submit(_call, function, batch)
    except BrokenExecutor:
        return lambda: _call(function, batch)

    def results() -> list[tuple[str, _T]]:
        try:
            return future.result()
        except BrokenExecutor:
            return _call(function, batch)

    return results


def _call(function: Callable[[bytes], _T], batch: list[tuple[str, bytes]]) -> list[tuple[str, _T]]:
    return list(one_by_one(function, batch))


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

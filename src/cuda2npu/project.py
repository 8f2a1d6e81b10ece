"""Many files: each is a pure job of its own, done here or by an executor, told in order."""

from __future__ import annotations

import itertools
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cuda2npu import files, formats
from cuda2npu.files import Job
from cuda2npu.knowledge import Knowledge
from cuda2npu.model import Finding, Options, SourceError, Target, UsageError

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future
    from multiprocessing.process import BaseProcess

    ExecutorFactory = Callable[[int], Executor]

POOL_BYTES = 256 * 1024
"""Less source than this is done sooner than a pool of workers starts."""

_GRACE = 2.0
"""Seconds that a worker goes on when it is told to end."""

_LINE_END = r"\r\n|\r|\n"


class Mode(Enum):
    """What happens to the rewritten source."""

    CHECK = "check"
    DIFF = "diff"
    WRITE = "write"


class Outcome(NamedTuple):
    """What became of one file."""

    path: str
    changed: bool = False
    findings: tuple[Finding, ...] = ()
    excerpts: tuple[str, ...] = ()
    """The source line of each finding."""
    error: str | None = None
    notes: tuple[str, ...] = ()
    """What else the summary says about the file."""
    before: bytes = b""
    """The source as it was and as it became, when that is to be shown."""
    after: bytes = b""
    unread: str | None = None
    """Why a document that was found in a folder is not of the kind that its name tells."""


_Item = Outcome | tuple[Job, bytes]
"""What is done already, or is still to be converted."""


def run(
    jobs: Iterable[Job],
    options: Options,
    mode: Mode,
    *,
    workers: int | None = None,
    executor: ExecutorFactory | None = None,
    stopped: Callable[[], bool] = lambda: False,
    knowledge: Callable[[], Knowledge] = Knowledge,
) -> Iterator[Outcome]:
    """Do every job and tell the outcomes in the order of the jobs.

    ``knowledge`` collects what the files say about each other; it is asked once, before the
    first file is converted, and not at all when no file holds a trigger word.

    ``executor`` makes the executor for a number of workers and is then always used. Without
    it, a ``ProcessPoolExecutor`` is started once there is enough to do. When ``stopped()``
    turns true, what has not begun is dropped and what has is finished and told.
    """
    items: Iterator[_Item] = (load(job, mode) for job in jobs)
    workers = workers or cores()
    if executor is None:
        begun = _gather(items) if workers > 1 else []
        items = itertools.chain(begun, items)
        if _size(begun) < POOL_BYTES:
            known = cache(knowledge)
            for item in itertools.takewhile(lambda _: not stopped(), items):
                yield (
                    item if isinstance(item, Outcome) else convert(*item, options, mode, known())
                )
            return
    pool = _Pool(executor or process_pool, workers, (options, mode, knowledge()))
    try:
        yield from pool.outcomes(items, stopped)
    finally:
        pool.close()


def _gather(items: Iterator[_Item]) -> list[_Item]:
    """As many items as it takes to know whether a pool is worth its start."""
    begun: list[_Item] = []
    size = 0
    for item in items:
        begun.append(item)
        size += _size([item])
        if size >= POOL_BYTES:
            break
    return begun


def _size(items: Iterable[_Item]) -> int:
    return sum(len(item[1]) for item in items if not isinstance(item, Outcome))


class _Task(NamedTuple):
    job: Job
    data: bytes
    future: Future[Outcome]


class _Pool:
    """An executor that outlives the death of its workers."""

    def __init__(
        self, factory: ExecutorFactory, workers: int, arguments: tuple[Options, Mode, Knowledge]
    ) -> None:
        self._factory = factory
        self._workers = workers
        self._arguments = arguments
        self._executor = factory(workers)

    def outcomes(self, items: Iterator[_Item], stopped: Callable[[], bool]) -> Iterator[Outcome]:
        window: deque[Outcome | _Task] = deque()
        running = 0
        for item in itertools.takewhile(lambda _: not stopped(), items):
            if isinstance(item, Outcome):
                window.append(item)
            else:
                window.append(self._submit(*item))
                running += 1
            while window and (isinstance(window[0], Outcome) or running >= 4 * self._workers):
                head = window.popleft()
                running -= isinstance(head, _Task)
                yield from self._outcome(head, stopped)
        while window and not stopped():
            yield from self._outcome(window.popleft(), stopped)
        self.close()
        for rest in window:
            if isinstance(rest, Outcome) or not rest.future.cancelled():
                yield from self._outcome(rest, stopped)

    def close(self) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)

    def _submit(self, job: Job, data: bytes) -> _Task:
        from concurrent.futures import BrokenExecutor

        try:
            future = self._executor.submit(convert, job, data, *self._arguments)
        except BrokenExecutor:
            self.close()
            self._executor = self._factory(self._workers)
            future = self._executor.submit(convert, job, data, *self._arguments)
        return _Task(job, data, future)

    def _outcome(self, item: Outcome | _Task, stopped: Callable[[], bool]) -> Iterator[Outcome]:
        """The outcome; nothing when the workers were ended together with the run."""
        from concurrent.futures import BrokenExecutor

        if isinstance(item, Outcome):
            yield item
            return
        try:
            outcome = item.future.result()
        except BrokenExecutor:
            if stopped():
                return
            outcome = self._alone(item.job, item.data)
        yield outcome

    def _alone(self, job: Job, data: bytes) -> Outcome:
        """Do a file again with a worker of its own, to learn which file kills its worker."""
        from concurrent.futures import BrokenExecutor

        with self._factory(1) as executor:
            try:
                return executor.submit(convert, job, data, *self._arguments).result()
            except BrokenExecutor:
                return Outcome(
                    job.path,
                    error="the worker process died, out of memory or by a crash. "
                    "Left as it was. Try this file alone with --jobs 1.",
                )


def cores() -> int:
    """The processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
    files.remove_temporaries()
    os._exit(1)


def process_bytes(
    path: str,
    data: bytes,
    options: Options,
    mode: Mode,
    knowledge: Callable[[], Knowledge] = Knowledge,
) -> Outcome:
    """Rewrite a source that is no file. Unless the mode is CHECK, ``after`` is the new one."""
    if not formats.has_trigger(data, path):
        return Outcome(path, after=data)
    outcome = convert_bytes(path, data, options, mode, knowledge())
    return outcome if outcome.changed or outcome.error else outcome._replace(after=data)


def load(job: Job, mode: Mode) -> _Item:
    """A job with the bytes of its file; the outcome when that holds no trigger word."""
    try:
        data = Path(job.path).read_bytes()
    except OSError as error:
        return Outcome(job.path, error=f"cannot be read: {error.strerror}")
    if formats.has_trigger(data, job.path):
        return job, data
    if mode is Mode.WRITE and job.output is not None:
        return Outcome(job.path, error=_write(job, data, data))
    return Outcome(job.path)


def convert(
    job: Job, data: bytes, options: Options, mode: Mode, knowledge: Knowledge | None = None
) -> Outcome:
    """Rewrite the bytes of one file. Whatever goes wrong concerns this file alone."""
    if job.named and options.target is Target.SHIM:
        options = replace(options, named=True)
    outcome = convert_bytes(job.path, data, options, mode, knowledge, strict=job.named)
    if mode is not Mode.WRITE or not (outcome.changed or job.output is not None):
        return outcome
    error = _write(job, data, outcome.after if outcome.changed else data)
    if error is not None:
        return Outcome(job.path, error=error)
    findings = outcome.findings
    if job.output is not None:
        findings = tuple(replace(finding, path=job.output) for finding in findings)
    return outcome._replace(findings=findings, before=b"", after=b"")


def convert_bytes(
    path: str,
    data: bytes,
    options: Options,
    mode: Mode,
    knowledge: Knowledge | None = None,
    *,
    strict: bool = True,
) -> Outcome:
    """Rewrite a source in memory. A document that cannot be read is an error when ``strict``.

    In ``Mode.WRITE`` the findings have their places in the new source, else in the old one.
    """
    try:
        if knowledge is not None:
            knowledge = knowledge.seen_from(os.path.realpath(path))
        after, result = formats.rewrite_bytes(data, options, path=path, knowledge=knowledge)
        findings = result.findings
        lines: list[str] = []
        if findings:
            lines = source_lines(data)
        if findings and mode is Mode.WRITE and result.changed:
            old, lines = lines, source_lines(after)
            findings = _relocate(findings, old, lines)
    except SourceError as error:
        if strict or formats.is_python(path):
            return Outcome(path, error=str(error))
        return Outcome(path, unread=str(error))
    except UsageError:  # a rule pack that cannot be loaded concerns every file
        raise
    except Exception as error:  # a defect of one rule must not cost the other files
        return Outcome(
            path,
            error=f"internal error, please report it together with the file: "
            f"{type(error).__name__}: {error}. Left as it was.",
        )
    excerpts = tuple(lines[finding.line - 1] for finding in findings)
    outcome = Outcome(path, result.changed, findings, excerpts, notes=result.notes)
    if mode is Mode.CHECK or not (result.changed or (findings and mode is Mode.DIFF)):
        return outcome
    return outcome._replace(before=data, after=after)


def source_lines(data: bytes) -> list[str]:
    """The lines of a source, as findings count them. Raises SourceError."""
    from cuda2npu.source import decode

    return re.split(_LINE_END, decode(data)[0])


def _relocate(findings: tuple[Finding, ...], old: list[str], new: list[str]) -> tuple[Finding, ...]:
    """The findings with their lines in the rewritten source, which is what the user opens."""
    if len(old) == len(new):
        return findings
    from difflib import SequenceMatcher

    lines: dict[int, int] = {}
    for _, i1, i2, j1, j2 in SequenceMatcher(None, old, new).get_opcodes():
        last = max(j2 - 1, j1 - 1, 0)
        lines.update((line, min(j1 + line - i1, last)) for line in range(i1, i2))
    return tuple(
        replace(
            finding,
            line=lines[finding.line - 1] + 1,
            end_line=lines[finding.end_line - 1] + 1,
        )
        for finding in findings
    )


def _write(job: Job, before: bytes, after: bytes) -> str | None:
    """Write one file; what went wrong, if anything did."""
    try:
        if job.output is None:
            files.replace_file(job.path, after, expected=before, root=job.root)
        else:
            files.write_copy(job.path, job.output, after, job.folder)
    except files.WriteError as error:
        return str(error)
    return None

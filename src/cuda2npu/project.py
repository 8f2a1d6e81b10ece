"""Many files: each is a pure job of its own, done here or by an executor, told in order."""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cuda2npu import formats, writing
from cuda2npu.boundary import is_generated
from cuda2npu.files import Job
from cuda2npu.fingerprint import occurrences
from cuda2npu.knowledge import Knowledge
from cuda2npu.model import Edit, Finding, Options, SourceError, Target, UsageError
from cuda2npu.workers import Each, by_workers, one_by_one, process_pool

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

    ExecutorFactory = Callable[[int], Executor]
    Gather = Callable[[Each], Knowledge]

POOL_BYTES = 256 * 1024
"""Less source than this is done sooner than a pool of workers starts."""

_PATIENCE = 0.2
"""Seconds between two looks at whether the user stopped the run."""


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
    occurrences: tuple[int, ...] = ()
    """How many findings before have the same code and source line as each one."""
    edits: tuple[Edit, ...] = ()
    """What ``rewrite`` does to the file, of one that was not written."""
    generated: bool = False
    """Whether the file was left out because it says that a program wrote it."""
    unread: str | None = None
    """Why a document that was found in a folder is not of the kind that its name tells."""

    def only(self, kept: list[int]) -> Outcome:
        """The outcome with these of its findings, by their index."""
        if len(kept) == len(self.findings):
            return self
        if not kept:
            return Outcome(self.path, error=self.error, notes=self.notes)
        return self._replace(
            findings=tuple(self.findings[index] for index in kept),
            excerpts=tuple(self.excerpts[index] for index in kept),
            occurrences=tuple(self.occurrences[index] for index in kept),
        )


class DeadlyFileError(Exception):
    """Raised by an executor for a file that ends every worker it is given to."""


_Item = Outcome | tuple[Job, bytes]
"""What is done already, or is still to be converted."""


def run(
    jobs: Iterable[Job],
    options: Options,
    mode: Mode,
    *,
    workers: int | None = None,
    executor: ExecutorFactory | None = None,
    remote: bool = False,
    stopped: Callable[[], bool] = lambda: False,
    knowledge: Gather = lambda _: Knowledge(),
) -> Iterator[Outcome]:
    """Do every job and tell the outcomes in the order of the jobs.

    ``knowledge`` collects what the files say about each other, by the workers if there are
    any; it is asked once, before the first file is converted, and not at all when no file holds
    a trigger word.

    ``executor`` makes the executor for a number of workers and is then always used. Without
    it, a ``ProcessPoolExecutor`` is started once there is enough to do. Workers that are
    ``remote`` see no files: the bytes travel, and files are written here. When ``stopped()``
    turns true, what has not begun is dropped and what has is finished and told.
    """
    items: Iterator[_Item] = (load(job, options, mode) for job in jobs)
    workers = workers or cores()
    if executor is None:
        begun = _gather(items) if workers > 1 else []
        items = itertools.chain(begun, items)
        if _size(begun) < POOL_BYTES:
            known = cache(lambda: knowledge(one_by_one))
            for item in itertools.takewhile(lambda _: not stopped(), items):
                yield (
                    item if isinstance(item, Outcome) else convert(*item, options, mode, known())
                )
            return
    pool = _Pool(executor or process_pool, workers, (options, mode), remote)
    try:
        pool.gather(knowledge)
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
        self,
        factory: ExecutorFactory,
        workers: int,
        arguments: tuple[Options, Mode],
        remote: bool,
    ) -> None:
        self._factory = factory
        self._remote = remote
        self._work = transform if remote else convert
        self._stores = remote and arguments[1] is Mode.WRITE
        self._workers = workers
        self._common = arguments
        self._knowledge = Knowledge()
        self._executor = factory(workers)

    def gather(self, knowledge: Gather) -> None:
        """Collect what the files say about each other; not far away, since all bytes travel."""
        near = one_by_one if self._remote else by_workers(self._executor, self._workers)
        self._knowledge = knowledge(near)

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

    def _arguments(self, job: Job) -> tuple[Options, Mode, Knowledge]:
        """What a job needs besides its bytes; a remote worker could not resolve its path."""
        return *self._common, self._knowledge.seen_from(os.path.realpath(job.path))

    def _submit(self, job: Job, data: bytes) -> _Task:
        from concurrent.futures import BrokenExecutor

        try:
            future = self._executor.submit(self._work, job, data, *self._arguments(job))
        except BrokenExecutor:
            self.close()
            self._executor = self._factory(self._workers)
            future = self._executor.submit(self._work, job, data, *self._arguments(job))
        return _Task(job, data, future)

    def _outcome(self, item: Outcome | _Task, stopped: Callable[[], bool]) -> Iterator[Outcome]:
        """The outcome; nothing when the run ended before the file was begun, or its worker did."""
        from concurrent.futures import BrokenExecutor, CancelledError

        if isinstance(item, Outcome):
            yield item
            return
        try:
            outcome = _result(item.future, stopped)
        except CancelledError:
            return
        except DeadlyFileError:
            outcome = _died(item.job)
        except BrokenExecutor:
            if stopped():
                return
            outcome = self._alone(item.job, item.data)
        yield store(item.job, item.data, outcome) if self._stores else outcome

    def _alone(self, job: Job, data: bytes) -> Outcome:
        """Do a file again with a worker of its own, to learn which file kills its worker."""
        from concurrent.futures import BrokenExecutor

        with self._factory(1) as executor:
            try:
                return executor.submit(self._work, job, data, *self._arguments(job)).result()
            except BrokenExecutor:
                return _died(job)


def _result(future: Future[Outcome], stopped: Callable[[], bool]) -> Outcome:
    """The result of a future; one that still waits for a worker is cancelled at a stop."""
    from concurrent.futures import TimeoutError

    while True:
        try:
            return future.result(timeout=_PATIENCE)
        except TimeoutError:
            if stopped():
                future.cancel()


def _died(job: Job) -> Outcome:
    fault = "the worker process died, out of memory or by a crash. Left as it was. "
    return Outcome(job.path, error=f"{fault}Try this file alone with --jobs 1.")


def cores() -> int:
    """The processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def process_bytes(
    path: str,
    data: bytes,
    options: Options,
    mode: Mode,
    knowledge: Callable[[], Knowledge] = Knowledge,
) -> Outcome:
    """Rewrite a source that is no file. Unless the mode is CHECK, ``after`` is the new one."""
    if not formats.has_trigger(data, path, options):
        return Outcome(path, after=data)
    outcome = convert_bytes(path, data, options, mode, knowledge())
    return outcome if outcome.changed or outcome.error else outcome._replace(after=data)


def load(job: Job, options: Options, mode: Mode) -> _Item:
    """A job with the bytes of its file; the outcome when that holds no trigger word."""
    try:
        data = Path(job.path).read_bytes()
    except OSError as error:
        return Outcome(job.path, error=f"cannot be read: {error.strerror}")
    triggered = formats.has_trigger(data, job.path, options)
    generated = triggered and not job.meant and is_generated(data)
    if triggered and not generated:
        return job, data
    copied = mode is Mode.WRITE and job.output is not None
    return Outcome(job.path, error=_write(job, data, data) if copied else None, generated=generated)


def convert(
    job: Job, data: bytes, options: Options, mode: Mode, knowledge: Knowledge | None = None
) -> Outcome:
    """Rewrite one file and, in ``Mode.WRITE``, write it."""
    outcome = transform(job, data, options, mode, knowledge)
    return store(job, data, outcome) if mode is Mode.WRITE else outcome


def transform(
    job: Job, data: bytes, options: Options, mode: Mode, knowledge: Knowledge | None = None
) -> Outcome:
    """Rewrite the bytes of one file, a pure function. What goes wrong concerns it alone."""
    if job.meant and options.target is Target.SHIM:
        options = replace(options, named=True)
    return convert_bytes(job.path, data, options, mode, knowledge, strict=job.meant)


def store(job: Job, data: bytes, outcome: Outcome) -> Outcome:
    """Write what became of a file, here, and tell the outcome without it."""
    if not (outcome.changed or job.output is not None):
        return outcome
    error = _write(job, data, outcome.after if outcome.changed else data)
    if error is not None:
        return Outcome(job.path, error=error)
    findings = outcome.findings
    if job.output is not None:
        findings = tuple(replace(finding, path=job.output) for finding in findings)
    return outcome._replace(findings=findings, before=b"", after=b"", edits=())


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
    from cuda2npu.places import relocated, source_lines

    try:
        if knowledge is not None and not knowledge.here:
            knowledge = knowledge.seen_from(os.path.realpath(path))
        after, result = formats.rewrite_bytes(data, options, path=path, knowledge=knowledge)
        findings = result.findings
        lines: list[str] = []
        if findings:
            lines = source_lines(data)
        if findings and mode is Mode.WRITE and result.changed:
            old, lines = lines, source_lines(after)
            findings = relocated(findings, old, lines)
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
    excerpts = tuple(f.cell.text if f.cell else lines[f.line - 1] for f in findings)
    outcome = Outcome(path, result.changed, findings, excerpts, notes=result.notes)
    outcome = outcome._replace(occurrences=occurrences(findings, excerpts), edits=result.edits)
    if mode is Mode.CHECK or not (result.changed or (findings and mode is Mode.DIFF)):
        return outcome
    return outcome._replace(before=data, after=after)


def _write(job: Job, before: bytes, after: bytes) -> str | None:
    """Write one file; what went wrong, if anything did."""
    try:
        if job.output is None:
            writing.replace_file(job.path, after, expected=before, root=job.root)
        else:
            writing.write_copy(job.path, job.output, after, job.folder)
    except writing.WriteError as error:
        return str(error)
    return None

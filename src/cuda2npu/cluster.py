"""An existing Dask cluster as the executor of a run: ``--executor dask://HOST:PORT``.

The bytes of a file travel to a worker and its outcome comes back, so that workers need no file
system in common with this machine. They need the same cuda2npu with the same rule packs.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future
from concurrent.futures import wait as wait_for
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from cuda2npu.model import UsageError
from cuda2npu.packs import installed_packs
from cuda2npu.project import DeadlyFileError

_SCHEME = "dask://"
_TIMEOUT = 5
"""Seconds that a scheduler and its first worker have to answer."""

Here = tuple[str, tuple[str, ...]]
"""The version of cuda2npu and its rule packs."""


class Cluster(Executor):
    """The workers of a Dask scheduler. A task whose worker dies is done again by another one."""

    def __init__(self, url: str) -> None:
        """Raises UsageError when the address, the scheduler or a worker cannot be used."""
        if not re.fullmatch(rf"{_SCHEME}[^/]+:\d+", url):
            raise UsageError(f"--executor {url}: is no {_SCHEME}HOST:PORT")
        self._url = url
        self._open: set[Future[Any]] = set()
        self._here = here()
        self._client = self._connect(url.removeprefix(_SCHEME))
        try:
            self._check_workers()
        except BaseException:
            self._client.close()
            raise
        self.threads = sum(self._client.nthreads().values())

    def _connect(self, address: str) -> Any:
        try:
            distributed: Any = import_module("distributed")
        except ImportError:
            raise self._fault(
                "needs the package distributed: pip install 'cuda2npu[dask]'"
            ) from None
        for name in ("distributed", "distributed.client"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # errors are told by exceptions
        warnings.filterwarnings("ignore", module="distributed")
        try:
            return distributed.Client(f"tcp://{address}", timeout=_TIMEOUT, set_as_default=False)
        except Exception as error:  # whatever a stranger at that port provokes
            raise self._fault(f"no Dask scheduler answers there: {_said(error)}") from None

    def _check_workers(self) -> None:
        try:
            self._client.wait_for_workers(1, timeout=_TIMEOUT)
        except TimeoutError:
            raise self._fault("the cluster has no workers; start one with `dask worker`") from None
        found = self._client.run(version, "cuda2npu", on_error="return")
        for worker, there in found.items():
            if isinstance(there, PackageNotFoundError):
                wanted = f"pip install cuda2npu=={self._here[0]}"
                raise self._fault(f"the worker {worker} has no cuda2npu; run `{wanted}` there")
            if there != self._here[0]:
                raise self._fault(f"the worker {worker} has cuda2npu {_said(there)}, {self._own()}")
        for worker, known in self._client.run(here, on_error="return").items():
            if known != self._here:
                packs = ", ".join(known[1]) if isinstance(known, tuple) else _said(known)
                raise self._fault(
                    f"the worker {worker} has other rule packs ({packs}), {self._own()}"
                )

    def _own(self) -> str:
        return f"but this is {self._here[0]} with {', '.join(self._here[1])}; they must be the same"

    def _fault(self, text: str) -> UsageError:
        return UsageError(f"--executor {self._url}: {text}")

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Have a worker call a function; what it holds of this machine goes along."""
        future: Future[Any] = Future()
        self._open.add(future)
        future.add_done_callback(self._open.discard)
        task = self._client.submit(_guarded, self._here, fn, *args, pure=False, **kwargs)
        task.add_done_callback(lambda done: self._settle(future, done))
        return future

    def _settle(self, future: Future[Any], task: Any) -> None:
        """Hand the result of a task on, unless the run was stopped before."""
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(task.result())
        except UsageError as error:
            future.set_exception(error)
        except CancelledError:
            gone = "the scheduler went away. What was not told yet is as it was."
            future.set_exception(self._fault(gone))
        except Exception as error:
            deadly = type(error).__name__ == "KilledWorker"
            fault = self._fault(f"a worker cannot do the work: {_said(error)}")
            future.set_exception(DeadlyFileError() if deadly else fault)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Drop what has not come back, and leave the cluster once what is coming is here."""
        coming = [future for future in tuple(self._open) if not future.cancel()]
        wait_for(coming, timeout=_TIMEOUT)
        self._client.close(timeout=_TIMEOUT)


def _guarded(wanted: Here, fn: Callable[..., Any], *args: Any) -> Any:
    """Call a function on a worker, which may have come after the check of all workers."""
    if here() != wanted:
        raise UsageError(f"a worker joined with cuda2npu {here()}, but {wanted} is needed")
    return fn(*args)


@cache
def here() -> Here:
    """What must be the same on every machine."""
    return version("cuda2npu"), installed_packs()


def _said(error: object) -> str:
    return f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(error)

"""Where the tensors of a run are meant to be. Child side.

On a machine without a GPU the reference runs on the CPU alone. Which tensors the script moved to
CUDA is then known by their storage: each one that stands in for CUDA memory is marked, and so is
what is computed from it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

PRUNE = 20_000


class Placement:
    """Says of tensors whether they are meant for the accelerator: by their device."""

    def of_tensor(self, tensor: torch.Tensor) -> str | None:
        return tensor.device.type

    def of_module(self, module: torch.nn.Module) -> str | None:
        """Where the parameters of a module are; None when it has none."""
        places = {self.of_tensor(tensor) for tensor in module.parameters()}
        places.discard("meta")
        return places.pop() if len(places) == 1 else ("mixed" if places else None)

    def paused(self) -> AbstractContextManager[None]:
        return nullcontext()


class _Mark(NamedTuple):
    device: int
    storage: Any
    """A weak reference."""


class MarkedPlacement(Placement):
    """By the marks on their storages, in a run whose CUDA calls are led to the CPU."""

    def __init__(self) -> None:
        self._marked: dict[int, _Mark] = {}
        """By the addresses of the storages, which stay theirs as long as they are referred to."""
        self._limit = PRUNE
        self._own = threading.local()

    def mark(self, tensor: torch.Tensor, index: int = 0) -> None:
        storage = _storage(tensor)
        if storage is None:
            return
        reference: Any = StorageWeakRef
        self._marked[storage._cdata] = _Mark(index, reference(storage))
        if len(self._marked) > self._limit:
            kept = list(self._marked.items())  # at once: other threads go on marking
            self._marked = {key: mark for key, mark in kept if not mark.storage.expired()}
            self._limit = max(PRUNE, 2 * len(self._marked))

    def index(self, tensor: torch.Tensor) -> int | None:
        """The number of the CUDA device; None for a tensor that is meant for another."""
        mark = self._marked.get(_address(tensor))
        return None if mark is None else mark.device

    def is_marked(self, tensor: torch.Tensor) -> bool:
        return self.index(tensor) is not None

    def carry(self, inputs: Any, made: Any) -> None:
        """What is computed from tensors on CUDA is there, too.

        What shares its memory with an input, as views and the results of ``copy_`` do, stays
        where that is.
        """
        results = [*_tensors(made)]
        if not results:
            return
        addresses = [_address(tensor) for tensor in _tensors(inputs)]
        marks = [self._marked[each] for each in addresses if each in self._marked]
        for tensor in results if marks else ():
            if _address(tensor) not in addresses:
                self.mark(tensor, marks[0].device)

    def of_tensor(self, tensor: torch.Tensor) -> str | None:
        return "cuda" if self.is_marked(tensor) else tensor.device.type

    def follow_lazy_modules(self) -> None:
        """A parameter of a lazy module comes to be where the module was moved to."""
        parameter: Any = torch.nn.parameter
        lazy = parameter.UninitializedTensorMixin
        materialize = lazy.materialize

        def materialized(tensor: Any, *args: Any, **options: Any) -> None:
            index = self.index(tensor)
            materialize(tensor, *args, **options)
            if index is not None:
                self.mark(tensor, index)

        lazy.materialize = materialized

    @property
    def active(self) -> bool:
        return not getattr(self._own, "paused", False)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing is led anywhere in the recorder's own work, in the thread that does it."""
        before, self._own.paused = not self.active, True
        try:
            yield
        finally:
            self._own.paused = before


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """Those among the arguments or results of a torch function."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        yield from _tensors([*value.values()])


def _address(tensor: torch.Tensor) -> int:
    """That of the storage; 0 where there is none."""
    storage = _storage(tensor)
    return 0 if storage is None else storage._cdata


def _storage(tensor: torch.Tensor) -> Any:
    try:
        if type(tensor) is torch.Tensor:
            return tensor.untyped_storage()
        with torch._C.DisableTorchFunctionSubclass():  # a lazy parameter has one too
            return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        functions: Any = torch._C._functorch
        wrapped = functions.is_functorch_wrapped_tensor(tensor)  # in vmap and grad
        return _storage(functions.get_unwrapped(tensor)) if wrapped else None

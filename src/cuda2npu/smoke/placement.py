"""Where the tensors of a run are meant to be. Child side.

On a machine without a GPU the reference runs on the CPU alone. Which tensors the script moved to
CUDA is then known by their storage: each one that stands in for CUDA memory is marked, and so is
what is computed from it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

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


class MarkedPlacement(Placement):
    """By the marks on their storages, in a run whose CUDA calls are led to the CPU."""

    def __init__(self) -> None:
        self._marked: dict[Any, int] = {}
        """The numbers of the devices, by storage."""
        self._limit = PRUNE
        self._own = threading.local()

    def mark(self, tensor: torch.Tensor, index: int = 0) -> None:
        storage = _storage(tensor)
        if storage is None:
            return
        self._marked[storage] = index
        if len(self._marked) > self._limit:
            kept = list(self._marked.items())  # at once: other threads go on marking
            self._marked = {item: place for item, place in kept if not item.expired()}
            self._limit = max(PRUNE, 2 * len(self._marked))

    def index(self, tensor: torch.Tensor) -> int | None:
        """The number of the CUDA device; None for a tensor that is meant for another."""
        storage = _storage(tensor)
        return None if storage is None else self._marked.get(storage)

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
        storages = [_storage(tensor) for tensor in _tensors(inputs)]
        places = (self._marked.get(storage) for storage in storages if storage is not None)
        index = next((place for place in places if place is not None), None)
        if index is None:
            return
        for tensor in results:
            if _storage(tensor) not in storages:
                self.mark(tensor, index)

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


def _storage(tensor: torch.Tensor) -> Any:
    functions: Any = torch._C._functorch
    reference: Any = StorageWeakRef
    try:
        while functions.is_functorch_wrapped_tensor(tensor):  # in vmap and grad
            tensor = functions.get_unwrapped(tensor)
        with torch._C.DisableTorchFunctionSubclass():  # a lazy parameter has one too
            return reference(tensor.untyped_storage())
    except (NotImplementedError, RuntimeError):
        return None

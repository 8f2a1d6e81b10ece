"""Where the tensors of a run are meant to be. Child side.

On a machine without a GPU the reference runs on the CPU alone. Which tensors the script moved to
CUDA is then known by their storage: each one that stands in for CUDA memory is marked.
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
        self._marked: set[Any] = set()
        self._limit = PRUNE
        self._own = threading.local()

    def mark(self, tensor: torch.Tensor) -> None:
        storage = _storage(tensor)
        if storage is None:
            return
        self._marked.add(storage)
        if len(self._marked) > self._limit:
            self._marked = {item for item in self._marked if not item.expired()}
            self._limit = max(PRUNE, 2 * len(self._marked))

    def is_marked(self, tensor: torch.Tensor) -> bool:
        storage = _storage(tensor)
        return storage is not None and storage in self._marked

    def of_tensor(self, tensor: torch.Tensor) -> str | None:
        return "cuda" if self.is_marked(tensor) else tensor.device.type

    def follow_lazy_modules(self) -> None:
        """A parameter of a lazy module comes to be where the module was moved to."""
        parameter: Any = torch.nn.parameter
        lazy = parameter.UninitializedTensorMixin
        materialize = lazy.materialize

        def materialized(tensor: Any, *args: Any, **options: Any) -> None:
            marked = self.is_marked(tensor)
            materialize(tensor, *args, **options)
            if marked:
                self.mark(tensor)

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


def _storage(tensor: torch.Tensor) -> Any:
    try:
        reference: Any = StorageWeakRef
        with torch._C.DisableTorchFunctionSubclass():  # a lazy parameter has one too
            return reference(tensor.untyped_storage())
    except (NotImplementedError, RuntimeError):
        return None

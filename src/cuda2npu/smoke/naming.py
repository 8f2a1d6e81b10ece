"""Names of modules and parameters that are the same in both runs. Child side."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch.nn.modules import module as hooks
from torch.nn.parameter import is_lazy

_WRAPPED = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
"""What torch calls a module in a wrapper that stands for it."""
ROOTS = 32
"""Outermost modules that are kept alive, so that their final state can be recorded."""


class Names:
    """Qualified names of modules, from the outermost module that holds them.

    An outermost module goes by its class, and by a number when others of that class were called
    before it. Who holds whom is heard when a module is made, so that a layer that is called
    without the module around it has its full name too.
    """

    def __init__(self) -> None:
        self._holders: WeakKeyDictionary[Any, tuple[ref[Any], str]] = WeakKeyDictionary()
        self._roots: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        self._kept: list[Any] = []
        self._counts: dict[str, int] = {}
        self._names: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        self.classes: dict[str, type] = {}
        self._handle = hooks.register_module_module_registration_hook(self._registered)

    def close(self) -> None:
        self._handle.remove()

    def _registered(self, holder: Any, name: str, child: Any) -> None:
        if isinstance(child, torch.nn.Module):
            self._holders[child] = (ref(holder), name)

    def roots(self) -> list[tuple[str, Any]]:
        return [(name, module) for module, name in list(self._roots.items())]

    def of(self, module: Any) -> str:
        known = self._names.get(module)
        if known is not None:
            return known
        root = self._root(module)
        if root not in self._roots:
            self._roots[root] = self._root_name(root)
            if len(self._kept) < ROOTS:
                self._kept.append(root)
            for name, child in root.named_modules():
                self._names[child] = qualified(self._roots[root], name)
                self.classes[self._names[child]] = type(child)
        if module not in self._names:  # taken out of its holder meanwhile
            self._names[module] = self._root_name(module)
            self.classes[self._names[module]] = type(module)
        return self._names[module]

    def _root(self, module: Any) -> Any:
        seen = {id(module)}
        while module in self._holders:
            reference, name = self._holders[module]
            holder = reference()
            if holder is None or id(holder) in seen or holder._modules.get(name) is not module:
                break
            seen.add(id(holder))
            module = holder
        return module

    def _root_name(self, module: Any) -> str:
        name = type(module).__name__
        self._counts[name] = self._counts.get(name, 0) + 1
        return name if self._counts[name] == 1 else f"{name}#{self._counts[name]}"

    def parameters(self) -> dict[int, str]:
        """Names of the parameters of all modules that were called, by identity."""
        named: dict[int, str] = {}
        for root, module in self.roots():
            for name, parameter in module.named_parameters():
                named.setdefault(id(parameter), qualified(root, name))
        return named

    def places(self) -> dict[str, dict[str, str]]:
        """The class of each named module and the file that holds it."""
        return {name: _place(kind) for name, kind in self.classes.items()}


def qualified(root: str, name: str) -> str:
    parts = [part for part in name.split(".") if part and part not in _WRAPPED]
    return ".".join([root, *parts])


def kept_state(module: Any) -> Iterator[tuple[str, Any]]:
    """What ``state_dict`` holds, each shard as it lies here: its hooks would talk to other ranks,
    which may be at their end already."""
    for prefix, part in module.named_modules():
        passing = part._non_persistent_buffers_set
        buffers = ((name, each) for name, each in part._buffers.items() if name not in passing)
        for name, tensor in (*part._parameters.items(), *buffers):
            if tensor is not None and not is_lazy(tensor):
                yield f"{prefix}.{name}", tensor


def _place(kind: type) -> dict[str, str]:
    try:
        file = inspect.getfile(kind)
    except (TypeError, OSError):
        file = ""
    return {"class": kind.__qualname__, "file": file}

"""Hears of calls of outermost modules, at no cost to the modules inside them. Child side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakSet

import torch
from torch.nn.modules import module as hooks

from cuda2npu.benchmark.meter import Call
from cuda2npu.running.tensors import flatten


class Outermost:
    """Hooks on each module that is called from outside of any other.

    A hook on all modules finds them, until ``settle``; from then on only those found are heard.
    Parts of torch without parameters, such as a loss, are none of them.
    """

    def __init__(
        self,
        before: Callable[[Call, int], None] = lambda *_: None,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        self._before, self._after = before, after
        self._depth = 0
        self._known: WeakSet[Any] = WeakSet()
        self._finding: Any = None
        self.dtypes: set[str] = set()
        """Of the parameters of the modules that were found."""

    def __deepcopy__(self, _: object) -> Outermost:
        return self

    def __reduce__(self) -> tuple[type[Outermost], tuple[()]]:
        """With a model that is saved whole, or sent to a process, goes one that tells nobody."""
        return Outermost, ()

    def install(self) -> None:
        self.look()
        self._see_compiled()

    def look(self) -> None:
        """Find modules from here on."""
        if self._finding is None:
            self._finding = hooks.register_module_forward_pre_hook(self._found)

    def settle(self) -> None:
        if self._finding is not None:
            self._finding.remove()
            self._finding = None

    def close(self) -> None:
        """Tell no more."""
        self.settle()
        self._before, self._after = lambda *_: None, lambda: None

    def _found(self, module: Any, inputs: Any) -> None:
        if torch.compiler.is_compiling() or self._depth or module in self._known:
            return
        if not _is_network(module):
            return
        self._known.add(module)
        self._note(module)
        module.register_forward_pre_hook(self._enter, with_kwargs=True)
        module.register_forward_hook(self._leave, always_call=True)
        self._enter(module, inputs, {})  # this call has its list of hooks already

    def _see_compiled(self) -> None:
        """``module.compile()`` puts the compiled call before all hooks."""
        modules: Any = torch.nn.Module
        compile = getattr(modules, "compile", None)
        if compile is None:  # torch 2.1
            return

        def seen_compile(module: Any, *arguments: Any, **options: Any) -> None:
            compile(module, *arguments, **options)
            self._note(module)
            run = module._compiled_call_impl

            def called(*inputs: Any, **options: Any) -> Any:
                self._enter(module, inputs, options)
                try:
                    return run(*inputs, **options)
                finally:
                    self._leave()

            module._compiled_call_impl = called

        modules.compile = seen_compile

    def _note(self, module: Any) -> None:
        self.dtypes |= {_name(parameter.dtype) for parameter in module.parameters()}

    def _enter(self, module: Any, inputs: Any, options: Any) -> None:
        if torch.compiler.is_compiling():
            return
        self._depth += 1
        if self._depth == 1:
            tensors = (tensor for _, tensor in flatten((inputs, options)))
            call = tuple((tuple(t.shape), _name(t.dtype)) for t in tensors)
            self._before(call, id(module))

    def _leave(self, *_: object) -> None:
        if torch.compiler.is_compiling() or not self._depth:
            return
        self._depth -= 1
        if not self._depth:
            self._after()


_PARTS = ("torch.nn.modules.", "torchvision.transforms.")


def _is_network(module: Any) -> bool:
    """Not a loss, an activation or a transform of images that a script calls by itself."""
    return not type(module).__module__.startswith(_PARTS) or any(True for _ in module.parameters())


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")

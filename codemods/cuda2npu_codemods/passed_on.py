"""What a function hands a parameter or variable of its own on to, whatever it is called.

``def get(name="cuda"): return torch.device(name)`` shows as much as a parameter called device.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from cuda2npu.rule import BACKEND, DEVICE, SINKS
from cuda2npu_codemods.words import names_backend, names_device

Meaning = Callable[[str], str | None]
"""Gives the dotted name that an import bound an identifier to."""
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

UNKNOWN = "unknown"
_ASKS = frozenset("isinstance print str repr len type format".split())
"""Callees that do nothing to what a value means."""
_OF_ANYTHING = frozenset("to to_empty".split())
"""Methods of tensors and modules: whatever has them takes a device first, or a dtype."""


def kinds_of(function: ast.AST, name: str, meaning: Meaning) -> set[str]:
    """What the calls in a function take the variable for: ``DEVICE``, ``BACKEND``, ``UNKNOWN``."""
    kinds = {
        _kind(call, slot, meaning)
        for call in ast.walk(function)
        if isinstance(call, ast.Call)
        for slot, argument in _slots(call)
        if isinstance(argument, ast.Name) and argument.id == name
    }
    return kinds - {""}


def with_parameter(tree: ast.AST, name: str) -> Iterator[Function]:
    """The functions below a node that have a parameter of this name."""
    for node in ast.walk(tree):
        if isinstance(node, Function):
            taken = node.args
            if any(a.arg == name for a in (*taken.posonlyargs, *taken.args, *taken.kwonlyargs)):
                yield node


def _slots(call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    yield from ((str(position), argument) for position, argument in enumerate(call.args))
    yield from ((f"{keyword.arg}=", keyword.value) for keyword in call.keywords)


def _kind(call: ast.Call, slot: str, meaning: Meaning) -> str:
    """What takes the argument of a slot; empty for who only asks."""
    *head, callee = ast.unparse(call.func).split(".")
    whole = ".".join((meaning(head[0]) or head[0], *head[1:])) if head else meaning(callee) or ""
    of_torch = whole.startswith("torch")
    if not head and callee in _ASKS:
        return ""
    if slot.endswith("=") and of_torch:
        if names_device(slot[:-1]):
            return DEVICE
        return BACKEND if names_backend(slot[:-1]) else UNKNOWN
    known = of_torch or callee in _OF_ANYTHING
    return SINKS.get(f"{callee}/{slot}", UNKNOWN) if known else UNKNOWN

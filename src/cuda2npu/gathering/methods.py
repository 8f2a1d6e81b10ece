"""The methods of a class that torch's tensors and modules have, too."""

from __future__ import annotations

import ast
from typing import NamedTuple

from cuda2npu.gathering.glance import WATCHED
from cuda2npu.scopes import Function, attribute_chain


class OwnMethods(NamedTuple):
    """A class, as far as its methods matter to others."""

    name: str
    methods: frozenset[str]
    own: frozenset[str]
    """Watched methods that do something of their own and have no twin for the NPU."""


def own_methods(node: ast.ClassDef) -> OwnMethods:
    """What a class defines, and which of it does something of its own."""
    methods = {
        member.name: member
        for member in node.body
        if isinstance(member, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    assigned = {
        target.id
        for member in node.body
        if isinstance(member, ast.Assign)
        for target in member.targets
        if isinstance(target, ast.Name)
    }
    own = {
        name
        for name, twin in WATCHED.items()
        if name in methods
        and twin not in {*methods, *assigned}
        and not _passes_on(methods[name])
        and _is_property(methods[name]) == (name == "is_cuda")
    }
    return OwnMethods(
        node.name,
        frozenset(methods) | assigned,
        frozenset(own),
    )


def _is_property(function: Function) -> bool:
    """Whether it is read and not called: ``cuda`` is a flag then, and only so is ``is_cuda``
    what a tensor has.
    """
    names = {(attribute_chain(d) or ("",))[-1] for d in function.decorator_list}
    return bool(names & {"property", "cached_property"})


def _passes_on(function: Function) -> bool:
    """Whether a method only checks something and then calls the one that it overrides.

    Then torch_npu's method may be called in its place, at the price of the check.
    """
    *before, last = function.body
    if not isinstance(last, ast.Return) or not _calls_super(last.value, function.name):
        return False
    return not any(
        isinstance(inner, _ACTS)
        and not (isinstance(inner, ast.Return) and _calls_super(inner.value, function.name))
        and not (isinstance(inner, ast.Expr) and _is_said(inner.value))
        for statement in before
        for inner in ast.walk(statement)
    )


_ACTS = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.For, ast.While, ast.Expr)


def _is_said(node: ast.expr) -> bool:
    """A docstring, or a call of a logger or of ``warnings``."""
    callee = node.func if isinstance(node, ast.Call) else None
    return isinstance(node, ast.Constant) or getattr(callee, "attr", "") in (
        "warn", "warning", "warning_once", "info", "debug", "error",
    )  # fmt: skip


def _calls_super(node: ast.expr | None, method: str) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    owner = node.func.value
    return (
        node.func.attr == method
        and isinstance(owner, ast.Call)
        and isinstance(owner.func, ast.Name)
        and owner.func.id == "super"
    )

"""Devices in order of preference: a list of their names that is given a name and looped over."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import libcst as cst

from cuda2npu.rule import DEVICE as DEVICE_KIND
from cuda2npu.rule import FOREIGN_PACKAGES, SINKS, Site
from cuda2npu_codemods.expressions import last_name, string, strings, with_value
from cuda2npu_codemods.words import DEVICE, HOST_DEVICES, OTHER_ACCELERATORS

_NAMES = HOST_DEVICES | OTHER_ACCELERATORS | {"npu"}
_COPIES = ("list", "tuple", "sorted", "reversed", "iter")
_SPEAKERS = frozenset("print debug info warning error exception log format str repr".split())
_Function = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def are_devices(node: cst.CSTNode) -> bool:
    """Whether a list, tuple or set holds names of devices and nothing else."""
    if not isinstance(node, (cst.List, cst.Tuple, cst.Set)) or not node.elements:
        return False
    values = [string(element.value) or "" for element in node.elements]
    return all(value in _NAMES or DEVICE.fullmatch(value) for value in values)


def are_tried(site: Site, node: cst.CSTNode, name: str | None) -> bool:
    """Whether loops over the list that a name holds hand its entries to torch, and to nobody else.

    ``for name in PREFERRED: x.to(name)``; the name must be bound to nothing else.
    """
    found = takers(site, loops(site, node, name))
    return bool(found) and all(map(_is_torch, found))


class _Loop(NamedTuple):
    variable: str
    body: Sequence[ast.AST]


def loops(site: Site, node: cst.CSTNode, name: str | None) -> list[_Loop]:
    """The loops over a name that is bound to this list of devices and to nothing else."""
    if name is None or not are_devices(node) or "cuda" not in strings(node):
        return []
    scope = _scope(site)
    bound = [n for n in _visible(scope, name) if _binds(n, name)]
    if len(bound) > 1 or (isinstance(scope, ast.ClassDef) and _is_stored(site.file.tree, name)):
        return []
    tree = site.file.tree if isinstance(scope, ast.ClassDef) else scope
    return [*_read(tree, name)]


def _scope(site: Site) -> ast.AST:
    """Where the name lives: a default's is that of its own function."""
    if isinstance(site.statement, _Function):
        return site.statement
    return next(iter(site.enclosing), site.file.tree)


def _visible(scope: ast.AST, name: str) -> Iterator[ast.AST]:
    """The nodes of a scope, but for those of functions in it that bind the name themselves."""
    for child in ast.iter_child_nodes(scope):
        inner = isinstance(child, _Function) and any(_binds(n, name) for n in ast.walk(child))
        is_global = any(isinstance(n, ast.Global) and name in n.names for n in ast.walk(child))
        yield child
        if not inner or is_global:
            yield from _visible(child, name)


def _binds(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.arg):
        return node.arg == name
    stored = isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    return stored and getattr(node, "id", "") == name


def _is_stored(tree: ast.AST, name: str) -> bool:
    return any(
        isinstance(n, ast.Attribute) and n.attr == name and not isinstance(n.ctx, ast.Load)
        for n in ast.walk(tree)
    )


def _read(scope: ast.AST, name: str) -> Iterator[_Loop]:
    """``for x in NAME``, as a statement or in a comprehension."""
    for node in _visible(scope, name):
        if isinstance(node, (ast.For, ast.AsyncFor)):
            heads: list[tuple[ast.expr, ast.expr]] = [(node.target, node.iter)]
        else:
            heads = [(part.target, part.iter) for part in getattr(node, "generators", ())]
        for target, source in heads:
            if isinstance(source, ast.Call) and last_name(source.func) in _COPIES and source.args:
                source = source.args[0]
            if last_name(source) == name and isinstance(target, ast.Name):
                yield _Loop(target.id, getattr(node, "body", [node]))


class _Taker(NamedTuple):
    head: str
    """The package that the callee comes from; empty for what is no import's."""
    place: str
    """The callee, and the position or keyword: ``to/0``; ``[]`` for a key."""


def takers(site: Site, over: list[_Loop]) -> list[_Taker]:
    """What takes the loop variables, besides texts for people and comparisons."""
    return [
        taker
        for loop in over
        for part in loop.body
        for node in ast.walk(part)
        for taker in _taken(site, node, loop.variable)
    ]


def _taken(site: Site, node: ast.AST, variable: str) -> Iterator[_Taker]:
    if isinstance(node, ast.Subscript) and getattr(node.slice, "id", None) == variable:
        yield _Taker("", "[]")
    if not isinstance(node, ast.Call):
        return
    root = node.func
    while isinstance(root, ast.Attribute):
        root = root.value
    head = (site.meaning(root.id) or "").partition(".")[0] if isinstance(root, ast.Name) else ""
    callee = last_name(node.func) or ""
    given = [(str(index), value) for index, value in enumerate(node.args)]
    given += [(f"{keyword.arg}=", keyword.value) for keyword in node.keywords]
    for slot, value in given:
        if getattr(value, "id", None) == variable and callee not in _SPEAKERS:
            first = last_name(node.args[0]) if callee in ("getattr", "hasattr") else ""
            yield _Taker(first or head, f"{callee}/{slot}")


def _is_torch(taker: _Taker) -> bool:
    """``torch.device(x)``, ``y.to(x)``, ``f(device=x)``, ``getattr(torch, x)``."""
    if taker.place in ("getattr/1", "hasattr/1"):
        return taker.head == "torch"
    takes = SINKS.get(taker.place) == DEVICE_KIND or taker.place.endswith("/device=")
    return takes and taker.head not in FOREIGN_PACKAGES


def with_npu(
    element: cst.Element, literal: cst.SimpleString, others: set[str]
) -> dict[cst.CSTNode, cst.CSTNode | tuple[cst.CSTNode, ...]]:
    """The edits that name the NPU in a list: in CUDA's place, or beside it among other vendors'."""
    renamed = with_value(literal, "cuda", "npu")
    if others & OTHER_ACCELERATORS:
        return {element: (element, element.with_changes(value=renamed))}
    return {literal: renamed}

"""What a variable of the file turns out to hold, by the places that compare or annotate with it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cuda2npu_codemods.arguments import Use, by_name
from cuda2npu_codemods.expressions import denotes, last_name
from cuda2npu_codemods.words import names_backend, names_device


def compared_use(tree: ast.Module, name: str) -> Use | None:
    """``device in NAME``, ``x.device.type == NAME``, ``choices=NAME`` of a flag for devices."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and len(node.comparators) == 1:
            sides = [node.left, node.comparators[0]]
            if any(last_name(side) == name for side in sides):
                others = [side for side in sides if last_name(side) != name]
                if any(denotes(side, names_device) for side in others):
                    return Use.DEVICE
                if any(denotes(side, names_backend) for side in others):
                    return Use.BACKEND
        elif isinstance(node, ast.Call) and _chooses_from(node, name):
            flags = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            uses = [by_name(flag) for flag in flags if isinstance(flag, str)]
            if any(uses):
                return next(filter(None, uses))
    return None


def _chooses_from(call: ast.Call, name: str) -> bool:
    """``add_argument("--device", choices=NAME)``, ``option("--device", type=Choice(NAME))``."""
    return any(
        last_name(part) == name
        for keyword in call.keywords
        if keyword.arg in ("choices", "type")
        for part in ast.walk(keyword.value)
    )


def annotated_use(tree: ast.Module, alias: str) -> Use | None:
    """``def f(device: Alias)``: the alias lists devices."""
    for name, annotation in _annotations(tree):
        if any(last_name(part) == alias for part in ast.walk(annotation)):
            use = by_name(name)
            if use is not None:
                return use
    return None


def _annotations(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Parameters, fields and variables with their annotations."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.annotation is not None:
            yield node.arg, node.annotation
        elif isinstance(node, ast.AnnAssign):
            yield last_name(node.target) or "", node.annotation

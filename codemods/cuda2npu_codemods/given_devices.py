"""Arguments of ``cuda()`` that are devices and no numbers of devices.

torch_npu's ``Module.npu`` takes a number alone and raises TypeError for a string or a
``torch.device`` (its wheel, utils/_module.py); ``to`` takes them for modules and tensors alike.
"""

from __future__ import annotations

import ast

import libcst as cst

from cuda2npu.rule import Site
from cuda2npu_codemods.expressions import meaning_of

_KEYWORDS = frozenset(["device", "non_blocking", "memory_format"])


def is_given_device(site: Site, call: cst.Call) -> bool:
    """Whether ``x.cuda(device)`` may be written ``x.to(device)``, and has to be for a module."""
    keywords = {arg.keyword.value for arg in call.args if arg.keyword is not None}
    positional = sum(arg.keyword is None for arg in call.args)
    if any(arg.star for arg in call.args) or positional > 1 or not keywords <= _KEYWORDS:
        return False
    device = site.argument(call, "device", 0)
    if device is None or site.file.defines_method("to"):
        return False
    return _is_device(site, ast.parse(site.code(device.value), mode="eval").body)


def _is_device(site: Site, node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        values = site.bindings(node.id)
        return bool(values) and all(v is not None and _makes_device(site, v) for v in values)
    if isinstance(node, ast.Attribute):
        return _all_make_device(site, ast.unparse(node))
    return _makes_device(site, node)


def _all_make_device(site: Site, target: str) -> bool:
    """``self.device``, where all that the file assigns to it are devices."""
    values = [
        node.value
        for node in ast.walk(site.file.tree)
        if isinstance(node, ast.Assign) and target in map(ast.unparse, node.targets)
    ]
    return bool(values) and all(_makes_device(site, value) for value in values)


def _makes_device(site: Site, node: ast.expr) -> bool:
    """A string, ``torch.device(…)``, or a choice between such."""
    if isinstance(node, ast.IfExp):
        return _makes_device(site, node.body) and _makes_device(site, node.orelse)
    if isinstance(node, ast.Call):
        return meaning_of(node.func, site) == "torch.device"
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )

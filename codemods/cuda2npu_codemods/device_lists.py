"""Lists and tables of built device names: what is looked up in them moves together with them."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

import libcst as cst

from cuda2npu.rule import Site
from cuda2npu_codemods.expressions import last_name, terminal
from cuda2npu_codemods.words import DEVICE, DEVICE_TEMPLATE

_NAME = re.compile(r"""['"]cuda:""")
_COPIES = ("list", "tuple", "set", "frozenset")


def holds_devices(site: Site, node: cst.CSTNode) -> bool:
    """Whether an expression is a collection of names like ``f"cuda:{i}"``, or one of them."""
    if not _NAME.search(site.file.text):
        return False
    if isinstance(node, cst.Name):
        return any(map(_builds, _values(site, node))) or _runs_over(site, node)
    if isinstance(node, cst.Attribute):
        return any(map(_builds, _stored(site.file.tree, node.attr.value)))
    return isinstance(node, cst.BaseExpression) and _builds(_parsed(site, node))


def _values(site: Site, node: cst.Name) -> tuple[ast.expr | None, ...]:
    return () if _loop(site, node) is not None else site.bindings(node.value)


def _runs_over(site: Site, node: cst.Name) -> bool:
    """``for d in devices``, as a statement or in the comprehension around the name."""
    loop = _loop(site, node)
    if loop is not None:
        return holds_devices(site, loop.iter)
    bindings = site.bindings(node.value)
    if not bindings or any(bindings):
        return False
    scope = next(iter(site.enclosing), site.file.tree)
    return any(
        isinstance(part, ast.For)
        and last_name(part.target) == node.value
        and any(map(_builds, _read(site, part.iter)))
        for part in ast.walk(scope)
    )


def _read(site: Site, node: ast.expr) -> tuple[ast.expr | None, ...]:
    return site.bindings(node.id) if isinstance(node, ast.Name) else (node,)


def _loop(site: Site, node: cst.Name) -> cst.CompFor | None:
    for ancestor in site.ancestors(node):
        loop = ancestor.for_in if isinstance(ancestor, cst.BaseComp) else None
        while loop is not None:
            if terminal(loop.target) == node.value:
                return loop
            loop = loop.inner_for_in
    return None


def _stored(tree: ast.Module, attribute: str) -> list[ast.expr]:
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and any(isinstance(t, ast.Attribute) and t.attr == attribute for t in node.targets)
    ]


def _parsed(site: Site, node: cst.BaseExpression) -> ast.expr | None:
    try:
        return ast.parse(f"({site.code(node)})", mode="eval").body
    except SyntaxError:
        return None


def _builds(node: ast.expr | None) -> bool:
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
        return _is_device_name(node.elt)
    if isinstance(node, ast.DictComp):
        return _is_device_name(node.key)
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return any(map(_is_device_name, node.elts))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _builds(node.left) or _builds(node.right)
    if isinstance(node, ast.Call) and last_name(node.func) in _COPIES:
        return any(map(_builds, node.args))
    return False


def _is_device_name(node: ast.expr) -> bool:
    """What is edited wherever it stands: ``"cuda:0"``, ``f"cuda:{i}"``, ``"cuda:" + str(i)``."""
    if isinstance(node, ast.JoinedStr):
        head = node.values[0] if len(node.values) == 2 else None
        return isinstance(head, ast.Constant) and head.value == "cuda:"
    if isinstance(node, ast.BinOp):
        return _is_text(node.left, DEVICE_TEMPLATE.fullmatch)
    if isinstance(node, ast.Call):
        if not isinstance(node.func, ast.Attribute) or node.func.attr != "format":
            return False
        return _is_text(node.func.value, DEVICE_TEMPLATE.fullmatch)
    return _is_text(node, DEVICE.fullmatch)


def _is_text(node: ast.AST, test: Callable[[str], object]) -> bool:
    value = node.value if isinstance(node, ast.Constant) else None
    return isinstance(value, str) and ":" in value and bool(test(value))

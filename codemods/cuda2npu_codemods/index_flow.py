"""Whether a later statement of a function makes an integer of a variable's value."""

from __future__ import annotations

import ast

INTEGERS = ("torch.long", "torch.int64", "torch.int", "torch.int32")
CHOICES = frozenset("argmax argmin argsort sort topk multinomial".split())
"""What gives an index by itself, whatever the precision."""
_ABOUT = frozenset("shape dtype device ndim size dim numel".split())
"""Attributes that tell of a tensor and not what is in it."""


def flows_into_index(function: ast.AST, names: set[str], line: int) -> bool:
    """Whether ``.long()`` or the like is called below a line on what is computed with a variable.

    Arithmetic, functions of torch and methods carry a value on; comparisons and the choice of
    a largest element do not, and what another function does with it is not known.
    """
    carriers = set(names)
    nodes = [
        node
        for node in ast.walk(function)
        if isinstance(node, (ast.Assign, ast.Call)) and node.lineno > line
    ]
    for node in sorted(nodes, key=lambda node: (node.lineno, -node.col_offset)):
        if isinstance(node, ast.Assign):
            targets = {part.id for part in node.targets if isinstance(part, ast.Name)}
            if _carries(node.value, carriers):
                carriers |= targets
        elif _is_integer_cast(node) and _carries(node.func, carriers):
            return True
    return False


def _is_integer_cast(call: ast.Call) -> bool:
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if method in ("long", "int"):
        return not call.args
    dtypes = [ast.unparse(argument) for argument in call.args]
    return method in ("to", "type") and any(dtype in INTEGERS for dtype in dtypes)


def _carries(node: ast.AST, names: set[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in names
    if isinstance(node, ast.Attribute):
        return node.attr not in _ABOUT and _carries(node.value, names)
    if isinstance(node, ast.Subscript):
        return _carries(node.value, names)
    if isinstance(node, ast.Call):
        return _call_carries(node, names)
    parts: tuple[ast.AST, ...] = ()
    if isinstance(node, ast.BinOp):
        parts = (node.left, node.right)
    elif isinstance(node, ast.UnaryOp):
        parts = (node.operand,)
    elif isinstance(node, ast.IfExp):
        parts = (node.body, node.orelse)
    return any(_carries(part, names) for part in parts)


def _call_carries(call: ast.Call, names: set[str]) -> bool:
    function = call.func
    if not isinstance(function, ast.Attribute) or function.attr in CHOICES | _ABOUT:
        return False
    if _carries(function.value, names):
        return True
    given = (*call.args, *(keyword.value for keyword in call.keywords))
    of_torch = ast.unparse(function).startswith("torch.")
    casts = function.attr in ("to", "type", "new_tensor", "clamp", "minimum", "maximum")
    return (of_torch or casts) and any(_carries(part, names) for part in given)

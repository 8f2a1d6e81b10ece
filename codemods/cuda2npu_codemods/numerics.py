"""What the rules that change results share: where a tensor lives, and what their messages say.

Double precision and bilinear sampling on the CPU are as good beside an NPU as beside a GPU, so
an expression that provably stays on the CPU is left alone.
"""

from __future__ import annotations

import ast

import libcst as cst

from cuda2npu.rule import Site
from cuda2npu_codemods.expressions import FOREIGN_HEADS, is_foreign_call, string

KEEP = "; --preserve-numerics keeps the original"
BILINEAR = (
    "bilinear becomes nearest, without align_corners and antialias: resized values change. "
    "torch_npu documents bilinear as supported on Atlas A2/A3 since 2.7.1" + KEEP
)
FLOAT64 = (
    "float64 becomes float32, 7 digits instead of 16. torch_npu turns .double() into float32 by "
    "itself, and NPU operators in float64 are slow or missing" + KEEP
)

_ARRAY_HEADS = FOREIGN_HEADS | frozenset(
    "numpy np pandas pd polars pl scipy xarray sklearn".split()
)
_MOVES = frozenset("cuda npu xpu to_device".split())
_DEPTH = 4
"""How many variables are followed to the expression they are bound to."""


def is_array_call(site: Site, call: cst.Call) -> bool:
    """Whether a call goes to NumPy, pandas or another package whose dtypes are its own."""
    if is_foreign_call(site, call):
        return True
    name = site.name(call.func)
    return name is not None and name.partition(".")[0] in _ARRAY_HEADS


def stays_on_cpu(site: Site, call: cst.Call) -> bool:
    """Whether the tensor that a call makes is provably one of the CPU.

    The call says so itself, works on such a tensor, stands in a branch for the CPU, or hands
    its result to NumPy, which takes nothing else.
    """
    return on_cpu(site, call) or _feeds_numpy(site, call) or in_cpu_branch(site)


def in_cpu_branch(site: Site) -> bool:
    """``if x.device.type == "cpu" and …:`` around the statement."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    scope = next((node for node in site.enclosing if isinstance(node, functions)), site.file.tree)
    return any(
        isinstance(node, ast.If)
        and _asks_for_cpu(node.test)
        and any(inner is site.statement for part in node.body for inner in ast.walk(part))
        for node in ast.walk(scope)
    )


def _asks_for_cpu(test: ast.expr) -> bool:
    if isinstance(test, ast.BoolOp):
        return isinstance(test.op, ast.And) and any(map(_asks_for_cpu, test.values))
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.ops[0], ast.Eq)
        and ast.unparse(test.comparators[0]) in ("'cpu'", "torch.device('cpu')")
    )


def on_cpu(site: Site, node: cst.BaseExpression, depth: int = _DEPTH) -> bool:
    """Whether an expression is provably a tensor of the CPU."""
    while True:
        if isinstance(node, cst.Call):
            place = _placed(site, node)
            if place is not None or not isinstance(node.func, cst.Attribute):
                return bool(place)
            node = node.func.value
        elif isinstance(node, (cst.Subscript, cst.Attribute)):
            node = node.value
        elif isinstance(node, cst.UnaryOperation):
            node = node.expression
        else:
            return isinstance(node, cst.Name) and _name_on_cpu(site, node, depth)


def _placed(site: Site, call: cst.Call) -> bool | None:
    """Whether a call puts its result on the CPU; None when it leaves it where it was."""
    device = site.argument(call, "device")
    if device is not None:
        return is_cpu(site, device.value)
    method = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
    if method == "cpu":
        return True
    if method in _MOVES:
        return False
    if method == "to" and call.args and not _is_dtype(site, call.args[0].value):
        return is_cpu(site, call.args[0].value)
    return None


def _is_dtype(site: Site, node: cst.BaseExpression) -> bool:
    return (site.name(node) or "").startswith("torch.") or "dtype" in site.code(node)


def is_cpu(site: Site, node: cst.BaseExpression, depth: int = _DEPTH) -> bool:
    """Whether an expression is ``"cpu"`` or ``torch.device("cpu")``."""
    if isinstance(node, cst.Call) and site.name(node.func) == "torch.device" and node.args:
        node = node.args[0].value
    if isinstance(node, cst.Name) and depth:
        bound = _bound(site, node)
        return bound is not None and is_cpu(site, bound, depth - 1)
    return (string(node) or "").partition(":")[0] == "cpu"


def _name_on_cpu(site: Site, node: cst.Name, depth: int) -> bool:
    bound = _bound(site, node) if depth else None
    return bound is not None and on_cpu(site, bound, depth - 1)


def _bound(site: Site, node: cst.Name) -> cst.BaseExpression | None:
    value = site.binding(node.value)
    return None if value is None else cst.parse_expression(ast.unparse(value))


def _feeds_numpy(site: Site, node: cst.CSTNode) -> bool:
    """``x.double().mean().numpy()`` and ``np.asarray(x.double())``."""
    while True:
        parent = site.parent(node)
        if isinstance(parent, cst.Attribute) and parent.value is node:
            if parent.attr.value == "numpy":
                return True
            if parent.attr.value in _MOVES | {"cpu", "to"}:
                return False
        elif isinstance(parent, cst.Arg):
            call = site.parent(parent)
            return isinstance(call, cst.Call) and is_array_call(site, call)
        elif not isinstance(parent, (cst.Call, cst.Subscript, cst.UnaryOperation)):
            return False
        node = parent

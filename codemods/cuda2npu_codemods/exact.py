"""Double precision that stays: on the host, on its way there, or where an index comes of it."""

from __future__ import annotations

import ast
import re

import libcst as cst

from cuda2npu.rule import Fix, FixLevel, Report, Site, leave, report, rewrite, rule
from cuda2npu_codemods.expressions import last_name, outward, terminal
from cuda2npu_codemods.index_flow import CHOICES, INTEGERS, flows_into_index
from cuda2npu_codemods.numerics import is_array_call, stays_on_cpu

_FLOAT64 = ("torch.float64", "torch.double")
_WIDE = (*_FLOAT64, "torch.complex128", "torch.cdouble")
_BETWEEN = ("detach", "contiguous", "clone")
_SAMPLER = "WeightedRandomSampler"


def keeps_double(site: Site, call: cst.Call) -> bool:
    """Whether a tensor of double precision is none of the NPU, or must not lose digits there."""
    if stays_on_cpu(site, call) or _feeds_sampler(site, call) or _is_time(site, call):
        return True
    return gives_index(site, call) or _swapped(site, call) is not None or _is_copied(site, call)


def _is_copied(site: Site, call: cst.Call) -> bool:
    """``wide.copy_(torch.arange(n, dtype=torch.float64).reshape(2, -1))``, made on the host.

    What becomes of the digits is the other tensor's to say.
    """
    is_made = (site.name(call.func) or "").startswith("torch.")
    if not is_made or site.argument(call, "device") is not None:
        return False
    parent = site.parent(call)
    while isinstance(parent, cst.Attribute) and parent.attr.value not in ("to", "cuda", "npu"):
        method = site.parent(parent)
        parent = site.parent(method) if method is not None else None
    return isinstance(parent, cst.Arg) and terminal(site.parent(parent)) == "copy_"


def _is_time(site: Site, call: cst.Call) -> bool:
    """``torch.tensor(time.time(), dtype=torch.float64)``: seconds since 1970."""
    return any(
        isinstance(arg.value, cst.Call) and site.name(arg.value.func) == "time.time"
        for arg in call.args
    )


def gives_index(site: Site, node: cst.CSTNode) -> bool:
    """``torch.sqrt(8 * idx.double() + 1).long()``: the expression is made an integer again."""
    while True:
        parent = site.parent(node)
        if isinstance(parent, cst.Arg):
            call = site.parent(parent)
            name = site.name(call.func) if isinstance(call, cst.Call) else None
            if call is None or not (name or "").startswith("torch."):
                return False
            if terminal(getattr(call, "func", None)) in CHOICES:
                return False
            node = call
        elif isinstance(parent, cst.Attribute):
            method = site.parent(parent)
            if not isinstance(method, cst.Call) or method.func is not parent:
                return False
            if _is_integer_cast(method, parent.attr.value, site):
                return True
            if parent.attr.value in CHOICES:
                return False
            node = method
        elif isinstance(parent, (cst.BinaryOperation, cst.UnaryOperation)):
            node = parent
        else:
            return makes_index_later(site, parent)


def follows_dtype(node: cst.BaseExpression, site: Site) -> bool:
    """``float32 if is_npu else float64``, or a choice that follows a given dtype."""
    child: cst.CSTNode = node
    for outer in site.ancestors(node):
        if isinstance(outer, cst.IfExp) and child is not outer.test:
            test = site.code(outer.test)
            if re.search(r"float64|double|complex", test):
                return True
            is_negated = re.search(r"^not |!=| not in ", test) is not None
            if "npu" in test and (child is outer.body) == is_negated:
                return True
        child = outer
    return False


def makes_index_later(site: Site, assignment: cst.CSTNode | None) -> bool:
    """Whether a statement that follows makes an integer of the variable that is assigned to."""
    if not isinstance(assignment, (cst.Assign, cst.AnnAssign)):
        return False
    targets = assignment.targets if isinstance(assignment, cst.Assign) else (assignment,)
    names = {target.target.value for target in targets if isinstance(target.target, cst.Name)}
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    function = next((scope for scope in site.enclosing if isinstance(scope, functions)), None)
    if not names or function is None:
        return False
    return flows_into_index(function, names, getattr(site.statement, "end_lineno", 0))


def _is_integer_cast(call: cst.Call, method: str, site: Site) -> bool:
    if method in ("long", "int"):
        return not call.args
    named = [site.name(arg.value) for arg in call.args]
    return method in ("to", "type") and any(name in INTEGERS for name in named)


def _feeds_sampler(site: Site, node: cst.CSTNode) -> bool:
    """Weights of a sampler, which draws on the host."""
    parent = site.parent(node)
    while isinstance(parent, (cst.Attribute, cst.Call)):
        parent = site.parent(parent)
    if isinstance(parent, cst.Arg):
        return terminal(site.parent(parent)) == _SAMPLER
    if not isinstance(parent, cst.Assign):
        return False
    flows = site.file.flows(terminal(parent.targets[0].target) or "")
    if any(place.endswith("/weight=") for place in flows):
        return False
    if flows & {f"{_SAMPLER}/0", f"{_SAMPLER}/weights="}:
        return True
    return "multinomial/0" in flows and any(_is_sampler(scope) for scope in site.enclosing)


def _is_sampler(scope: ast.AST) -> bool:
    if not isinstance(scope, ast.ClassDef):
        return False
    return any((last_name(base) or "").endswith("Sampler") for base in scope.bases)


def only_on_cpu(function: ast.AST, parameter: str) -> bool:
    """Whether all that a function does with a dtype is to make tensors of the CPU."""
    uses = [
        node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id == parameter
    ]
    kept = [
        keyword.value
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and any(map(_says_cpu, call.keywords))
        for keyword in call.keywords
        if keyword.arg == "dtype"
    ]
    return bool(uses) and all(use in kept for use in uses)


def only_asks(function: ast.FunctionDef | ast.AsyncFunctionDef, parameter: str) -> bool:
    """Whether all that a function does with a dtype is to compare it: a setting by dtype."""
    nodes = [*ast.walk(function)]
    uses = {node for node in nodes if isinstance(node, ast.Name) and node.id == parameter}
    read = {node for node in uses if not isinstance(node.ctx, ast.Store)}
    return bool(read) and read <= {part for node in nodes for part in _asked(node, function.name)}


def _asked(node: ast.AST, own: str) -> tuple[ast.AST, ...]:
    """What a comparison, a question about a type, ``x.dtype`` or ``super().own(x)`` looks at."""
    if isinstance(node, ast.Compare):
        return (node.left, *node.comparators)
    if isinstance(node, ast.Call) and last_name(node.func) in ("is_tensor", "isinstance", own):
        return (*node.args, *(keyword.value for keyword in node.keywords))
    return (node.value,) if isinstance(node, ast.Attribute) and node.attr == "dtype" else ()


def _says_cpu(keyword: ast.keyword) -> bool:
    value = keyword.value
    if isinstance(value, ast.Call) and last_name(value.func) == "device" and value.args:
        value = value.args[0]
    return keyword.arg == "device" and isinstance(value, ast.Constant) and value.value == "cpu"


def _swapped(site: Site, cast: cst.Call) -> dict[cst.CSTNode, cst.CSTNode] | None:
    """The edits that make ``x.double().cpu()`` an ``x.cpu().double()``."""
    func = cast.func
    if not isinstance(func, cst.Attribute) or site.file.defines_method("double"):
        return None
    outer = _move_of(site, cast)
    if outer is None or not isinstance(outer.func, cst.Attribute):
        return None
    if func.attr.value == "double" and not cast.args:
        return {func.attr: cst.Name("cpu"), outer.func.attr: cst.Name("double")}
    if func.attr.value != "to" or len(cast.args) != 1 or outer.func.value is not cast:
        return None
    if site.name(cast.args[0].value) not in _WIDE:
        return None
    host = cast.with_changes(func=func.with_changes(attr=cst.Name("cpu")), args=())
    to = outer.func.with_changes(value=host, attr=cst.Name("to"))
    return {outer: outer.with_changes(func=to, args=cast.args)}


def _move_of(site: Site, node: cst.Call) -> cst.Call | None:
    """The ``.cpu()`` that the result goes to, with nothing computed between."""
    while True:
        attribute = site.parent(node)
        call = site.parent(attribute) if isinstance(attribute, cst.Attribute) else None
        if not isinstance(call, cst.Call) or not isinstance(attribute, cst.Attribute):
            return None
        if call.func is not attribute or call.args:
            return None
        if attribute.attr.value == "cpu":
            return call
        if attribute.attr.value not in _BETWEEN:
            return None
        node = call


_TIME = (
    "a time in seconds takes float64: in float32 it is minutes off. Keep the tensor on the CPU, or "
    "write whole milliseconds as int64"
)


@rule(
    "NPU416",
    "index-by-float64",
    on=(cst.Call, cst.Attribute),
    words=("float64", "double", "Double"),
    fix=FixLevel.NONE,
    quiet=True,
    why="an integer comes of this float64, which an NPU computes in float32: indices above 2**24 "
    "go wrong. Compute it on the CPU, and move the result",
    examples=(
        report("import torch\nrow = torch.sqrt(-8 * idx.double() + n).long()"),
        report("import torch\nrow = (idx.to(torch.float64) / 3).floor().to(torch.long)"),
        report("import time, torch\nt = torch.tensor(time.time(), dtype=torch.float64)"),
        report(
            "import torch\ndef f(x, factor):\n"
            "    divisor = torch.tensor([factor], dtype=torch.float64)\n"
            "    return torch.floor(x / divisor).long()"
        ),
        report(
            "import torch\ndef f(low, high, mps):\n"
            "    wide = torch.float32 if mps else torch.float64\n"
            "    r = torch.rand(3, dtype=wide)\n    r = (r * (high - low)).floor()\n"
            "    return low + r.long()"
        ),
        leave(
            "import torch\ndef f(x, y):\n    p = x.double()\n    return p.argmax().long(), y.long()"
        ),
        leave("import torch\ndef f(x):\n    p = x.double()\n    return (p > 0.5).long()"),
        leave(
            "import torch\ndef f(x):\n    i = x.long()\n    x = x.to(torch.float64)\n"
            "    return i, x.mean()"
        ),
        leave(
            "import torch\ndef f(x):\n"
            "    t = torch.float64 if x.dtype == torch.float64 else torch.float32\n"
            "    return torch.arange(3, dtype=t).long()"
        ),
        leave("import torch\nrow = torch.sqrt(idx.cpu().double() + n).long()"),
        leave("import torch\nrow = net(x.double()).long()"),
        leave("import torch\nbest = x.double().argmax().long()"),
        leave("import torch\ny = x.double()"),
    ),
)
def index_by_float64(node: cst.Call | cst.Attribute, site: Site) -> Report | None:
    if not site.file.imports("torch") or "gradcheck" in site.file.text:
        return None
    if isinstance(node, cst.Attribute):
        if site.name(node) not in _FLOAT64 or follows_dtype(node, site):
            return None
        return Report() if makes_index_later(site, outward(node, site)[1]) else None
    method = isinstance(node.func, cst.Attribute) and node.func.attr.value == "double"
    dtypes = [site.name(arg.value) for arg in node.args]
    if not (method and not node.args) and not any(name in _FLOAT64 for name in dtypes):
        return None
    if is_array_call(site, node) or stays_on_cpu(site, node):
        return None
    if _is_time(site, node):
        return Report(_TIME)
    return Report() if gives_index(site, node) else None


@rule(
    "NPU417",
    "float64-before-cpu",
    on=cst.Call,
    words=("float64", "double", "complex128", "cdouble"),
    fix=FixLevel.SAFE,
    quiet=True,
    why="the tensor is cast to double precision, which the NPU lacks, just before it goes to the "
    "CPU, which has it: moved first, it keeps every digit",
    examples=(
        rewrite("import torch\ny = x.double().cpu()", "import torch\ny = x.cpu().double()"),
        rewrite(
            "import torch\ny = x.double().detach().cpu().numpy()",
            "import torch\ny = x.cpu().detach().double().numpy()",
        ),
        rewrite(
            "import torch\ny = x.to(torch.float64).cpu()",
            "import torch\ny = x.cpu().to(torch.float64)",
        ),
        leave("import torch\ny = x.cpu().double().cpu()"),
        leave("import torch\ny = x.to(device).cpu()"),
        leave("y = x.double().cpu()"),
    ),
)
def float64_before_cpu(node: cst.Call, site: Site) -> Fix | None:
    if not site.file.imports("torch") or stays_on_cpu(site, node):
        return None
    edits = _swapped(site, node)
    return Fix(edits, imports=()) if edits else None

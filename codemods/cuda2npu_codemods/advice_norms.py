"""Normalizations written by hand where torch_npu has a fused operator."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

import libcst as cst

from cuda2npu.rule import Report, Site, leave, report
from cuda2npu_codemods.advice import WITH_OPERATORS, advice
from cuda2npu_codemods.flow import Value
from cuda2npu_codemods.operations import NPU, UNKNOWN, Operation, Reader, mentions, reader_of

_LLAMA = """import torch
from torch import nn

class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        dtype = x.dtype
        x = x.to(torch.float32)
        variance = x.pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(variance + self.eps)
        return self.weight * x.to(dtype)
"""
_GEMMA = """import torch

class RMSNorm(torch.nn.Module):
    def _norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        output = self._norm(x.float())
        output = output * (1.0 + self.weight.float())
        return output.type_as(x)
"""
_BLOCK = """
class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = RMSNorm(dim)

    def forward(self, x, residual):
        residual = x + residual
        x = self.norm(residual)
        return x, residual
"""
_WEIGHTS = ("weight", "gamma", "scale", "w", "g")
"""Names of a function's argument for the weight."""


class _Root(NamedTuple):
    mean: Value
    epsilon: Value
    squared: Value


class _RmsNorm(NamedTuple):
    x: Value
    mean: Value
    epsilon: Value
    product: Value
    """What is multiplied by the weight, where there is one."""


def _rms_norms(reader: Reader) -> Iterator[_RmsNorm]:
    for value, operation in reader.operations():
        for x, root in _scaled(reader, operation):
            if reader.same(x, root.squared) and not _is_centred(reader, x):
                yield _RmsNorm(x, root.mean, root.epsilon, value)


def _scaled(reader: Reader, operation: Operation) -> Iterator[tuple[Value, _Root]]:
    """``x * rsqrt(…)`` and ``x / sqrt(…)``: the tensor, and what is under the root."""
    for x, scale in reader.pairs(operation, "mul"):
        root = _root(reader, scale, inverse=True)
        if root is not None:
            yield x, root
    if operation.name == "div" and len(operation.operands) == 2:
        root = _root(reader, operation.operands[1], inverse=False)
        if root is not None:
            yield operation.operands[0], root


def _root(reader: Reader, value: Value, *, inverse: bool) -> _Root | None:
    """What is under ``rsqrt(mean(x²) + eps)``, or under ``sqrt`` when it is not inverse."""
    operation = reader.operation(value)
    if operation is None or not operation.operands:
        return None
    if operation.name in ("reciprocal", "div") and inverse:
        of_one = operation.name == "reciprocal" or reader.number(operation.operands[0]) == 1
        return _root(reader, operation.operands[-1], inverse=False) if of_one else None
    name, power = ("rsqrt", -0.5) if inverse else ("sqrt", 0.5)
    exponent = reader.number(operation.argument(1, "exponent"))
    if operation.name != name and not (operation.name == "pow" and exponent == power):
        return None
    for mean, epsilon in reader.pairs(reader.operation(operation.operands[0]), "add"):
        squared = _squared(reader, mean)
        if squared is not None:
            return _Root(reader.peeled(mean), epsilon, squared)
    return None


def _squared(reader: Reader, value: Value) -> Value | None:
    """What is squared in a mean of squares over the last dimension."""
    mean = reader.operation(value)
    if mean is None or mean.name != "mean" or not mean.operands:
        return None
    kept = mean.argument(2, "keepdim", "keepdims")
    keeps = kept is not None and getattr(kept.node, "value", None) is True
    square = reader.operation(mean.operands[0])
    if not keeps or not reader.is_last(mean.argument(1, "dim", "axis")) or square is None:
        return None
    exponent = reader.number(square.argument(1, "exponent"))
    if square.name == "square" or (square.name == "pow" and exponent == 2):
        return square.operands[0]
    same = square.name == "mul" and len(square.operands) == 2 and reader.same(*square.operands)
    return square.operands[0] if same else None


def _is_centred(reader: Reader, x: Value) -> bool:
    """Whether something, a mean, is taken off first: then it is a layer norm."""
    operation = reader.operation(x)
    return operation is not None and operation.name == "sub"


class _Weight(NamedTuple):
    """The value that multiplies the normalized tensor, and the function that it stands in."""

    reader: Reader
    value: Value

    @property
    def shifted(self) -> bool:
        """Whether it is ``1 + weight``."""
        return _shifted(self.reader, self.value) is not None


def _weight(reader: Reader, found: _RmsNorm, name: str) -> _Weight | None:
    """What the normalized tensor is multiplied by: a parameter of the class or the function.

    Where the function only normalizes, the methods of its class that call it are read.
    """
    product = found.product.node
    for value, operation in reader.operations():
        for weight, normalized in reader.pairs(operation, "mul"):
            if value.node is not product and reader.comes_from(normalized, product):
                return _Weight(reader, weight) if _is_parameter(reader, weight) else None
    members = reader.owner.body if reader.owner is not None else ()
    for method in members:
        if isinstance(method, ast.FunctionDef) and method.name != name:
            caller = reader.of(method, reader.owner)
            for _, operation in caller.operations():
                for weight, normalized in caller.pairs(operation, "mul"):
                    if _calls(caller.peeled(normalized).node, name):
                        return _Weight(caller, weight) if _is_parameter(caller, weight) else None
    return None


def _calls(node: ast.expr, name: str) -> bool:
    func = node.func if isinstance(node, ast.Call) else None
    return isinstance(func, ast.Attribute) and func.attr == name and _is_own(func)


def _is_own(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "self"


def _is_parameter(reader: Reader, weight: Value) -> bool:
    """Whether it is ``self.weight``, ``1 + self.weight`` or a function's argument for it."""
    weight = reader.peeled(weight)
    shifted = _shifted(reader, weight)
    node = reader.peeled(shifted).node if shifted is not None else weight.node
    return _is_own(node) or (isinstance(node, ast.Name) and node.id in _WEIGHTS)


def _shifted(reader: Reader, weight: Value) -> Value | None:
    """The weight in ``1 + weight``."""
    for one, other in reader.pairs(reader.operation(weight), "add"):
        if reader.number(one) == 1:
            return other
    return None


@advice(
    "NPU750",
    "rms-norm-by-hand",
    on=cst.SimpleStatementLine,
    words=("mean(",),
    chips=WITH_OPERATORS,
    why="an RMSNorm written by hand is a kernel and a pass over memory for each operation; "
    "torch_npu.npu_rms_norm(x, gamma, epsilon)[0] is one, with a gradient",
    source="torch_npu 2.13, _op_plugin_docs.py, and Ascend/op-plugin, docs/context: npu_rms_norm, "
    "npu_gemma_rms_norm; huggingface/diffusers#14590 on a gamma of None",
    examples=(
        report(_LLAMA),
        report(_GEMMA),
        report(
            "import torch\n"
            "def norm(x, weight, eps):\n"
            "    rms = torch.sqrt(torch.mean(x ** 2, dim=-1, keepdim=True) + eps)\n"
            "    return weight * (x / rms)\n"
        ),
        leave(_LLAMA.replace("mean(-1,", "mean(1,")),  # not over the last dimension
        leave(_LLAMA.replace("x = x.to(torch.float32)", "x = x - x.mean(-1, keepdim=True)")),
        leave("import torch\ndef scale(x, y):\n    return x * y.pow(2).mean(-1, keepdim=True)"),
        leave(_LLAMA.replace("import torch\n", "import numpy as torch\n", 1)),
    ),
)
def rms_norm(node: cst.SimpleStatementLine, site: Site) -> Report | None:
    reader = reader_of(site)
    here = None if reader is None else reader.flow.number(site.statement)
    if reader is None or here is None or mentions(reader, (*NPU, "rms_norm")):
        return None
    found = next((norm for norm in _rms_norms(reader) if norm.mean.at == here), None)
    if found is None:
        return None
    weight = _weight(reader, found, getattr(next(iter(site.enclosing), None), "name", ""))
    return Report(_rms_advice(reader, found, weight), at=node.body[0])


def _rms_advice(reader: Reader, found: _RmsNorm, weight: _Weight | None) -> str:
    here = found.mean.at
    x, epsilon = reader.text(found.x, here), reader.text(found.epsilon, here)
    gamma = _gamma(weight)
    about = ""
    if weight is None:
        about = ", ones where there is no weight, not None"
    elif weight.shifted:
        about = "; npu_gemma_rms_norm adds the 1 by itself, but has no gradient"
    return (
        f"this is torch_npu.npu_rms_norm({x}, {gamma}, epsilon={epsilon})[0], one kernel, with a "
        "gradient: give both tensors one dtype (float16, bfloat16, float32), drop the casts "
        f"around it; gamma has one dimension, the last of x{about}. From torch_npu 2.1 on, on "
        "Atlas A2, A3, training and inference series"
    )


def _gamma(weight: _Weight | None) -> str:
    """The operator's argument for a weight, by the name that no statement in between gave it."""
    if weight is None:
        return UNKNOWN
    reader, value = weight
    shifted = _shifted(reader, value)
    if shifted is None:
        return reader.text(reader.peeled(value))
    return "1.0 + " + reader.text(reader.peeled(shifted))


@advice(
    "NPU756",
    "add-then-rms-norm",
    on=cst.SimpleStatementLine,
    words=("+", "add"),
    chips=WITH_OPERATORS,
    why="torch_npu.npu_add_rms_norm adds the residual and normalizes the sum in one kernel; it "
    "has no gradient, so that it is for inference",
    source="torch_npu 2.13: the operator has no derivative; CANN, ops-nn: AddRmsNorm",
    examples=(
        report(_LLAMA + _BLOCK),
        report(_GEMMA + "from torch import nn\n" + _BLOCK),
        report(_LLAMA + _BLOCK.replace("RMSNorm(dim)", "nn.RMSNorm(dim)")),
        report(_LLAMA + _BLOCK.replace("self.norm", "self.ln_1")),
        report(_LLAMA + _BLOCK.replace("self.norm = RMSNorm(dim)",
                                       "self.drop, self.norm = nn.Dropout(0.1), RMSNorm(dim)")),
        leave(_LLAMA + _BLOCK.replace("RMSNorm(dim)", "nn.LayerNorm(dim)")),
        leave(_LLAMA + _BLOCK.replace("= x + residual", "= x + self.position")),
        leave(_LLAMA + _BLOCK, chip="950"),
    ),
)  # fmt: skip
def add_then_rms_norm(node: cst.SimpleStatementLine, site: Site) -> Report | None:
    reader = reader_of(site)
    here = None if reader is None else reader.flow.number(site.statement)
    if reader is None or here is None or reader.owner is None or mentions(reader, NPU):
        return None
    later = range(here, len(reader.flow.statements))
    found = next((norm for at in later for norm in _added(reader, site, here, at)), None)
    if found is None:
        return None
    first, second = (reader.text(term, here) for term in found.terms)
    where = "" if found.at == here else f" here, as line {reader.flow.line(found.at)} does,"
    return Report(
        f"for inference, y, _, total = torch_npu.npu_add_rms_norm({first}, {second}, "
        f"{found.gamma}, {found.epsilon}) adds and normalizes{where} in one kernel: y is the "
        "norm, total the sum. It has no gradient; the three have one dtype, the first two one "
        "shape. From torch_npu 2.1 on, on Atlas A2, A3",
        at=node.body[0],
    )


class _Added(NamedTuple):
    """A norm of a sum, the sum's two terms, and the statement of the norm."""

    terms: tuple[Value, ...]
    gamma: str
    epsilon: str
    at: int


def _added(reader: Reader, site: Site, here: int, at: int) -> Iterator[_Added]:
    """Where a statement hands the sum of another one to ``self.norm(…)``, if it is an RMSNorm."""
    for value in reader.flow.expressions(at):
        call = value.node
        if not isinstance(call, ast.Call) or len(call.args) != 1:
            continue
        made = reader.made(call.func)
        given = reader.peeled(value.part(call.args[0]))
        added = reader.operation(given) if made is not None and given.at == here else None
        if made is None or added is None or added.name != "add" or len(added.operands) != 2:
            continue
        nodes = [reader.peeled(term).node for term in added.operands]
        plain = all(isinstance(node, (ast.Name, ast.Call, ast.Subscript)) for node in nodes)
        arguments = _arguments(reader, ast.unparse(call.func), made, site) if plain else None
        if arguments is not None:
            yield _Added(added.operands, *arguments, at)


def _arguments(reader: Reader, norm: str, made: ast.Call, site: Site) -> tuple[str, str] | None:
    """The weight and epsilon of a module, as its user names them; None if it is no RMSNorm."""
    if reader.dotted(made.func) == "torch.nn.RMSNorm":
        given = {keyword.arg for keyword in made.keywords}
        has_epsilon = len(made.args) > 1 or "eps" in given
        has_weight = len(made.args) < 3 and "elementwise_affine" not in given
        if not has_weight:
            return UNKNOWN, f"{norm}.eps" if has_epsilon else UNKNOWN
        smallest = f"torch.finfo({norm}.weight.dtype).eps"
        return f"{norm}.weight", f"{norm}.eps" if has_epsilon else smallest
    name = made.func.id if isinstance(made.func, ast.Name) else ""
    for owner in site.file.tree.body:
        if isinstance(owner, ast.ClassDef) and owner.name == name:
            methods = (each for each in owner.body if isinstance(each, ast.FunctionDef))
            for method in methods:
                inner = reader.of(method, owner)
                for found in _rms_norms(inner):
                    gamma = _gamma(_weight(inner, found, method.name))
                    return _outside(gamma, norm), _outside(inner.text(found.epsilon), norm)
    return None


def _outside(text: str, module: str) -> str:
    """An expression of a module's method as it is written where the module is used."""
    own = re.sub(r"\bself\.", f"{module}.", text)
    names = re.findall(r"(?<![\w.])[A-Za-z_]\w*", own)
    return own if set(names) <= {"self"} else UNKNOWN

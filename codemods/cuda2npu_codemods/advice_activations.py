"""Gated activations, and an activation behind a group norm, where torch_npu has one kernel."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

import libcst as cst

from cuda2npu.rule import Report, Site, leave, report
from cuda2npu_codemods.advice import WITH_OPERATORS, advice
from cuda2npu_codemods.flow import Value
from cuda2npu_codemods.halves import halves
from cuda2npu_codemods.operations import NPU, Operation, Reader, mentions, reader_of

_MLP = """import torch
import torch.nn as nn
import torch.nn.functional as F

class MLP(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w1 = nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)
        self.w3 = nn.Linear(dim, hidden, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))
"""
_CHUNKED = """import torch
import torch.nn.functional as F

def geglu(x):
    x, gate = x.chunk(2, dim=-1)
    return x * F.gelu(gate)
"""
_RESNET = """import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.GroupNorm(32, channels)
        self.act = nn.SiLU()

    def forward(self, x):
        x = self.norm(x)
        return self.act(x)
"""


class _Gated(NamedTuple):
    """``activation(gate) * up``."""

    gate: Value
    up: Value
    activation: Operation
    whole: Value | None
    """The tensor whose halves the two are; None when they are projections of one tensor."""
    gate_first: bool
    product: Value


def _gated(reader: Reader, name: str, at: int | None = None) -> Iterator[_Gated]:
    for value, operation in reader.operations(at):
        for active, up in reader.pairs(operation, "mul"):
            activation = _activation(reader, active)
            if activation is None or activation.name != name or not activation.operands:
                continue
            gate = activation.operands[0]
            first, second = halves(reader, gate, up), halves(reader, up, gate)
            if first is not None or second is not None:
                yield _Gated(gate, up, activation, first or second, first is not None, value)
            elif _are_projections(reader, gate, up):
                yield _Gated(gate, up, activation, None, True, value)


def _activation(reader: Reader, value: Value) -> Operation | None:
    """The activation, also when SiLU is spelt ``x * sigmoid(x)``."""
    operation = reader.operation(value)
    for x, sigmoid in reader.pairs(operation, "mul"):
        inner = reader.operation(sigmoid)
        if inner is not None and inner.name == "sigmoid" and reader.same(x, inner.operands[0]):
            return Operation("silu", (x,), {})
    return operation


def _are_projections(reader: Reader, one: Value, other: Value) -> bool:
    """Whether two linear layers are applied to the same tensor: ``w1(x)``, ``w3(x)``."""
    first, second = _projected(reader, one), _projected(reader, other)
    return first is not None and second is not None and reader.same(first, second)


def _projected(reader: Reader, value: Value) -> Value | None:
    node = reader.peeled(value).node
    if not isinstance(node, ast.Call) or not node.args:
        return None
    made = reader.made(node.func)
    layer = ast.unparse(made.func).rpartition(".")[2] if made is not None else ""
    operation = reader.operation(value)
    is_linear = "Linear" in layer or (operation is not None and operation.name == "linear")
    return reader.peeled(value).part(node.args[0]) if is_linear else None


def _joined(reader: Reader, found: _Gated, *, active_first: bool) -> str:
    """The operator's argument: the tensor as it is, or its parts in the order that is needed."""
    if found.whole is not None and found.gate_first == active_first:
        return reader.text(found.whole)
    here = found.product.at
    gate, up = reader.text(found.gate, here), reader.text(found.up, here)
    order = (gate, up) if active_first else (up, gate)
    return f"torch.cat([{', '.join(order)}], dim=-1)"


def _start(reader: Reader, found: _Gated, *, active_first: bool) -> str:
    as_it_is = found.whole is not None and found.gate_first == active_first
    here = found.product.at
    return _since(reader, found.whole.at if found.whole and as_it_is else here, here)


def _layout(found: _Gated, *, active_first: bool) -> str:
    """What spares the copy that ``torch.cat`` makes."""
    if found.whole is None:
        return "; join the two weights into one projection, or the concatenation eats the gain"
    if found.gate_first != active_first:
        return "; change the order of the two halves in the projection to spare the copy"
    return "; it takes the tensor before that is split"


@advice(
    "NPU753",
    "swiglu-by-hand",
    on=cst.SimpleStatementLine,
    words=("silu", "sigmoid", "act", "swish", " * "),
    chips=WITH_OPERATORS,
    why="silu(gate) * up are two kernels that write and read the hidden layer; "
    "torch_npu.npu_swiglu(x, dim=-1) is one, silu of the first half times the second, with a "
    "gradient",
    source="torch_npu 2.13, _op_plugin_docs.py: npu_swiglu; CANN, ops-nn: SwiGlu",
    examples=(
        report(_MLP),
        report(_MLP.replace("F.silu(self.w1(x))", "self.w1(x).sigmoid() * self.w1(x)")),
        report(_CHUNKED.replace("gelu", "silu")),
        leave(_MLP.replace("self.w3(x)", "self.w3(y)")),
        leave("import torch.nn.functional as F\ndef se(x, scale):\n    return x * F.silu(scale)"),
        leave(_MLP.replace("F.silu", "self.act_fn")),  # what it is, the class does not say
    ),
)
def swiglu(node: cst.SimpleStatementLine, site: Site) -> Report | None:
    found = _found(site, "silu")
    if found is None:
        return None
    reader, gated = found
    return Report(
        f"{_start(reader, gated, active_first=True)} "
        f"torch_npu.npu_swiglu({_joined(reader, gated, active_first=True)}, dim=-1), one "
        f"kernel, with a gradient: silu of the first half times the second"
        f"{_layout(gated, active_first=True)}. Contiguous float16, bfloat16 or float32; from "
        "torch_npu 2.1 on, on Atlas A2, A3",
        at=node.body[0],
    )


@advice(
    "NPU754",
    "geglu-by-hand",
    on=cst.SimpleStatementLine,
    words=("gelu", "act", " * "),
    chips=WITH_OPERATORS,
    why="gelu(gate) * up are two kernels that write and read the hidden layer; "
    "torch_npu.npu_geglu is one, with a gradient",
    source="torch_npu 2.13, _op_plugin_docs.py: npu_geglu, npu_gelu_mul; CANN, ops-nn: GeGluV2",
    examples=(
        report(_CHUNKED),
        report(_MLP.replace("silu", "gelu")),
        leave("import torch.nn.functional as F\ndef se(x, scale):\n    return x * F.gelu(scale)"),
        leave(_CHUNKED.replace("chunk(2, dim=-1)", "chunk(2, dim=1)")),
    ),
)
def geglu(node: cst.SimpleStatementLine, site: Site) -> Report | None:
    found = _found(site, "gelu")
    if found is None:
        return None
    reader, gated = found
    form = gated.activation.argument(1, "approximate")
    text = getattr(form.node, "value", "") if form is not None else "none"
    number = {"none": "0", "tanh": "1"}.get(str(text), "0 or 1")
    left = gated.whole is not None and gated.gate_first
    return Report(
        f"{_start(reader, gated, active_first=left)} "
        f"torch_npu.npu_geglu({_joined(reader, gated, active_first=left)}, dim=-1, "
        f"approximate={number}{', activate_left=True' if left else ''})[0], one kernel, with a "
        "gradient: approximate=0 is the exact GELU, the default 1 the tanh form; it takes GELU of "
        f"the second half unless activate_left{_layout(gated, active_first=left)}. float16, "
        "bfloat16 or float32; from torch_npu 2.1 on, on Atlas A2, A3",
        at=node.body[0],
    )


def _found(site: Site, name: str) -> tuple[Reader, _Gated] | None:
    """The gated activation of the statement."""
    reader = reader_of(site)
    here = None if reader is None else reader.flow.number(site.statement)
    if reader is None or here is None or mentions(reader, NPU):
        return None
    found = next(_gated(reader, name, here), None)
    return None if found is None else (reader, found)


def _since(reader: Reader, first: int, here: int) -> str:
    """How advice begins whose call takes what its variables hold in an earlier statement."""
    line = reader.flow.line(first)
    return (
        "this is" if first == here else f"with line {line}, and what the names hold there, this is"
    )


@advice(
    "NPU757",
    "group-norm-then-silu",
    on=cst.SimpleStatementLine,
    words=("silu", "act", "swish", "nonlinearity", "relu", "SiLU"),
    chips=WITH_OPERATORS,
    why="SiLU behind a group norm reads and writes the feature map once more; "
    "torch_npu.npu_group_norm_swish does both in one kernel, with a gradient",
    source="torch_npu 2.13, _op_plugin_docs.py: npu_group_norm_swish, npu_group_norm_silu; "
    "Ascend/op-plugin, docs/context: npu_group_norm_swish",
    examples=(
        report(_RESNET),
        leave(_RESNET.replace("GroupNorm(32, channels)", "BatchNorm2d(channels)")),
        leave(_RESNET.replace("nn.SiLU()", "nn.ReLU()")),
    ),
)
def group_norm_silu(node: cst.SimpleStatementLine, site: Site) -> Report | None:
    reader = reader_of(site)
    here = None if reader is None else reader.flow.number(site.statement)
    if reader is None or here is None or mentions(reader, NPU):
        return None
    norm = next(_normalized(reader, here), None)
    if norm is None:
        return None
    name, x = ast.unparse(norm.node.func), reader.text(norm.part(norm.node.args[0]))
    return Report(
        f"{_since(reader, norm.at, here)} torch_npu.npu_group_norm_swish({x}, "
        f"{name}.num_groups, {name}.weight, {name}.bias, {name}.eps)[0], one kernel, with a "
        "gradient (npu_group_norm_silu has none): the three tensors have one dtype (float16, "
        "bfloat16, float32); for a gradient no more than 4000 channels a group. From "
        "torch_npu 2.1 on, on Atlas A2, A3",
        at=node.body[0],
    )


class _Norm(NamedTuple):
    """The call of a module's group norm, and its statement."""

    node: ast.Call
    at: int

    def part(self, node: ast.expr) -> Value:
        return Value(node, self.at)


def _normalized(reader: Reader, at: int) -> Iterator[_Norm]:
    """The group norms whose result a statement hands to SiLU."""
    for _, operation in reader.operations(at):
        norm = _group_norm(reader, operation) if operation.name == "silu" else None
        if norm is not None:
            yield norm


def _group_norm(reader: Reader, activation: Operation) -> _Norm | None:
    """The call of a module's group norm whose result the activation takes."""
    given = reader.peeled(activation.operands[0]) if activation.operands else None
    node = given.node if given is not None else None
    made = reader.made(node.func) if isinstance(node, ast.Call) and len(node.args) == 1 else None
    is_norm = made is not None and reader.dotted(made.func) == "torch.nn.GroupNorm"
    return _Norm(node, given.at) if is_norm and given and isinstance(node, ast.Call) else None

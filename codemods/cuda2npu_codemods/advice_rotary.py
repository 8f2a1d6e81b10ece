"""Rotary position embeddings written by hand where torch_npu has a fused operator."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

import libcst as cst

from cuda2npu.rule import Report, Site, leave, report
from cuda2npu_codemods.advice import WITH_OPERATORS, advice
from cuda2npu_codemods.flow import Value
from cuda2npu_codemods.halves import ends_in, halves, interleaved
from cuda2npu_codemods.operations import (
    NPU,
    UNKNOWN,
    Function,
    Operation,
    Reader,
    mentions,
    reader_of,
)

_HALF = """import torch

def rotate_half(x):
    x1 = x[..., : x.shape[-1] // 2]
    x2 = x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)
"""
_CHUNK = """import torch

def rotate_half(x):
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((-x2, x1), dim=-1)
"""
_EVERY_TWO = """import torch

def rotate_half(x):
    x1 = x[..., ::2]
    x2 = x[..., 1::2]
    return torch.stack((-x2, x1), dim=-1).flatten(-2)
"""
_APPLY = """
def apply_rotary_pos_emb(q, k, cos, sin):
    q_embed = (q * cos) + (rotate_half(q) * sin)
    k_embed = (k * cos) + (rotate_half(k) * sin)
    return q_embed, k_embed
"""
_NARROW = """import torch

def rotate(x, cos, sin):
    x1, x2 = torch.chunk(x, 2, dim=-1)
    return torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin), dim=-1)
"""
_COMPLEX = """import torch

def apply_rotary_emb(xq, freqs_cis):
    xq_ = torch.view_as_complex(xq.float().reshape(*xq.shape[:-1], -1, 2))
    return torch.view_as_real(xq_ * freqs_cis).flatten(3).type_as(xq)
"""
_KNOWN_BY_NAME = re.compile(r"_?(rope_)?rotate_(half|every_two|interleaved?)")
"""An imported function of this name turns its argument, in one of the two ways."""
_WAYS = (("cat", "half", halves), ("stack", "interleave", interleaved))
"""How the two turned parts are joined, the mode that this is, and how x was split."""
_FLATTENING = ("flatten", "reshape", "view", "reshape_as", "view_as", "rearrange")


class _Rotation(NamedTuple):
    x: Value
    cosine: str
    sine: str
    mode: str
    """``half``, ``interleave``, or nothing when the file does not say which."""
    at: int
    in_float: bool = False
    """Whether it is computed in float32, as complex numbers are, whatever the dtype of x."""


def _rotations(reader: Reader, site: Site, at: int) -> Iterator[_Rotation]:
    for value, operation in reader.operations(at):
        found = (
            _sum(reader, operation, site, value.at)
            or _narrow(reader, operation, value.at)
            or _complex(reader, operation, value.at)
        )
        if found is not None:
            yield found


def _sum(reader: Reader, operation: Operation, site: Site, at: int) -> _Rotation | None:
    """``x * cos + rotate_half(x) * sin``."""
    for plain, turned in reader.pairs(operation, "add"):
        for rotated, sine in reader.pairs(reader.operation(turned), "mul"):
            rotation = _turned(reader, rotated, site)
            if rotation is None:
                continue
            for x, cosine in reader.pairs(reader.operation(plain), "mul"):
                if reader.same(x, rotation[1]):
                    names = reader.text(cosine, at), reader.text(sine, at)
                    return _Rotation(x, *names, rotation[0], at)
    return None


def _turned(reader: Reader, value: Value, site: Site) -> tuple[str, Value] | None:
    """How a value is turned by a quarter, and what it was: ``cat((-x2, x1))`` of its halves."""
    return _turned_here(reader, value) or _turned_elsewhere(reader, value, site)


def _turned_here(reader: Reader, value: Value) -> tuple[str, Value] | None:
    joined = reader.operation(value)
    if joined is not None and joined.name in _FLATTENING and joined.operands:
        joined = reader.operation(joined.operands[0])
    for name, mode, split in _WAYS:
        pair = _pair(reader, joined, name)
        negated = reader.operation(pair[0]) if pair is not None else None
        if pair is not None and negated is not None and negated.name == "negative":
            x = split(reader, pair[1], negated.operands[0])
            return (mode, x) if x is not None else None
    return None


def _pair(reader: Reader, joined: Operation | None, name: str) -> tuple[Value, Value] | None:
    """The two tensors that are joined along the last dimension."""
    if joined is None or joined.name != name or not joined.operands:
        return None
    parts = reader.flow.resolved(joined.operands[0])
    if not isinstance(parts.node, (ast.Tuple, ast.List)) or len(parts.node.elts) != 2:
        return None
    if not reader.is_last(joined.argument(1, "dim", "axis")):
        return None
    first, second = parts.node.elts
    return parts.part(first), parts.part(second)


def _turned_elsewhere(reader: Reader, value: Value, site: Site) -> tuple[str, Value] | None:
    """The same by a function of the file, or by an imported one whose name says so."""
    call = reader.peeled(value)
    if not isinstance(call.node, ast.Call) or len(call.node.args) != 1:
        return None
    argument = call.part(call.node.args[0])
    func = call.node.func
    name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
    functions = site.file.functions(name)
    modes = {_mode(reader, function) for function in functions}
    if len(modes) == 1:
        mode = modes.pop()
        return (mode, argument) if mode is not None else None
    module, _, name = ("" if functions else reader.dotted(func) or "").rpartition(".")
    return ("", argument) if module and _KNOWN_BY_NAME.fullmatch(name) else None


def _mode(reader: Reader, function: Function) -> str | None:
    """How a function turns its argument."""
    inner = reader.of(function)
    returned = inner.flow.returned()
    found = _turned_here(inner, returned[0]) if len(returned) == 1 else None
    if found is None:
        return None
    mode, x = found
    node = inner.peeled(x).node
    names = [argument.arg for argument in function.args.args]
    return mode if isinstance(node, ast.Name) and node.id in names else None


def _narrow(reader: Reader, operation: Operation, at: int) -> _Rotation | None:
    """``cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin))`` with cos and sin of half the width."""
    for name, mode, split in _WAYS:
        pair = _pair(reader, operation, name)
        less = reader.operation(pair[0]) if pair is not None else None
        if pair is None or less is None or less.name != "sub" or len(less.operands) != 2:
            continue
        for x1, cosine in reader.pairs(reader.operation(less.operands[0]), "mul"):
            for x2, sine in reader.pairs(reader.operation(less.operands[1]), "mul"):
                x = split(reader, x1, x2)
                if x is None or not _completes(reader, pair[1], (x2, cosine), (x1, sine)):
                    continue
                wide = _widened(reader.text(cosine, at), name)
                return _Rotation(x, wide, _widened(reader.text(sine, at), name), mode, at)
    return None


def _widened(name: str, joined: str) -> str:
    if joined == "cat":
        return f"torch.cat(({name}, {name}), dim=-1)"
    return f"{name}.repeat_interleave(2, dim=-1)"


def _completes(
    reader: Reader, value: Value, one: tuple[Value, Value], other: tuple[Value, Value]
) -> bool:
    """Whether a value is the sum of these two products."""
    return any(
        _is_product(reader, left, one) and _is_product(reader, right, other)
        for left, right in reader.pairs(reader.operation(value), "add")
    )


def _is_product(reader: Reader, value: Value, factors: tuple[Value, Value]) -> bool:
    return any(
        reader.same(left, factors[0]) and reader.same(right, factors[1])
        for left, right in reader.pairs(reader.operation(value), "mul")
    )


def _complex(reader: Reader, operation: Operation, at: int) -> _Rotation | None:
    """``view_as_real(view_as_complex(x.reshape(…, -1, 2)) * freqs)``."""
    if operation.name != "view_as_real" or not operation.operands:
        return None
    for turned, by in reader.pairs(reader.operation(operation.operands[0]), "mul"):
        seen = reader.operation(turned)
        if seen is None or seen.name != "view_as_complex" or not seen.operands:
            continue
        x = ends_in(reader, seen.operands[0], (-1, 2))
        if x is not None:
            name = reader.text(by, at)
            cosine, sine = (_widened(f"{name}.{part}", "stack") for part in ("real", "imag"))
            return _Rotation(x, cosine, sine, "interleave", at, in_float=True)
    return None


@advice(
    "NPU751",
    "rotary-embedding-by-hand",
    on=cst.SimpleStatementLine,
    words=("cos", "rotate_", "sin", "view_as_real"),
    chips=WITH_OPERATORS,
    why="a rotary embedding written by hand splits, negates, joins, multiplies and adds in kernels "
    "of their own; torch_npu.npu_rotary_mul is one kernel, with a gradient",
    source="torch_npu 2.13, _op_plugin_docs.py: npu_rotary_mul; Ascend/op-plugin, docs/context",
    examples=(
        report(_HALF + _APPLY),
        report(_EVERY_TWO + _APPLY),
        report(_CHUNK + _APPLY),
        report("import torch\nfrom .llama import rotate_half\n" + _APPLY),
        report(_NARROW),
        report(_COMPLEX),
        leave(_HALF.replace("(-x2, x1)", "(x2, x1)") + _APPLY),
        leave(_HALF + _APPLY.replace("rotate_half(q)", "rotate_half(k)").split("    k_embed")[0]),
        leave(_NARROW.replace("x2 * cos + x1", "x2 * cos - x1")),
        leave(_COMPLEX.replace("-1, 2))", "2, -1))")),
    ),
)
def rotary_embedding(node: cst.SimpleStatementLine, site: Site) -> Report | None:
    reader = reader_of(site)
    here = None if reader is None else reader.flow.number(site.statement)
    if reader is None or here is None or mentions(reader, NPU):
        return None
    found = next(_rotations(reader, site, here), None)
    if found is None:
        return None
    return Report(_advice(reader, found), at=node.body[0])


def _advice(reader: Reader, found: _Rotation) -> str:
    mode = found.mode or UNKNOWN
    x = reader.text(found.x, found.at) + (".float()" if found.in_float else "")
    call = f"torch_npu.npu_rotary_mul({x}, {found.cosine}, {found.sine}, "
    dtypes = ", here float32, and a cast of the result stays," if found.in_float else ""
    ask = "" if found.mode else 'look whether it turns halves ("half") or pairs ("interleave"); '
    size = {
        "half": "cos and sin have its sequence and head dimension and 1 or the same for the "
        "others, their product below 1000",
        "interleave": "cos and sin have its sequence and head dimension and 1 for the others",
    }.get(found.mode, "cos and sin have its sequence and head dimension, 1 for the others")
    return (
        f'this is {call}"{mode}"), one kernel, with a gradient: {ask}x has 4 dimensions, heads '
        f"or batch first or sequence first, the last one even and below 896; {size}. The "
        f"three have one dtype, float16, bfloat16 or float32{dtypes}; from torch_npu 2.1 on, on "
        "Atlas A2, A3 (other series: half alone, with jit_compile and a head size of 128)"
    )

"""Attention written by hand where torch_npu has a fused operator."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

import libcst as cst

from cuda2npu.rule import Report, Site, leave, report
from cuda2npu_codemods.advice import WITH_OPERATORS, advice
from cuda2npu_codemods.flow import Value
from cuda2npu_codemods.operations import (
    NPU,
    UNKNOWN,
    Operation,
    Reader,
    attributes_of,
    mentions,
    reader_of,
)

_ATTENTION = """import math
import torch
import torch.nn.functional as F

def attention(q, k, v, mask=None, p=0.0):
    scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = F.softmax(scores, dim=-1)
    weights = F.dropout(weights, p=p)
    return torch.matmul(weights, v)
"""
_ADDED = _ATTENTION.replace('scores.masked_fill(mask == 0, float("-inf"))', "scores + mask")
_EINSUM = """import torch

def attention(q, k, v, scale):
    weights = torch.einsum("b h i d, b h j d -> b h i j", q, k).mul(scale).softmax(dim=-1)
    return torch.einsum("b h i j, b h j d -> b h i d", weights, v)
"""
_HEADS = """import torch
import torch.nn as nn

class Attention(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.dropout = nn.Dropout(p)

    def forward(self, q, k, v, mask, head_mask=None):
        scores = torch.bmm(q, k.transpose(1, 2))
        scores += mask
        weights = self.dropout(nn.functional.softmax(scores, dim=-1))
        if head_mask is not None:
            weights = weights * head_mask
        return torch.bmm(weights, v)
"""
_FUSED = (*NPU, "scaled_dot_product", "flash_attn", "memory_efficient_attention", "sdpa")
_MATMULS = ("matmul", "bmm")
_SHAPES = ("view", "reshape", "unsqueeze", "squeeze", "unflatten")
_MERGED = "BNSD, batch and heads apart"
_DEPTH = 12


class _Scores(NamedTuple):
    """What is known of the scores: their product, and what was done to them before softmax."""

    query: Value
    key: Value
    at: int
    layout: str
    scale: frozenset[str] = frozenset()
    hidden: frozenset[str] = frozenset()
    """Masks that are true where a query must not see a key."""
    added: frozenset[str] = frozenset()
    """Masks and biases that are added behind the scale."""
    inside: frozenset[str] = frozenset()
    """Those that are scaled with the product."""

    def also(self, **sets: frozenset[str]) -> _Scores:
        return self._replace(**{name: getattr(self, name) | new for name, new in sets.items()})


class _Weights(NamedTuple):
    """What is done to softmax's result before it meets the values."""

    dropped: bool = False
    head_mask: bool = False


class _Attention(NamedTuple):
    scores: _Scores
    value: Value
    weights: _Weights
    handed_out: int | None
    """The line that returns the weights, if one does."""


def _attentions(reader: Reader) -> Iterator[_Attention]:
    for softmax, operation in reader.operations():
        if operation.name != "softmax" or not operation.operands:
            continue
        if not reader.is_last(operation.argument(1, "dim", "axis")):
            continue
        scores = _scores(reader, operation.operands[0])
        used = _use(reader, softmax.node) if scores is not None else None
        if scores is not None and used is not None:
            yield _Attention(scores, *used, _hands_out(reader, softmax.node))


def _scores(reader: Reader, value: Value, depth: int = _DEPTH) -> _Scores | None:
    """The scores on every way that leads to a value; None when one of them is something else."""
    value = reader.peeled(value)
    sources = reader.flow.sources(value)
    if depth == 0 or (isinstance(value.node, ast.Name) and value in sources):
        return None
    if sources != [value]:
        every = [_scores(reader, source, depth - 1) for source in sources]
        return _merged([scores for scores in every if scores is not None], len(every))
    operation = reader.operation(value)
    if operation is None or not operation.operands:
        return None
    return _product(reader, operation, value.at) or _changed(reader, operation, depth - 1)


def _merged(found: list[_Scores], wanted: int) -> _Scores | None:
    if len(found) < wanted or len({scores.at for scores in found}) != 1:
        return None
    result = found[0]
    for scores in found[1:]:
        result = result.also(hidden=scores.hidden, added=scores.added, inside=scores.inside)
    alike = len({scores.scale for scores in found}) == 1
    return result if alike else result._replace(scale=frozenset({UNKNOWN}))


def _product(reader: Reader, operation: Operation, at: int) -> _Scores | None:
    """``q @ k.transpose(-2, -1)``, by whatever name."""
    operands = operation.operands
    if operation.name == "einsum" and len(operands) == 3:
        layout = _layout(operands[0])
        return _Scores(operands[1], operands[2], at, layout) if layout is not None else None
    if operation.name in _MATMULS and len(operands) == 2:
        key = _transposed(reader, operands[1])
        layout = _MERGED if operation.name == "bmm" else "BNSD"
        return _Scores(operands[0], key, at, layout) if key is not None else None
    return None


def _letters(equation: Value) -> tuple[str, str, str] | None:
    text = getattr(equation.node, "value", None)
    if not isinstance(text, str) or text.count(",") != 1 or text.count("->") != 1:
        return None
    left, _, out = text.replace(" ", "").partition("->")
    first, _, second = left.partition(",")
    return first, second, out


def _layout(equation: Value) -> str | None:
    """The layout of the queries of an einsum like ``bhid,bhjd->bhij``; None for another one."""
    letters = _letters(equation)
    if letters is None:
        return None
    query, key, out = letters
    if len(out) not in (3, 4) or len(query) != len(out):
        return None
    row, column, summed = out[-2], out[-1], query[-1]
    if query.replace(row, column) != key or summed in out or column in query:
        return None
    return {out[:-1]: _MERGED if len(out) == 3 else "BNSD", out[0] + out[2:0:-1]: "BSND"}.get(
        query[:-1]
    )


def _transposed(reader: Reader, value: Value) -> Value | None:
    """The tensor whose last two dimensions are exchanged."""
    value = reader.peeled(value)
    if isinstance(value.node, ast.Attribute) and value.node.attr == "mT":
        return value.part(value.node.value)
    operation = reader.operation(value)
    if operation is None or not operation.operands:
        return None
    numbers = tuple(reader.number(operand) for operand in operation.operands[1:])
    if operation.name in ("transpose", "swapaxes", "swapdims"):
        exchanged = {numbers} & {(-1, -2), (-2, -1), (2, 3), (3, 2), (1, 2), (2, 1)}
        return operation.operands[0] if exchanged else None
    if operation.name == "permute":
        return operation.operands[0] if numbers in ((0, 1, 3, 2), (0, 2, 1)) else None
    return None


def _changed(reader: Reader, operation: Operation, depth: int) -> _Scores | None:
    """Scores that are scaled, masked or shaped."""
    operands = operation.operands
    if operation.name in _SHAPES:
        return _scores(reader, operands[0], depth)
    if operation.name == "masked_fill" and len(operands) == 3:
        return _with(reader, _scores(reader, operands[0], depth), "hidden", operands[1])
    if operation.name == "where" and len(operands) == 3:
        return _chosen(reader, operands, depth)
    if len(operands) != 2 or operation.name not in ("mul", "div", "add"):
        return None
    left, right = (_scores(reader, operand, depth) for operand in operands)
    if (left is None) == (right is None) or (operation.name == "div" and left is None):
        return None
    scores, other = (left, operands[1]) if left is not None else (right, operands[0])
    if operation.name == "add":
        return _with(reader, scores, "added", other)
    if not _is_number(reader, other):
        return None
    scaled = _with(reader, scores, "scale", other, "{}" if operation.name == "mul" else "1 / ({})")
    return scaled and scaled._replace(added=frozenset(), inside=scaled.inside | scaled.added)


def _chosen(reader: Reader, operands: tuple[Value, ...], depth: int) -> _Scores | None:
    """``where(mask, scores, value)`` hides where the mask is false."""
    mask, yes, no = operands
    shown = _scores(reader, yes, depth)
    if shown is not None:
        return _with(reader, shown, "hidden", mask, "~({})")
    return _with(reader, _scores(reader, no, depth), "hidden", mask)


def _with(
    reader: Reader, scores: _Scores | None, name: str, value: Value, form: str = "{}"
) -> _Scores | None:
    """The scores with a mask, bias or factor more, as it can be written where they are made."""
    if scores is None:
        return None
    return scores.also(**{name: frozenset({form.format(reader.text(value, scores.at))})})


def _is_number(reader: Reader, value: Value) -> bool:
    """Whether a factor is a number, as far as it can be seen: no tensor that is learnt or made."""
    for node in ast.walk(reader.peeled(value).node):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
            if name not in ("sqrt", "size", "float", "int", "pow", "tensor", "full", "rsqrt"):
                return False
        elif isinstance(node, ast.Attribute) and reader.owner is not None:
            kept = attributes_of(reader.owner).get(node.attr, ())
            if any("Parameter" in ast.unparse(k) for k in kept):
                return False
        name = str(getattr(node, "attr", getattr(node, "id", "")))
        if any(word in name for word in ("mask", "bias", "temperature", "logit_scale")):
            return False
    return True


def _use(reader: Reader, softmax: ast.expr) -> tuple[Value, _Weights] | None:
    """What the weights are multiplied with, and what is done to them before."""
    for _, operation in reader.operations():
        operands = operation.operands
        if operation.name == "einsum" and len(operands) == 3:
            weights, value = operands[1:]
            if not _sums_columns(operands[0]):
                continue
        elif operation.name in _MATMULS and len(operands) == 2:
            weights, value = operands
        else:
            continue
        done = _weights(reader, weights, softmax)
        if done is not None:
            return value, done
    return None


def _sums_columns(equation: Value) -> bool:
    letters = _letters(equation)
    if letters is None or len(letters[0]) < 3:
        return False
    weights, value, out = letters
    column = weights[-1]
    return column in value and column not in out and weights[-2] in out


def _weights(reader: Reader, value: Value, softmax: ast.expr, depth: int = 8) -> _Weights | None:
    """What was done to softmax's result on the way to a value, if that is where it comes from."""
    value = reader.peeled(value)
    if value.node is softmax:
        return _Weights()
    sources = reader.flow.sources(value)
    if depth == 0 or (isinstance(value.node, ast.Name) and value in sources):
        return None
    if sources != [value]:
        masked = [source for source in sources if _is_head_mask(reader, source)]
        others = [source for source in sources if source not in masked]
        every = [_weights(reader, source, softmax, depth - 1) for source in others]
        known = [done for done in every if done is not None]
        if not known or len(known) < len(others):
            return None
        flags = zip(*known, _Weights(head_mask=bool(masked)), strict=True)
        return _Weights(*map(any, flags))
    operation = reader.operation(value)
    if operation is None or not operation.operands:
        return None
    done = _weights(reader, operation.operands[0], softmax, depth - 1)
    if operation.name == "dropout":
        return None if done is None else done._replace(dropped=True)
    return done if operation.name in _SHAPES else None


def _is_head_mask(reader: Reader, value: Value) -> bool:
    """``weights * head_mask``, which is done where there is such a mask."""
    pairs = reader.pairs(reader.operation(value), "mul")
    return any("head_mask" in ast.unparse(mask.node) for mask, _ in pairs)


@advice(
    "NPU755",
    "attention-by-hand",
    on=cst.SimpleStatementLine,
    words=("matmul", "bmm(", "@", "einsum"),
    chips=WITH_OPERATORS,
    why="attention written by hand keeps all scores in memory, several times over; "
    "torch_npu.npu_fusion_attention and scaled_dot_product_attention never write them out",
    source="torch_npu 2.13, _op_plugin_docs.py: npu_fusion_attention; CANN, ops-transformer: "
    "FlashAttentionScore",
    examples=(
        report(_ATTENTION),
        report(_ADDED),
        report(_EINSUM),
        report(_HEADS),
        leave(_EINSUM.replace("b h j d -> b h i j", "b h d j -> b h i j")),
        leave(_ATTENTION.replace("weights, v)", "v, weights)")),
        leave(_ATTENTION.replace("k.transpose(-2, -1)", "k")),
        leave(_ATTENTION.replace("F.softmax(scores, dim=-1)", "F.softmax(scores, dim=1)")),
        leave(_ATTENTION.replace("scores + mask", "torch.tanh(scores)")
              .replace('scores.masked_fill(mask == 0, float("-inf"))', "torch.tanh(scores)")),
        report(_ATTENTION.replace("(weights, v)", "(weights, v), weights")),
        leave("import torch\ndef probabilities(q, k):\n"
              "    return torch.matmul(q, k.transpose(-2, -1)).softmax(-1)\n"),
    ),
)  # fmt: skip
def attention(node: cst.SimpleStatementLine, site: Site) -> Report | None:
    reader = reader_of(site)
    here = None if reader is None else reader.flow.number(site.statement)
    if reader is None or here is None or mentions(reader, _FUSED):
        return None
    found = next((each for each in _attentions(reader) if each.scores.at == here), None)
    return None if found is None else Report(_advice(reader, found), at=node.body[0])


def _hands_out(reader: Reader, softmax: ast.expr) -> int | None:
    """The line that also returns the weights, which a fused operator does not have."""
    for returned in reader.flow.returned():
        value = reader.flow.resolved(returned)
        for part in getattr(value.node, "elts", ()):
            if _weights(reader, value.part(part), softmax) is not None:
                return reader.flow.line(returned.at)
    return None


def _heads(query: str, layout: str) -> str:
    """The number of heads, read off a query that is simple enough to be written twice."""
    axis = {"BNSD": 1, "BSND": 2}.get(layout)
    simple = re.fullmatch(r"[\w.]+", query) is not None
    return UNKNOWN if axis is None or not simple else f"{query}.shape[{axis}]"


def _advice(reader: Reader, found: _Attention) -> str:
    scores, done = found.scores, found.weights
    tensors = scores.query, scores.key, found.value
    options = [reader.text(tensor, scores.at) for tensor in tensors]
    layout, _, shape = scores.layout.partition(", ")
    scale = " * ".join(sorted(scores.scale)) or "1.0"
    heads = UNKNOWN if shape else _heads(options[0], layout)
    options += [heads, f'"{layout}"', f"scale={scale}"]
    about = ["no scores in memory, and a gradient"]
    if heads == UNKNOWN:
        about.append("give it the number of heads behind the three tensors")
    if scores.hidden:
        options.append(f"atten_mask={' | '.join(sorted(scores.hidden))}")
        about.append("atten_mask is True where a key is hidden, SDPA's attn_mask where it is seen")
    for names, change in ((scores.added, ", divided by the scale,"), (scores.inside, "")):
        if names:
            about.append(
                f"{', '.join(sorted(names))}: a mask goes into atten_mask as a bool that is True "
                f"where a key is hidden, a bias{change} into pse"
            )
    if done.dropped:
        about.append("keep_prob=1 - p drops weights, in training only")
    if done.head_mask:
        about.append("it has no head_mask")
    line = found.handed_out
    kept = f", but line {line} does: it is for callers that read none" if line else ""
    if shape:
        about.append(f"give it {shape}, in four dimensions")
    return (
        f"this is torch_npu.npu_fusion_attention({', '.join(options)})[0]: {'; '.join(about)}. It "
        f"returns no weights{kept}; float16, bfloat16 or float32, a head size up to 768, the "
        "query's heads a multiple of the keys'; from torch_npu 2.1 on, on Atlas A2, A3, for "
        "training. The portable form is scaled_dot_product_attention (scale 1 / sqrt(d) when none "
        "is given)"
    )

"""Whether two tensors are the halves of one: the first and second, or the even and odd places."""

from __future__ import annotations

import ast
import re

from cuda2npu_codemods.flow import Value
from cuda2npu_codemods.operations import Operation, Reader

_SHAPING = ("reshape", "view", "unflatten", "rearrange")
_IN_HALF = re.compile(r"//\s*2\)*$")


def halves(reader: Reader, first: Value, second: Value) -> Value | None:
    """The tensor whose first and second half along the last dimension the two are."""
    parts = _parts(reader, first, second)
    if parts is not None:
        split, operation = parts
        size = operation.argument(1, "chunks", "sections", "split_size_or_sections", "split_size")
        in_two = reader.number(size) == 2 if operation.name != "split" else _is_half(reader, size)
        along = operation.argument(2, "dim")
        if operation.name in ("chunk", "tensor_split", "split"):
            return split if in_two and reader.is_last(along) else None
        return _unstacked(reader, operation, (2, -1), -2)
    return _sliced(reader, first, second)


def interleaved(reader: Reader, even: Value, odd: Value) -> Value | None:
    """The tensor whose even and odd places along the last dimension the two are."""
    parts = _parts(reader, even, odd)
    if parts is not None:
        return _unstacked(reader, parts[1], (-1, 2), -1)
    one, other = _last_index(reader, even), _last_index(reader, odd)
    if one is None or other is None or not reader.same(one[0], other[0]):
        return None
    steps = ("0::2", "1::2"), ("::2", "1::2"), (":None:2", "1::2")
    return one[0] if (ast.unparse(one[1]), ast.unparse(other[1])) in steps else None


def _parts(reader: Reader, first: Value, second: Value) -> tuple[Value, Operation] | None:
    """The tensor, and the operation that splits it, when the two are its parts 0 and 1."""
    one, other = reader.flow.resolved(first), reader.flow.resolved(second)
    for part, index in ((one, 0), (other, 1)):
        is_part = isinstance(part.node, ast.Subscript) and isinstance(part.node.slice, ast.Constant)
        if not is_part or part.node.slice.value != index:  # type: ignore[attr-defined]
            return None
    mine = one.part(one.node.value)  # type: ignore[attr-defined]
    theirs = other.part(other.node.value)  # type: ignore[attr-defined]
    operation = reader.operation(mine) if reader.same(mine, theirs) else None
    if operation is None or not operation.operands:
        return None
    return operation.operands[0], operation


def _is_half(reader: Reader, size: Value | None) -> bool:
    """Whether a size is written as half of something."""
    if size is None:
        return False
    return bool(_IN_HALF.search(ast.unparse(reader.flow.resolved(size).node)))


def _unstacked(
    reader: Reader, unbind: Operation, tail: tuple[int, int], dimension: int
) -> Value | None:
    """The tensor x of ``x.reshape(…, *tail).unbind(dimension)``."""
    if unbind.name != "unbind" or reader.number(unbind.argument(1, "dim")) != dimension:
        return None
    return ends_in(reader, unbind.operands[0], tail)


def ends_in(reader: Reader, value: Value, tail: tuple[int, int]) -> Value | None:
    """The tensor that is reshaped so that its last dimension becomes two, of these sizes."""
    shaped = reader.operation(value)
    if shaped is None or shaped.name not in _SHAPING:
        return None
    sizes = [size for operand in shaped.operands[1:] for size in _flat(operand)]
    numbers = tuple(reader.number(size) for size in sizes[-2:])
    return shaped.operands[0] if numbers == tail else None


def _flat(value: Value) -> list[Value]:
    node = value.node
    return (
        [value.part(e) for e in node.elts] if isinstance(node, (ast.Tuple, ast.List)) else [value]
    )


def _sliced(reader: Reader, first: Value, second: Value) -> Value | None:
    """``x[..., :d]`` and ``x[..., d:]`` with a d that is written as half of something."""
    one, other = _last_index(reader, first), _last_index(reader, second)
    if one is None or other is None or not reader.same(one[0], other[0]):
        return None
    lower, upper = one[1], other[1]
    if lower.lower or lower.step or upper.upper or upper.step:
        return None
    if lower.upper is None or upper.lower is None:
        return None
    end, start = one[0].part(lower.upper), other[0].part(upper.lower)
    return one[0] if reader.same(end, start) and _is_half(reader, end) else None


def _last_index(reader: Reader, value: Value) -> tuple[Value, ast.Slice] | None:
    """The tensor and the slice of its last dimension, where all others are taken whole."""
    part = reader.peeled(value)
    index = part.node.slice if isinstance(part.node, ast.Subscript) else None
    if not isinstance(index, ast.Tuple) or not isinstance(index.elts[-1], ast.Slice):
        return None
    whole = all(ast.unparse(element) in ("...", ":") for element in index.elts[:-1])
    inner = part.part(part.node.value)  # type: ignore[attr-defined]
    return (inner, index.elts[-1]) if whole else None

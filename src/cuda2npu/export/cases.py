"""The inputs on which a file is compared with its module. Child side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice, product

import torch

from cuda2npu.export.arguments import Call, drawn_values, other_values, resized
from cuda2npu.export.compare import Comparison, NotComparedError
from cuda2npu.export.shapes import Sizes
from cuda2npu.export.spec import Input, Row

_TRIES = 27
"""Combinations of sizes that are tried where none is given."""
_MOST = 100
"""Combinations of given sizes that are compared; atc takes no more of them."""
_FACTOR = 10.0


def cases(
    comparison: Comparison, inputs: Sequence[Input], sizes: dict[str, Sizes]
) -> tuple[list[Row], list[str]]:
    """The rows of all cases, and notes on those that the module itself does not take."""
    call = comparison.call
    notes: list[str] = []
    rows = comparison.rows("example", call.copy())
    if any(row.reasons for row in rows) and comparison.varies():
        notes.append("the module computes something else each time it is called")
    for case, change in _changes(call):
        try:
            rows += comparison.rows(case, call.with_tensors(change))
        except NotComparedError:
            raise
        except Exception as error:
            notes.append(f"not compared on {case}, which the module does not take: {_text(error)}")
    axes = _axes(comparison, inputs)
    if axes:
        more, told = _at_sizes(comparison, axes, sizes)
        rows, notes = rows + more, notes + told
    return rows, notes


def _changes(call: Call) -> Iterator[tuple[str, Callable[[torch.Tensor], torch.Tensor]]]:
    """Ways to change the values of all tensors. Half precision could not hold larger ones."""
    yield "other values", other_values
    tensors = [each for each in call.tensors().values() if each.is_floating_point()]
    half = any(each.element_size() < 4 for each in tensors)
    factors = (1.0,) if half or not tensors else (_FACTOR, 1 / _FACTOR)
    for factor in factors:
        name = {1.0: "drawn values", _FACTOR: "large values"}.get(factor, "small values")
        yield name, partial(drawn_values, scale=factor)


Places = dict[str, list[tuple[str, int, int]]]
"""By symbol: argument, axis and size in the example."""


def _axes(comparison: Comparison, inputs: Sequence[Input]) -> Places:
    tensors = comparison.call.tensors()
    found: Places = {}
    for each in inputs:
        key = comparison.bound.get(each.name)
        for axis, size in enumerate(each.shape):
            if key is not None and isinstance(size, str) and axis < tensors[key].dim():
                found.setdefault(size, []).append((key, axis, tensors[key].shape[axis]))
    return {symbol: places for symbol, places in found.items() if symbol.isidentifier()}


def _at_sizes(
    comparison: Comparison, axes: Places, sizes: dict[str, Sizes]
) -> tuple[list[Row], list[str]]:
    """The rows at every combination of the sizes given; where none are, at the first that runs."""
    example = {symbol: places[0][2] for symbol, places in axes.items()}
    given = {symbol: sizes[symbol].ends for symbol in axes if symbol in sizes}
    guesses = {symbol: _guesses(example[symbol]) for symbol in axes if symbol not in sizes}
    rows: list[Row] = []
    notes: list[str] = []
    for chosen in islice(product(*given.values()), _MOST):
        fixed = dict(zip(given, chosen, strict=True))
        tables = [
            {**fixed, **dict(zip(guesses, guess, strict=True))}
            for guess in islice(product(*guesses.values()), _TRIES)
        ]
        tables = [table for table in tables if table != example]
        found, reason = _first(comparison, axes, tables)
        rows += found
        if reason and given:
            notes.append(f"not compared at {_named(tables[0])}, which the module does not take: "
                         f"{reason}")  # fmt: skip
    if not rows and not notes:
        notes.append(
            f"no second size of {', '.join(sorted(axes))} was found that the module takes: say "
            "--sizes"
        )
    return rows, notes


def _first(
    comparison: Comparison, axes: Places, tables: Sequence[dict[str, int]]
) -> tuple[list[Row], str]:
    """The rows at the first sizes that the module takes; else why it does not take the first."""
    reason = ""
    for table in tables:
        call = _resized(comparison.call, axes, table)
        try:
            return comparison.rows(_named(table), call), ""
        except Exception as error:  # the module does not take this size: the next one may do
            reason = reason or _text(error)
    return [], reason


def _text(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _named(table: dict[str, int]) -> str:
    return ", ".join(f"{symbol}={size}" for symbol, size in table.items())


def _resized(call: Call, axes: Places, table: dict[str, int]) -> Call:
    tensors = call.tensors()
    changed = dict(tensors)
    for symbol, places in axes.items():
        for key, axis, _ in places:
            changed[key] = resized(changed[key], axis, table[symbol])
    new = {id(tensors[name]): tensor for name, tensor in changed.items()}
    return call.with_tensors(lambda tensor: new.get(id(tensor), tensor))


def _guesses(size: int) -> list[int]:
    """Sizes to try: multiples first, which networks with strides take."""
    return [n for n in dict.fromkeys([2 * size, size // 2, size + 1]) if n not in (0, size)]

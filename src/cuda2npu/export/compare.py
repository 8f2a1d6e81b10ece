"""Runs an exported file with onnxruntime beside the module it was made of. Child side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cuda2npu.export.arguments import Call, other_values, resized
from cuda2npu.export.shapes import Sizes
from cuda2npu.export.spec import DIFFERS, OK, Input, Row
from cuda2npu.running.tensors import flatten
from cuda2npu.smoke.metrics import EPSILONS, compare_values
from cuda2npu.smoke.spec import Tolerance

_EPSILON = 2.0**-16
"""The rounding of float32 that a deep network gathers."""
_TYPES = {"float32": "float", "float64": "double"}
"""Types that onnxruntime calls otherwise than torch."""
_TRIES = 27
"""Combinations of second sizes that are tried."""


class NotComparedError(Exception):
    """The file and the module could not be run side by side; the text says why."""


class Comparison:
    """One file against one module, on as many inputs as are asked for."""

    def __init__(self, path: Path, call: Call, names: Sequence[str], tolerance: Tolerance) -> None:
        """``names``: what the exporter was told to call the inputs."""
        self.call = call
        self._tolerance = tolerance
        self._session = _session(path)
        self.bound = _bound(self._session.get_inputs(), call.tensors(), names)
        """The name of the argument that each input of the graph is fed with."""

    def rows(self, case: str, call: Call) -> list[Row]:
        """One row per output. Raises what the module raises when it does not take the inputs."""
        expected = _outputs(call)
        try:
            found = self._session.run(None, self._feed(call))
        except Exception as error:
            reason = str(error).strip().splitlines()[0]
            return [Row(case, "", DIFFERS, reasons=(f"onnxruntime: {reason}",))]
        if len(found) != len(expected):
            reason = f"{len(expected)} outputs → {len(found)}"
            return [Row(case, "", DIFFERS, reasons=(reason,))]
        names = [each.name for each in self._session.get_outputs()]
        return [self._row(case, *each) for each in zip(names, expected, found, strict=True)]

    def varies(self) -> bool:
        """Whether the module draws random numbers in eval mode, too."""
        one, other = (_outputs(_copy(self.call), seed) for seed in (0, 1))
        return not all(map(torch.equal, one, other))

    def _feed(self, call: Call) -> dict[str, Any]:
        tensors = call.tensors()
        return {name: _array(tensors[key]) for name, key in self.bound.items()}

    def _row(self, case: str, name: str, expected: torch.Tensor, found: Any) -> Row:
        kind = str(expected.dtype).removeprefix("torch.")
        metrics = compare_values(_array(expected), np.asarray(found))
        reasons = metrics.failures(self._tolerance, EPSILONS.get(kind, _EPSILON))
        status = DIFFERS if reasons else OK
        if metrics.shape:
            return Row(case, name, status, reasons=tuple(reasons))
        return Row(case, name, status, metrics.max_abs, metrics.cosine, tuple(reasons))


def cases(
    comparison: Comparison, inputs: Sequence[Input], sizes: dict[str, Sizes]
) -> tuple[list[Row], list[str]]:
    """The rows of all cases, and notes on those that the module itself does not take."""
    call, notes = comparison.call, []
    rows = comparison.rows("example", _copy(call))
    if any(row.reasons for row in rows) and comparison.varies():
        notes.append("the module computes something else each time it is called")
    try:
        rows += comparison.rows("other values", call.with_tensors(other_values))
    except Exception as error:
        notes.append(f"not compared on other values, which the module does not take: {error}")
    axes = _axes(comparison, inputs)
    if axes:
        second = _second(comparison, axes, sizes)
        rows += second
        if not second:
            notes.append(f"no second size of {', '.join(sorted(axes))} was found that the module "
                         "takes: say --sizes")  # fmt: skip
    return rows, notes


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


def _second(comparison: Comparison, axes: Places, sizes: dict[str, Sizes]) -> list[Row]:
    """All sizes that are not fixed at others than in the example, as soon as the module runs."""
    tensors = comparison.call.tensors()
    choices = [_others(symbol, places[0][2], sizes) for symbol, places in axes.items()]
    for chosen in islice(product(*choices), _TRIES):
        table = dict(zip(axes, chosen, strict=True))
        changed = dict(tensors)
        for symbol, places in axes.items():
            for key, axis, _ in places:
                changed[key] = resized(changed[key], axis, table[symbol])
        other = comparison.call.with_tensors(_instead(tensors, changed))
        with suppress(Exception):  # the module does not take this size: the next one may do
            return comparison.rows(", ".join(f"{k}={v}" for k, v in table.items()), other)
    return []


def _instead(
    old: dict[str, torch.Tensor], new: dict[str, torch.Tensor]
) -> Callable[[torch.Tensor], torch.Tensor]:
    """What puts the tensors of one table in place of those of another."""
    table = {id(old[name]): tensor for name, tensor in new.items()}
    return lambda tensor: table.get(id(tensor), tensor)


def _others(symbol: str, size: int, sizes: dict[str, Sizes]) -> list[int]:
    """Sizes to try: those that were given, else multiples, which networks with strides take."""
    given = sizes.get(symbol, Sizes())
    known = [*given.values, given.lowest, given.highest]
    guesses = [] if any(known) else [2 * size, size // 2, size + 1]
    return [n for n in dict.fromkeys([*known, *guesses]) if n and n != size] or [size]


def _session(path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        reason = str(error).strip().splitlines()[0]
        raise NotComparedError(f"onnxruntime cannot run the file: {reason}") from None


def _bound(
    given: Sequence[Any], tensors: dict[str, torch.Tensor], names: Sequence[str]
) -> dict[str, str]:
    """Inputs of the graph with arguments: by the names given, the parameters', or the order."""
    inputs, keys = [each.name for each in given], list(tensors)
    if names and set(inputs) <= set(names[: len(keys)]):
        table = dict(zip(names, keys, strict=False))
    elif set(inputs) <= set(keys):
        table = {name: name for name in inputs}
    else:
        table = dict(zip(inputs, keys, strict=False)) if len(inputs) == len(keys) else {}
    if all(each.name in table and _fits(each, tensors[table[each.name]]) for each in given):
        return {name: table[name] for name in inputs}
    raise NotComparedError(
        f"the file has the inputs {', '.join(inputs)}, which are not the tensors that the module "
        f"was called with, {', '.join(keys)}: give the exporter input_names, and tensors alone"
    )


def _fits(given: Any, tensor: torch.Tensor) -> bool:
    """Whether an input of onnxruntime is of the type and rank of a tensor."""
    kind = str(tensor.dtype).removeprefix("torch.")
    return given.type == f"tensor({_TYPES.get(kind, kind)})" and len(given.shape) == tensor.dim()


def _array(tensor: torch.Tensor) -> Any:
    host = tensor.detach().cpu()
    if host.is_complex():
        host = torch.view_as_real(host.resolve_conj())
    if host.dtype is torch.bfloat16:
        raise NotComparedError(
            "bfloat16 cannot be handed to onnxruntime: export in float32 or float16"
        )
    return host.contiguous().numpy()


def _copy(call: Call) -> Call:
    return call.with_tensors(lambda tensor: tensor)


def _outputs(call: Call, seed: int = 0) -> list[torch.Tensor]:
    """What the module computes in eval mode; it is left as it was, the random numbers too."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]), _evaluating(call.module):
        torch.manual_seed(seed)
        result = call.module(*call.args, **call.kwargs)
    return [tensor for _, tensor in flatten(result)]


@contextmanager
def _evaluating(module: Any) -> Iterator[None]:
    modes = [(each, each.training) for each in module.modules()]
    with suppress(NotImplementedError):  # a module made by torch.export has one mode alone
        module.eval()
    try:
        yield
    finally:
        for each, mode in modes:
            each.training = mode

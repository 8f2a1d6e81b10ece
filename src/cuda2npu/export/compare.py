"""Runs an exported file with onnxruntime beside the module it was made of. Child side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cuda2npu.export.arguments import Call
from cuda2npu.export.spec import DIFFERS, OK, Row
from cuda2npu.running.tensors import flatten
from cuda2npu.smoke.metrics import EPSILONS, Metrics, beyond, compare_values
from cuda2npu.smoke.spec import Tolerance

_EPSILON = 2.0**-16
"""The rounding of float32 that a deep network gathers."""
_TYPES = {"float32": "float", "float64": "double"}
"""Types that onnxruntime calls otherwise than torch."""
_NOTHING = 1e-12
"""Values below it have no direction and no scale."""


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
        one, other = (_outputs(self.call.copy(), seed) for seed in (0, 1))
        return not all(map(torch.equal, one, other))

    def _feed(self, call: Call) -> dict[str, Any]:
        tensors = call.tensors()
        return {name: _array(tensors[key]) for name, key in self.bound.items()}

    def _row(self, case: str, name: str, expected: torch.Tensor, found: Any) -> Row:
        kind = str(expected.dtype).removeprefix("torch.")
        metrics = compare_values(_array(expected), np.asarray(found))
        reasons = metrics.failures(self._tolerance, EPSILONS.get(kind, _EPSILON))
        reasons += _of_scale(metrics, self._tolerance)
        status = DIFFERS if reasons else OK
        if metrics.shape:
            return Row(case, name, status, reasons=tuple(reasons))
        relative = metrics.rel_l2 if math.isfinite(metrics.rel_l2) else None
        figures = metrics.max_abs, metrics.cosine, relative
        return Row(case, name, status, *figures, tuple(reasons))


def _of_scale(metrics: Metrics, tolerance: Tolerance) -> list[str]:
    """What a cosine cannot see: the same direction, but another length.

    An error across the direction that the cosine allows is as long as this limit.
    """
    limit = math.sqrt(max(0.0, 2 * (1 - tolerance.cosine)))
    if metrics.scale < _NOTHING or metrics.rel_l2 <= limit:
        return []
    return [f"relative error {beyond(metrics.rel_l2, '>', limit)}"]


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

"""Looks at a file once it is exported, while the module still stands. Child side."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from cuda2npu.export import graph
from cuda2npu.export.arguments import Call
from cuda2npu.export.cases import cases
from cuda2npu.export.compare import Comparison, NotComparedError
from cuda2npu.export.failure import is_own
from cuda2npu.export.shapes import sizes
from cuda2npu.export.spec import Exported, Finding, Input, Spec
from cuda2npu.model import UsageError
from cuda2npu.smoke.spec import Tolerance

_BRANCHES = 5
_LENGTH = "Using len to get tensor shape"
"""What torch says of a size that was taken for a constant, which it is where all are fixed."""
_ONE_WAY = (
    "no comparison can rule out that other inputs go the other way: compute both ways with "
    "torch.where, or take --exporter dynamo, which refuses such a branch"
)
_TRACER: type[Warning] = getattr(torch.jit, "TracerWarning")  # noqa: B009 (it has no stub)


def examine(
    exported: Exported, path: Path, call: Call, spec: Spec, names: Sequence[str] = ()
) -> None:
    """Add to ``exported`` what the file at ``path`` says and computes."""
    model = graph.read(path)
    exported.opset = graph.opset(model)
    exported.inputs = graph.inputs(model)
    if not exported.symbols:
        exported.findings = [each for each in exported.findings if _LENGTH not in each.message]
    exported.findings += graph.findings(path, model)
    if not model.graph.output:
        return
    try:
        comparison = Comparison(path, call, names, Tolerance(spec.cosine, spec.max_abs))
        exported.inputs = _with_examples(exported.inputs, comparison)
        rows, notes = cases(comparison, exported.inputs, sizes(spec.sizes))
    except (NotComparedError, UsageError) as error:
        advice = "the file is checked, but not compared with the module"
        exported.findings.append(Finding("not-compared", str(error), advice))
        return
    exported.rows = rows
    exported.notes += notes


def _with_examples(inputs: Sequence[Input], comparison: Comparison) -> list[Input]:
    tensors = comparison.call.tensors()
    shapes = {name: tuple(tensors[key].shape) for name, key in comparison.bound.items()}
    return [replace(each, example=shapes.get(each.name, ())) for each in inputs]


@contextmanager
def branches_found(exported: Exported) -> Iterator[None]:
    """Find where a trace went one way of several; all warnings are shown as ever."""
    show = warnings.showwarning
    seen: dict[str, str] = {}

    def noted(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: io.TextIOBase | None = None,
        line: str | None = None,
    ) -> None:
        if issubclass(category, _TRACER) and is_own(filename):
            seen.setdefault(f"{filename}:{lineno}", str(message).split(". ")[0])
        show(message, category, filename, lineno, file, line)  # type: ignore[arg-type]

    with warnings.catch_warnings():
        warnings.simplefilter("always", _TRACER)
        warnings.showwarning = noted  # type: ignore[assignment]
        yield
    places = list(seen.items())[:_BRANCHES]
    exported.findings += [
        Finding("one-way", f"{place}: the trace keeps one way: {text}", _ONE_WAY)
        for place, text in places
    ]

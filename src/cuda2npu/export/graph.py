"""What an ONNX file says of itself: its inputs, and what keeps ATC from reading it. Child side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx

from cuda2npu.export.operators import HIGHEST, LOWEST, OWN, SOURCE, STANDARD, SUPPORTED
from cuda2npu.export.spec import Finding, Input
from cuda2npu.running.source import digest

_SHOWN = 8
_NO_OUTPUT = Finding(
    "no-output",
    "the file has no output: there is nothing that a device would compute",
    "let forward return what it computes",
)
_ANOTHER = "the exporter wrote what ONNX forbids: another exporter or opset may do better"


def read(path: Path) -> Any:
    """The model without its weights where they lie in files of their own."""
    return onnx.load(path, load_external_data=False)


def digests(path: Path) -> dict[Path, str]:
    """Of the file, and of those beside it that hold its weights."""
    weights = {
        entry.value
        for tensor in read(path).graph.initializer
        for entry in tensor.external_data
        if entry.key == "location"
    }
    return {each: digest(each) for each in [path, *(path.parent / name for name in weights)]}


def opset(model: Any) -> int:
    return next((int(o.version) for o in model.opset_import if o.domain in STANDARD), 0)


def inputs(model: Any) -> list[Input]:
    """The inputs of the graph; what has a value in the file is none."""
    constant = {each.name for each in model.graph.initializer}
    return [_input(each) for each in model.graph.input if each.name not in constant]


def _input(value: Any) -> Input:
    tensor = value.type.tensor_type
    shape = tuple(
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or f"{value.name}_{number}"
        for number, dim in enumerate(tensor.shape.dim)
    )
    return Input(value.name, onnx.TensorProto.DataType.Name(tensor.elem_type).lower(), shape)


def findings(path: Path, model: Any) -> list[Finding]:
    """What is wrong with the file, and what the parser of ATC does not know."""
    found = [*_checker(path), *_opset(model), *_domains(model), *_operators(model)]
    return found if model.graph.output else [*found, _NO_OUTPUT]


def _checker(path: Path) -> Iterator[Finding]:
    """By its path, as a model of more than 2 GB cannot be checked otherwise."""
    from onnx.shape_inference import InferenceError

    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, InferenceError) as error:
        reason = str(error).strip().splitlines()[0]
        yield Finding("checker", f"onnx.checker: {reason}", _ANOTHER)


def _opset(model: Any) -> Iterator[Finding]:
    version = opset(model)
    if LOWEST <= version <= HIGHEST:
        return
    yield Finding(
        "opset",
        f"the file declares opset {version}; the parser of ATC knows operators as of the opsets "
        f"{LOWEST} to {HIGHEST}",
        f"export with opset_version={HIGHEST}, which both exporters of torch write",
    )


def _nodes(graph: Any) -> Iterator[Any]:
    """All nodes, those of the branches and loops too."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner)


def _domains(model: Any) -> Iterator[Finding]:
    foreign = Counter(
        f"{node.domain}::{node.op_type}"
        for node in _nodes(model.graph)
        if node.domain not in (*STANDARD, OWN)
    )
    if foreign:
        yield Finding(
            "domain",
            f"operators that are not of ONNX, which ATC has no parser for: {_names(foreign)}",
            "aten and org.pytorch come of ONNX_ATEN_FALLBACK: export with ONNX; write the others "
            "with standard operators, or register a parser with CANN's custom operators",
        )
    declared = sorted({each.domain or "ai.onnx" for each in model.opset_import})
    if len(declared) > 1:
        yield Finding(
            "domains",
            f"the file declares opsets of {len(declared)} domains ({', '.join(declared)}); ATC "
            "takes one (E16005)",
            "write the operators of the other domains with standard ones, and leave the domains "
            "out of custom_opsets",
        )


def _operators(model: Any) -> Iterator[Finding]:
    unknown = Counter(
        node.op_type
        for node in _nodes(model.graph)
        if node.domain in STANDARD and node.op_type not in SUPPORTED
    )
    if not unknown:
        return
    newer = [name for name in unknown if _since(name) > HIGHEST]
    advice = "write them with others in the module, or see whether your release of ATC takes them"
    if newer and opset(model) > HIGHEST:
        advice = f"opset_version={HIGHEST} takes {', '.join(newer)} apart; {advice}"
    yield Finding(
        "operator", f"not among the operators that ATC knows ({SOURCE}): {_names(unknown)}", advice
    )


def _since(name: str) -> int:
    """The first opset that has the operator."""
    try:
        return min(s.since_version for s in onnx.defs.get_all_schemas_with_history()
                   if s.name == name and s.domain in STANDARD)  # fmt: skip
    except ValueError:
        return 0


def _names(found: Counter[str]) -> str:
    names = [name if times == 1 else f"{name} ({times})" for name, times in found.most_common()]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more

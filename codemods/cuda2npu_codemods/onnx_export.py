"""``torch.onnx.export`` with what the ONNX parser of CANN's ATC does not take."""

from __future__ import annotations

import ast

import libcst as cst

from cuda2npu.rule import FixLevel, Report, Site, leave, report, rule
from cuda2npu_codemods.triggers import ATEN_WORDS, EXPORT_WORDS, OPSET_WORDS

_EXPORTERS = ("torch.onnx.export", "torch.onnx.utils.export")
_LOWEST, _HIGHEST = 8, 18
_ATEN = ("ONNX_ATEN", "ONNX_ATEN_FALLBACK", "ONNX_FALLTHROUGH")
_PARSER = (
    "OnnxModelParser::ConstructOriType of CANN's Graph Engine, and the names that its operator "
    "plugins register: ai.onnx::8::Conv to ai.onnx::18::Conv"
)


@rule(
    "NPU571",
    "onnx-opset",
    on=cst.Call,
    words=OPSET_WORDS,
    fix=FixLevel.NONE,
    why="ATC, which compiles ONNX files for an NPU, knows the operators of the opsets 8 to 18 and "
    "refuses a file of another one (No parser is registered for Op, optype ai.onnx::20::Conv). "
    "Export with opset_version=18; `cuda2npu export` checks the file",
    source=_PARSER,
    examples=(
        report('import torch\ntorch.onnx.export(net, x, "net.onnx", opset_version=20)'),
        report('from torch.onnx import export\nexport(net, (x,), "net.onnx", opset_version=7)'),
        report(
            'import torch\nOPSET = 19\ntorch.onnx.export(net, x, "a.onnx", opset_version=OPSET)'
        ),
        leave('import torch\ntorch.onnx.export(net, x, "net.onnx", opset_version=18)'),
        leave('import torch\ntorch.onnx.export(net, x, "net.onnx", opset_version=args.opset)'),
        leave("convert_sklearn(model, opset_version=20)"),
    ),
)
def onnx_opset(node: cst.Call, site: Site) -> Report | None:
    if site.name(node.func) not in _EXPORTERS:
        return None
    argument = site.argument(node, "opset_version")
    number = _number(argument.value, site) if argument is not None else None
    if number is None or _LOWEST <= number <= _HIGHEST:
        return None
    return Report(at=argument)


def _number(node: cst.BaseExpression, site: Site) -> int | None:
    """The value of a literal, or of a name that is bound to one and nothing else."""
    if isinstance(node, cst.Integer):
        return node.evaluated_value
    bound = site.binding(node.value) if isinstance(node, cst.Name) else None
    value = bound.value if isinstance(bound, ast.Constant) else None
    return value if isinstance(value, int) else None


@rule(
    "NPU572",
    "onnx-aten-operators",
    on=cst.Attribute,
    words=ATEN_WORDS,
    fix=FixLevel.NONE,
    why="this leaves operators of torch (aten) in the file where ONNX has none, and ATC has no "
    "parser for them. Export with OperatorExportTypes.ONNX, which names the operator instead, and "
    "write that one with others",
    source=_PARSER,
    examples=(
        report(
            "import torch\n"
            'torch.onnx.export(net, x, "net.onnx", operator_export_type='
            "torch.onnx.OperatorExportTypes.ONNX_ATEN_FALLBACK)"
        ),
        report(
            "from torch.onnx import OperatorExportTypes\n"
            "kind = OperatorExportTypes.ONNX_FALLTHROUGH"
        ),
        leave("import torch\nkind = torch.onnx.OperatorExportTypes.ONNX"),
        leave("kind = ours.OperatorExportTypes.ONNX_ATEN"),
    ),
)
def onnx_aten_operators(node: cst.Attribute, site: Site) -> Report | None:
    if node.attr.value not in _ATEN:
        return None
    owner, _, kind = (site.name(node.value) or "").rpartition(".")
    return Report() if kind == "OperatorExportTypes" and owner.startswith("torch") else None


@rule(
    "NPU573",
    "onnx-default-opset",
    on=cst.Call,
    words=EXPORT_WORDS,
    fix=FixLevel.NONE,
    default=False,
    since="2.13.0",
    why="without opset_version torch 2.13 writes opset 20, and ATC, which compiles ONNX files for "
    "an NPU, knows the operators of the opsets 8 to 18. Export with opset_version=18",
    source=f"ONNX_DEFAULT_OPSET in torch/onnx/_constants.py of torch 2.13; {_PARSER}",
    examples=(
        report('import torch\ntorch.onnx.export(net, x, "net.onnx")', release="2.13.0"),
        report('from torch import onnx\nonnx.export(net, x, "net.onnx")', release="2.13.0"),
        leave('import torch\ntorch.onnx.export(net, x, "net.onnx", opset_version=17)'),
        leave('import torch\ntorch.onnx.export(net, x, "net.onnx", **options)'),
        leave('learner.export("net.pkl")'),
    ),
)
def onnx_default_opset(node: cst.Call, site: Site) -> Report | None:
    if site.name(node.func) not in _EXPORTERS or any(arg.star for arg in node.args):
        return None
    return Report() if site.argument(node, "opset_version") is None else None

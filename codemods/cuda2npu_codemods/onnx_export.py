"""``torch.onnx.export`` with what the ONNX parser of CANN's ATC does not take."""

from __future__ import annotations

import ast

import libcst as cst

from cuda2npu.rule import FixLevel, Report, Site, leave, report, rule
from cuda2npu_codemods.triggers import ATEN_WORDS, DYNAMO_EXPORT_WORDS, EXPORT_WORDS, OPSET_WORDS

_EXPORTERS = ("torch.onnx.export", "torch.onnx.utils.export")
_LOWEST, _HIGHEST = 8, 18
_OPSET = "opset_version"
_ATEN = ("ONNX_ATEN", "ONNX_ATEN_FALLBACK", "ONNX_FALLTHROUGH")
_PARSER = (
    "OnnxModelParser::ConstructOriType of CANN's Graph Engine, and the names that its operator "
    "plugins register: ai.onnx::8::Conv to ai.onnx::18::Conv"
)


@rule(
    "NPU571",
    "onnx-opset",
    on=cst.Call,
    words=(*OPSET_WORDS, *EXPORT_WORDS),
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
        report(
            'import torch\nkw = {"opset_version": 20}\ntorch.onnx.export(net, x, "a.onnx", **kw)'
        ),
        report('import torch\ntorch.onnx.export(net, x, "a.onnx", **dict(opset_version=20))'),
        leave(
            'import torch\nkw = {"opset_version": 20}\nkw["opset_version"] = args.opset\n'
            'torch.onnx.export(net, x, "a.onnx", **kw)'
        ),
        leave('import torch\ntorch.onnx.export(net, x, "net.onnx", opset_version=18)'),
        leave('import torch\ntorch.onnx.export(net, x, "net.onnx", opset_version=args.opset)'),
        leave("convert_sklearn(model, opset_version=20)"),
    ),
)
def onnx_opset(node: cst.Call, site: Site) -> Report | None:
    if site.name(node.func) not in _EXPORTERS:
        return None
    argument = site.argument(node, _OPSET)
    if argument is not None:
        return _report(argument, _number(argument.value, site))
    found = (_report(arg, _unpacked(arg.value, site)) for arg in node.args if arg.star == "**")
    return next(filter(None, found), None)


def _report(at: cst.Arg, number: int | None) -> Report | None:
    return None if number is None or _LOWEST <= number <= _HIGHEST else Report(at=at)


def _unpacked(node: cst.BaseExpression, site: Site) -> int | None:
    """The opset in a dictionary that is written out, here or where its name is bound."""
    given: ast.expr | None = None
    if not isinstance(node, cst.Name):
        given = ast.parse(f"({site.code(node)})", mode="eval").body
    elif _is_only_unpacked(node.value, site.file.tree):
        given = site.binding(node.value)
    values: list[ast.expr] = []
    if isinstance(given, ast.Dict):
        entries = zip(given.keys, given.values, strict=True)
        values = [v for k, v in entries if isinstance(k, ast.Constant) and k.value == _OPSET]
    elif isinstance(given, ast.Call) and ast.unparse(given.func) == "dict":
        values = [each.value for each in given.keywords if each.arg == _OPSET]
    value = values[-1].value if values and isinstance(values[-1], ast.Constant) else None
    return value if isinstance(value, int) else None


def _is_only_unpacked(name: str, tree: ast.Module) -> bool:
    """Whether a dictionary is bound once and goes nowhere that could change it."""
    uses = [each for each in ast.walk(tree) if isinstance(each, ast.Name) and each.id == name]
    unpacked = [
        each.value for each in ast.walk(tree) if isinstance(each, ast.keyword) and each.arg is None
    ]
    loaded = [each for each in uses if isinstance(each.ctx, ast.Load)]
    return len(uses) == len(loaded) + 1 and all(each in unpacked for each in loaded)


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
    return Report() if site.argument(node, _OPSET) is None else None


@rule(
    "NPU574",
    "onnx-dynamo-export",
    on=cst.Call,
    words=DYNAMO_EXPORT_WORDS,
    fix=FixLevel.NONE,
    since="2.13.0",
    why="torch 2.13 has no torch.onnx.dynamo_export any more. torch.onnx.export(model, args, "
    "dynamo=True, opset_version=18) gives a program that is saved the same way",
    source="torch/onnx/__init__.py of torch 2.13",
    examples=(
        report("import torch\nprogram = torch.onnx.dynamo_export(net, x)", release="2.13.0"),
        report("from torch.onnx import dynamo_export\ndynamo_export(net, x)", release="2.13.0"),
        leave("import torch\nprogram = torch.onnx.export(net, (x,), dynamo=True)"),
        leave("exporter.dynamo_export(net, x)"),
    ),
)
def onnx_dynamo_export(node: cst.Call, site: Site) -> Report | None:
    return Report() if site.name(node.func) == "torch.onnx.dynamo_export" else None

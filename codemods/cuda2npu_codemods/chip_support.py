"""Calls that the targeted chip does not support: only asked with ``--chip``."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator

import libcst as cst

from cuda2npu.releases.chips import FAMILIES
from cuda2npu.releases.support import Api, page_release, unsupported
from cuda2npu.rule import FixLevel, Report, Site, Target, leave, report, rule
from cuda2npu_codemods.numerics import on_cpu
from cuda2npu_codemods.receivers import is_torch

_METHODS = "torch.Tensor."
_AMBIGUOUS = frozenset({"mode"})
"""Methods whose names say too little, even on what is proven to be torch's."""
WORDS = (
    "FractionalMaxPool3d",
    "LSTMCell",
    "MultiLabelMarginLoss",
    "fractional_max_pool3d",
    "geometric_",
    "ldl_factor",
    "lstsq",
    "mode(",
    "mode as ",
    "multilabel_margin_loss",
    "pdist",
    "poisson",
    "smm(",
    "smm as ",
    "sspaddmm",
    "to_sparse_bsc",
    "to_sparse_bsr",
    "to_sparse_csc",
    "to_sparse_csr",
)
"""What a call of each API of the data holds, or its import under another name.

It is spelt out here, as nothing reads the data otherwise. A short name alone would stand in too
many statements.
"""
_INSTEAD = {
    "LSTMCell": "an nn.LSTM with the same weights gives the same, over a sequence of one step",
    "pdist": "torch.cdist(x, x)[i, j] with i, j = torch.triu_indices(n, n, 1) gives the same",
    "lstsq": "for a matrix of full rank, q, r = torch.linalg.qr(a) and "
    "torch.linalg.solve_triangular(r, q.mT @ b, upper=True) give the same solution",
    "geometric_": "x.uniform_().log_().div_(math.log1p(-p)).ceil_() draws from the same "
    "distribution",
    **dict.fromkeys(
        ("to_sparse_csr", "to_sparse_csc", "to_sparse_bsr", "to_sparse_bsc"),
        "x.to_sparse(), the COO format, has a kernel",
    ),
}
"""What has kernels and gives the same, by the last part of a name."""
_MAKERS = frozenset("arange empty eye full linspace ones rand randint randn tensor zeros".split())
"""Functions of torch whose tensors are on the CPU, unless another default device is set."""
_DEFAULT = re.compile(r"set_default_|with .*device\((?!['\"]cpu)")
_ON_CPU = "call it on .cpu() and move the result back"


@rule(
    "NPU903",
    "unsupported-on-chip",
    on=(cst.Call, cst.ClassDef, cst.ImportFrom),
    words=WORDS,
    fix=FixLevel.NONE,
    default=False,
    targets=(Target.NPU, Target.SHIM),
    why="torch_npu marks this as unsupported on the chip, and its wheel has no kernel for it. "
    "Asked only with --chip NAME",
    source="the support pages and the wheels of torch_npu; docs/chips.md says how they were read",
    examples=(
        report("import torch\nvalues, _ = torch.mode(x, dim=1)", chip="A2"),
        report("import torch\ncell = torch.nn.LSTMCell(8, 8)", chip="950"),
        report("from torch.nn.functional import pdist\nd = pdist(x)", chip="A3"),
        report("import torch\nx = torch.eye(3, device='npu')\ny = x.to_sparse_csr()", chip="A2"),
        report("from torch import mode\nvalues, _ = mode(x, dim=1)", chip="A2"),
        report("from torch import mode as most\nvalues, _ = most(x, dim=1)", chip="A2"),
        report("import torch\nclass Cell(torch.nn.LSTMCell): ...", chip="950"),
        leave("import torch\nvalues, _ = torch.mode(x, dim=1)"),
        leave("import torch\nvalues, _ = torch.mode(torch.zeros(3))", chip="A2"),
        leave("import torch\ncell = torch.nn.LSTMCell(8, 8)", chip="A2"),
        leave("import torch\nx = torch.poisson(rates.cpu())", chip="A2"),
        leave("y = x.to_sparse_csr()", chip="A2"),
        leave("from scipy.spatial.distance import pdist\nd = pdist(x)", chip="A3"),
        leave("import torch\nc = torch.matmul(a, b)", chip="950"),
    ),
)
def unsupported_on_chip(
    node: cst.Call | cst.ClassDef | cst.ImportFrom, site: Site
) -> Report | None:
    chip = site.options.chip
    release = page_release(site.options.torch_npu) if chip else None
    if release is None:
        return None
    lacking = unsupported(release, chip)
    for name, place in _used(node, site, lacking):
        if name in lacking:
            where = f"{FAMILIES[chip]} (support page of torch_npu {release})"
            return _report(name, lacking[name], where, place)
    return None


def _used(
    node: cst.Call | cst.ClassDef | cst.ImportFrom, site: Site, lacking: Collection[str]
) -> Iterator[tuple[str, cst.CSTNode]]:
    """The dotted names that are called, inherited from or given another name, and where."""
    if isinstance(node, cst.Call):
        name = _called(node, site, lacking)
        if not any(_is_host(site, arg.value) for arg in node.args):
            yield name, _method(node) if name.startswith(_METHODS) else node
    elif isinstance(node, cst.ClassDef):
        for base in node.bases:
            yield site.name(base.value) or "", base.value
    elif not isinstance(node.names, cst.ImportStar) and node.module is not None:
        module = "" if node.relative else site.code(node.module)
        for alias in node.names:
            if alias.asname is not None:
                yield f"{module}.{alias.evaluated_name}", alias.name


def _report(name: str, api: Api, where: str, place: cst.CSTNode) -> Report:
    effect, quiet = _effect(api)
    by_hand = f"move it out of the loop, or {_ON_CPU}" if quiet else _ON_CPU
    advice = _INSTEAD.get(name.rpartition(".")[2], by_hand)
    return Report(f"{name} is not supported on {where}: {effect}; {advice}", quiet=quiet, at=place)


def _is_host(site: Site, node: cst.BaseExpression) -> bool:
    """Whether an expression is provably a tensor of the CPU, or made without saying where."""
    if on_cpu(site, node):
        return True
    value = site.binding(node.value) if isinstance(node, cst.Name) else None
    made = node if value is None else cst.parse_expression(ast.unparse(value))
    if not isinstance(made, cst.Call) or site.argument(made, "device") is not None:
        return False
    module, _, maker = (site.name(made.func) or "").rpartition(".")
    plain = not any(arg.star for arg in made.args) and _DEFAULT.search(site.file.text) is None
    return module == "torch" and maker in _MAKERS and plain


def _method(call: cst.Call) -> cst.CSTNode:
    """The name at the end of a chain that may begin many lines above it."""
    return call.func.attr if isinstance(call.func, cst.Attribute) else call


def _called(call: cst.Call, site: Site, lacking: Collection[str]) -> str:
    """The dotted name of the API that is called; empty when that is not certain."""
    name = site.name(call.func)
    if name is not None and name.startswith("torch."):
        return name
    func = call.func
    if not isinstance(func, cst.Attribute) or func.attr.value in _AMBIGUOUS:
        return ""
    method = _METHODS + func.attr.value
    known = method in lacking and is_torch(site, func.value)
    return method if known and not _is_host(site, func.value) else ""


def _effect(api: Api) -> tuple[str, bool]:
    """What happens there instead, and whether without an error."""
    kinds = {kind for kind, _ in api.operators}
    operators = " and ".join(operator for _, operator in api.operators)
    if all(operator.endswith("_backward") for _, operator in api.operators):
        operators = f"its gradient, {operators},"
    if kinds == {"raises"}:
        return f"{operators} raises there", False
    if kinds == {"acl_op"}:
        return f"{operators} has no aclnn kernel, without which it raises there", False
    return f"{operators} has no kernel and runs on the CPU, its data copied both ways", True

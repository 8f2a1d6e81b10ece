"""Tests of what a tensor's type or device says when it is read as text."""

from __future__ import annotations

import re
from typing import TypeGuard

import libcst as cst

from cuda2npu.rule import Fix, FixLevel, Report, Site, leave, report, rewrite, rule
from cuda2npu_codemods.expressions import (
    is_device,
    is_table_by_device,
    string,
    terminal,
    with_value,
)

_PREFIX = re.compile(r"torch\.cuda\.?")


def _looked_in(node: cst.SimpleString, site: Site) -> cst.BaseExpression | None:
    """What a literal is compared with, searched in, or asked to be the start of."""
    parent = site.parent(node)
    if isinstance(parent, cst.ComparisonTarget):
        parent = site.parent(parent)
    if isinstance(parent, cst.Comparison) and len(parent.comparisons) == 1:
        sides = (parent.left, parent.comparisons[0].comparator)
        return sides[1] if sides[0] is node else sides[0]
    call = site.parent(parent) if isinstance(parent, cst.Arg) else None
    if isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute):
        looks = call.func.attr.value in ("startswith", "find", "count") and len(call.args) == 1
        return call.func.value if looks else None
    return None


def _is_tensor_type(node: cst.BaseExpression, site: Site) -> bool:
    """``x.type()``, whole or a part of it between dots."""
    if isinstance(node, cst.Subscript):
        node = node.value
        if not _is_method(node, "split") or len(node.args) != 1:
            return False
        if string(node.args[0].value) != ".":
            return False
        assert isinstance(node.func, cst.Attribute)
        node = node.func.value
    return _is_method(node, "type") and not node.args and site.file.imports("torch")


def _is_method(node: cst.BaseExpression, name: str) -> TypeGuard[cst.Call]:
    called = isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute)
    return called and terminal(node) == name


@rule(
    "NPU125",
    "part-of-tensor-type",
    on=cst.SimpleString,
    words=("cuda",),
    fix=FixLevel.SAFE,
    missed_by_shim=True,
    quiet=True,
    why="a test looks for CUDA in what x.type() says: on the NPU that is torch.npu.…Tensor",
    examples=(
        rewrite(
            "import torch\nimport torch_npu\nok = x.type().startswith('torch.cuda')",
            "import torch\nimport torch_npu\nok = x.type().startswith('torch.npu')",
        ),
        rewrite(
            "import torch\nimport torch_npu\nok = 'cuda' in x.type()",
            "import torch\nimport torch_npu\nok = 'npu' in x.type()",
        ),
        rewrite(
            "import torch\nimport torch_npu\nok = x.type().split('.')[1] == 'cuda'",
            "import torch\nimport torch_npu\nok = x.type().split('.')[1] == 'npu'",
        ),
        leave("ok = 'cuda' in job.type()"),
        leave("import torch\nok = 'cuda' in job.type(1)"),
        leave("import torch\nok = 'cuda' in kinds"),
    ),
)
def part_of_tensor_type(node: cst.SimpleString, site: Site) -> Fix | None:
    value, where = string(node) or "", _looked_in(node, site)
    if where is None or not (value == "cuda" or _PREFIX.fullmatch(value)):
        return None
    if not _is_tensor_type(where, site):
        return None
    return Fix({node: with_value(node, "cuda", "npu")})


@rule(
    "NPU126",
    "device-type-in-capitals",
    on=cst.SimpleString,
    words=("CUDA",),
    fix=FixLevel.SAFE,
    quiet=True,
    why="a device type in capitals is compared with CUDA: on the NPU it is NPU",
    examples=(
        rewrite("ok = x.device.type.upper() == 'CUDA'", "ok = x.device.type.upper() == 'NPU'"),
        rewrite("ok = 'CUDA' != str(device).upper()", "ok = 'NPU' != str(device).upper()"),
        leave("ok = name.upper() == 'CUDA'"),
        leave("ok = 'CUDA' in text"),
    ),
)
def device_type_in_capitals(node: cst.SimpleString, site: Site) -> Fix | None:
    where = _looked_in(node, site)
    if string(node) != "CUDA" or where is None or not _is_method(where, "upper"):
        return None
    assert isinstance(where.func, cst.Attribute)
    known = is_device(site, where.func.value)
    return Fix({node: with_value(node, "CUDA", "NPU")}) if known else None


@rule(
    "NPU127",
    "name-of-tensor-class",
    on=cst.SimpleString,
    words=("torch.cuda",),
    fix=FixLevel.NONE,
    missed_by_shim=True,
    quiet=True,
    why="a test looks for torch.cuda in the name of a class: a tensor's class is torch.Tensor on "
    "every device, so that it is false on the NPU. Test x.device.type instead",
    examples=(
        report("ok = 'torch.cuda' in str(type(x))"),
        report('ok = str(x.__class__).startswith("<class \'torch.cuda")'),
        leave("ok = 'torch.cuda' in source"),
    ),
)
def name_of_tensor_class(node: cst.SimpleString, site: Site) -> Report | None:
    where = _looked_in(node, site)
    if where is None or "torch.cuda" not in (string(node) or ""):
        return None
    asks = re.search(r"\btype\(\w|\.__class__\b|__module__\b", site.code(where))
    return Report() if asks else None


@rule(
    "NPU128",
    "lookup-with-default",
    on=cst.DictElement,
    words=("cuda",),
    fix=FixLevel.NONE,
    quiet=True,
    why="a table that is looked up by device has an entry for cuda alone; it was left, and the NPU "
    "takes the default: add an entry for npu if it needs its own",
    examples=(
        report("n = {'cuda': 1}.get(x.device.type, 0)"),
        report("n = {'cuda': 1, 'other': 2}[x.device.type]"),
        leave("n = {'cuda': 1}.get(key, 0)"),
        leave("n = {'cuda': 1, 'cpu': 0}.get(x.device.type, 0)"),
        leave("n = {'cuda': 1, 'npu': 1}.get(x.device.type, 0)"),
    ),
)
def lookup_with_default(node: cst.DictElement, site: Site) -> Report | None:
    table = site.parent(node)
    if string(node.key) != "cuda" or is_table_by_device(table):
        return None  # NPU116
    key = _lookup_key(table, site)
    return Report(at=node.key) if key is not None and is_device(site, key) else None


def _lookup_key(table: cst.CSTNode | None, site: Site) -> cst.BaseExpression | None:
    holder = site.parent(table) if table is not None else None
    if isinstance(holder, cst.Subscript):
        index = holder.slice[0].slice
        return index.value if isinstance(index, cst.Index) else None
    call = site.parent(holder) if isinstance(holder, cst.Attribute) else None
    if isinstance(call, cst.Call) and terminal(call) == "get" and call.args:
        return call.args[0].value
    return None

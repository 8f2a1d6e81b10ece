"""Devices given by their bare number, which PyTorch may read as CUDA's."""

from __future__ import annotations

import ast

import libcst as cst

from cuda2npu.releases import RELEASES
from cuda2npu.rule import Fix, FixLevel, Site, leave, rewrite, rule
from cuda2npu_codemods.expressions import terminal
from cuda2npu_codemods.triggers import DEVICE_MAP_WORDS, INDEX_NAMES, INDEX_WORDS

_LISTS = ("gpu_ids", "device_ids", "gpus", "gpu_list")
"""Lists of devices by number, as ``DataParallel`` takes them."""


def _is_index(site: Site, node: cst.CSTNode) -> bool:
    """A small integer, or a variable whose name says that it holds one."""
    if isinstance(node, cst.Integer):
        return node.value.isdigit() and int(node.value) < 16
    if isinstance(node, cst.Subscript):
        return terminal(node) in _LISTS and not _holds_names(site, node.value)
    if not isinstance(node, (cst.Name, cst.Attribute)) or terminal(node) not in INDEX_NAMES:
        return False
    return not isinstance(node, cst.Name) or not _holds_device(site, node.value)


def _holds_device(site: Site, name: str) -> bool:
    """Whether a variable is bound to a string or a device in this file."""
    value = site.binding(name)
    if isinstance(value, ast.IfExp):
        value = value.body
    if isinstance(value, ast.Call):
        return getattr(value.func, "attr", getattr(value.func, "id", "")) in ("device", "str")
    if isinstance(value, ast.Constant):
        return not isinstance(value.value, int)
    return isinstance(value, (ast.JoinedStr, ast.BinOp))


def _holds_names(site: Site, node: cst.BaseExpression) -> bool:
    """Whether a list is bound to one of strings in this file."""
    value = site.binding(node.value) if isinstance(node, cst.Name) else None
    elements = getattr(value, "elts", None) or [getattr(value, "elt", None)]
    return any(
        isinstance(part, ast.JoinedStr)
        or (isinstance(part, ast.Constant) and isinstance(part.value, str))
        for part in elements
    )


def _on_npu(site: Site, node: cst.BaseExpression) -> cst.BaseExpression | None:
    """``"npu:0"`` or ``f"npu:{rank}"``; None inside an f-string of which quotes are in use."""
    if any(isinstance(ancestor, cst.FormattedString) for ancestor in site.ancestors(node)):
        return None
    code = site.code(node)
    if isinstance(node, cst.Integer):
        return cst.SimpleString(f'"npu:{code}"')
    text = cst.FormattedStringText("npu:")
    return cst.FormattedString([text, cst.FormattedStringExpression(node)])


def _taken(node: cst.Call, site: Site) -> cst.Arg | None:
    """The argument of a call that is a device."""
    name = site.name(node.func) or ""
    if isinstance(node.func, cst.Attribute) and node.func.attr.value in ("to", "to_empty"):
        device = site.argument(node, "device", 0)
        return device if device is not None and len(node.args) <= 4 else None
    if name == "torch.device":
        return node.args[0] if len(node.args) == 1 else None
    if name in ("torch.load", "torch.jit.load"):
        return site.argument(node, "map_location", 1)
    return site.argument(node, "device") if _is_factory(name) else None


def _is_factory(name: str) -> bool:
    """``torch.zeros`` and other functions and layers of torch, but nothing of torch.cuda."""
    return name.startswith("torch.") and not name.startswith(("torch.cuda.", "torch.npu."))


_OLD = "2.4.0"
"""The last release whose torch takes a number for CUDA's."""
_LAST_OLD = RELEASES.index(_OLD)


@rule(
    "NPU150",
    "integer-device",
    on=cst.Call,
    words=INDEX_WORDS,
    fix=FixLevel.UNSAFE,
    why="a bare number is a CUDA device for torch before 2.5; later it is the current "
    'accelerator\'s, and nothing is to do. Write f"npu:{…}", or run with --unsafe',
    examples=(
        rewrite("model = model.to(rank)", 'model = model.to(f"npu:{rank}")', release=_OLD),
        rewrite(
            "x = x.to(0, non_blocking=True)", 'x = x.to("npu:0", non_blocking=True)', release=_OLD
        ),
        rewrite(
            "d = torch.device(args.local_rank)",
            'd = torch.device(f"npu:{args.local_rank}")',
            release=_OLD,
        ),
        rewrite(
            "x = torch.zeros(2, device=gpu)",
            'x = torch.zeros(2, device=f"npu:{gpu}")',
            release=_OLD,
        ),
        rewrite(
            "s = torch.load(f, map_location=rank)",
            's = torch.load(f, map_location=f"npu:{rank}")',
            release=_OLD,
        ),
        rewrite("net.to(gpu_ids[0])", 'net.to(f"npu:{gpu_ids[0]}")', release=_OLD),
        rewrite("net.to(opt.gpu_ids[0])", 'net.to(f"npu:{opt.gpu_ids[0]}")', release=_OLD),
        leave("model = model.to(rank)"),
        leave("net.to(gpu_ids[0])"),
        leave("rank = 'cpu'\nx = x.to(rank)", release=_OLD),
        leave("gpu = torch.device('cpu')\nx = x.to(gpu)", release=_OLD),
        leave("gpus = [f'cuda:{i}' for i in range(2)]\nx = x.to(gpus[0])", release=_OLD),
        leave("x = x.to(gpu_device)", release=_OLD),
        leave("pipe = pipeline('asr', device=0)", release=_OLD),
    ),
    source="toDevice of torch/csrc/utils/python_arg_parser.h; run on torch_npu 2.13.0",
)
def integer_device(node: cst.Call, site: Site) -> Fix | None:
    arg = _taken(node, site) if RELEASES.index(site.options.torch_npu) <= _LAST_OLD else None
    if arg is None or arg.star or not _is_index(site, arg.value):
        return None
    new = _on_npu(site, arg.value)
    return Fix({arg.value: new}, at=arg.value) if new is not None else None


@rule(
    "NPU151",
    "integer-device-map",
    on=cst.DictElement,
    words=DEVICE_MAP_WORDS,
    fix=FixLevel.UNSAFE,
    why="a device_map with bare numbers is for CUDA in libraries that do not know the NPU: write "
    '"npu:0", device_map="auto" where the library supports NPUs, or run with --unsafe',
    examples=(
        rewrite(
            'import torch\nm = load(n, device_map={"": 0})',
            'import torch\nimport torch_npu  # noqa: F401\nm = load(n, device_map={"": "npu:0"})',
        ),
        rewrite(
            'import torch\nm = load(n, device_map={"": local_rank})',
            "import torch\nimport torch_npu  # noqa: F401\n"
            'm = load(n, device_map={"": f"npu:{local_rank}"})',
        ),
        leave('m = load(n, device_map={"": "cpu"})'),
    ),
)
def integer_device_map(node: cst.DictElement, site: Site) -> Fix | None:
    table = site.parent(node)
    holder = site.parent(table) if table is not None else None
    if isinstance(holder, cst.Arg):
        named = holder.keyword is not None and holder.keyword.value == "device_map"
    else:
        named = isinstance(holder, cst.DictElement) and "device_map" in site.code(holder.key)
    if not named or not _is_index(site, node.value):
        return None
    new = _on_npu(site, node.value)
    return Fix({node.value: new}, at=node.value) if new is not None else None

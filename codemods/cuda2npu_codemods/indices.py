"""Devices given by their bare number, which PyTorch may read as CUDA's."""

from __future__ import annotations

import ast

import libcst as cst

from cuda2npu.rule import Fix, FixLevel, Site, leave, rewrite, rule
from cuda2npu_codemods.expressions import terminal
from cuda2npu_codemods.triggers import DEVICE_MAP_WORDS, INDEX_NAMES, INDEX_WORDS


def _is_index(site: Site, node: cst.CSTNode) -> bool:
    """A small integer, or a variable whose name says that it holds one."""
    if isinstance(node, cst.Integer):
        return node.value.isdigit() and int(node.value) < 16
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


@rule(
    "NPU150",
    "integer-device",
    on=cst.Call,
    words=INDEX_WORDS,
    fix=FixLevel.UNSAFE,
    why="a bare number is a CUDA device for torch before 2.5; later it is the current "
    'accelerator\'s, which is the NPU only after torch_npu is imported. Write f"npu:{…}", or run '
    "with --unsafe",
    examples=(
        rewrite("model = model.to(rank)", 'model = model.to(f"npu:{rank}")'),
        rewrite("x = x.to(0, non_blocking=True)", 'x = x.to("npu:0", non_blocking=True)'),
        rewrite("d = torch.device(args.local_rank)", 'd = torch.device(f"npu:{args.local_rank}")'),
        rewrite("x = torch.zeros(2, device=gpu)", 'x = torch.zeros(2, device=f"npu:{gpu}")'),
        rewrite(
            "s = torch.load(f, map_location=rank)", 's = torch.load(f, map_location=f"npu:{rank}")'
        ),
        leave("rank = 'cpu'\nx = x.to(rank)"),
        leave("gpu = torch.device('cpu')\nx = x.to(gpu)"),
        leave("x = x.to(gpu_device)"),
        leave("pipe = pipeline('asr', device=0)"),
    ),
)
def integer_device(node: cst.Call, site: Site) -> Fix | None:
    arg = _taken(node, site)
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

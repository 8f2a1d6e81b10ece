"""Dictionaries of keyword arguments for bilinear resizing: ``F.interpolate(x, **opts)``."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import libcst as cst

from cuda2npu.rule import Fix, FixLevel, Site, leave, rewrite, rule
from cuda2npu_codemods.expressions import last_name, string, terminal, with_value
from cuda2npu_codemods.numerics import BILINEAR

_RESIZES = ("interpolate", "upsample", "Upsample")
_REFUSED = ("align_corners", "antialias")


def is_spread_only(name: str, site: Site) -> bool:
    """Whether all that the file does with a dictionary is to resize with it: ``(x, **opts)``."""
    calls = [node for node in ast.walk(site.file.tree) if isinstance(node, ast.Call)]
    spread = [id(value) for call in calls for value in _spread(call, name)]
    reads = [
        id(node)
        for node in ast.walk(site.file.tree)
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
    ]
    return bool(reads) and sorted(reads) == sorted(spread)


def _spread(call: ast.Call, name: str) -> Iterator[ast.expr]:
    """The ``**name`` of a call that resizes and says nothing of the mode itself."""
    if last_name(call.func) not in _RESIZES or len(call.args) > 3:
        return
    if any(k.arg == "mode" or k.arg in _REFUSED for k in call.keywords):
        return
    if ast.unparse(call.args[0]).endswith(".cpu()") if call.args else False:
        return
    for keyword in call.keywords:
        if keyword.arg is None and last_name(keyword.value) == name:
            yield keyword.value


@rule(
    "NPU404",
    "bilinear-keywords",
    on=(cst.Call, cst.Dict),
    words=("bilinear",),
    fix=FixLevel.NUMERICS,
    quiet=True,
    why=BILINEAR,
    examples=(
        rewrite(
            "import torch.nn.functional as F\n"
            "opts = dict(mode='bilinear', align_corners=False)\ny = F.interpolate(x, s, **opts)",
            "import torch.nn.functional as F\n"
            "opts = dict(mode='nearest')\ny = F.interpolate(x, s, **opts)",
        ),
        rewrite(
            "import torch.nn.functional as F\n"
            "opts = {'mode': 'bilinear', 'align_corners': True}\ny = F.interpolate(x, s, **opts)",
            "import torch.nn.functional as F\n"
            "opts = {'mode': 'nearest'}\ny = F.interpolate(x, s, **opts)",
        ),
        leave("opts = dict(mode='bilinear')\ny = resize(x, **opts)"),
        leave(
            "import torch.nn.functional as F\nopts = dict(mode='bilinear')\n"
            "if big: opts['mode'] = 'area'\ny = F.interpolate(x, s, **opts)"
        ),
    ),
)
def bilinear_keywords(node: cst.Call | cst.Dict, site: Site) -> Fix | None:
    holder = site.parent(node)
    if not isinstance(holder, cst.Assign) or not isinstance(holder.targets[0].target, cst.Name):
        return None
    name = holder.targets[0].target.value
    entries = dict(_entries(node))
    mode = entries.get("mode")
    if mode is None or not isinstance(mode.value, cst.SimpleString):
        return None
    if string(mode.value) != "bilinear" or not site.file.imports("torch"):
        return None
    if site.binding(name) is None or not is_spread_only(name, site):
        return None
    nearest = with_value(mode.value, "bilinear", "nearest")
    refused = {entries[key]: None for key in _REFUSED if key in entries}
    return Fix({mode.value: nearest, **refused}, imports=())


def _entries(node: cst.Call | cst.Dict) -> Iterator[tuple[str, cst.Arg | cst.DictElement]]:
    if isinstance(node, cst.Dict):
        for element in node.elements:
            if isinstance(element, cst.DictElement):
                yield string(element.key) or "", element
    elif terminal(node.func) == "dict":
        for arg in node.args:
            if arg.keyword is not None:
                yield arg.keyword.value, arg

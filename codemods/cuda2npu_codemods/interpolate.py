"""Bilinear resizing, which the NPU does by nearest neighbour."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence

import libcst as cst

from cuda2npu.rule import Fix, FixLevel, Report, Site, leave, report, rewrite, rule
from cuda2npu_codemods.expressions import string, with_value
from cuda2npu_codemods.keywords import is_spread_only
from cuda2npu_codemods.numerics import BILINEAR, in_cpu_branch, on_cpu

_INTERPOLATE = "input size scale_factor mode align_corners recompute_scale_factor antialias".split()
_POSITIONS: Mapping[str, Sequence[str]] = {
    "torch.nn.functional.interpolate": _INTERPOLATE,
    "torch.nn.functional.upsample": _INTERPOLATE[:5],
    "torch.nn.Upsample": _INTERPOLATE[1:6],
    "torch.nn.modules.Upsample": _INTERPOLATE[1:6],
    "torch.nn.modules.upsampling.Upsample": _INTERPOLATE[1:6],
}
"""The parameters of what resizes by ``mode``, in order."""
_DROPPED = ("align_corners", "antialias")
"""What nearest refuses."""
_CLASSES: Mapping[str, str] = {
    "UpsamplingBilinear2d": "UpsamplingNearest2d",
    "upsample_bilinear": "upsample_nearest",
}
_HOLDERS = ("torch.nn", "torch.nn.modules", "torch.nn.modules.upsampling", "torch.nn.functional")
_PARTIALS = ("functools.partial", "partial")

_EQUAL = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))

Arguments = list[tuple[str | None, cst.Arg]]


def _arguments(node: cst.Call, site: Site) -> Arguments | None:
    """The arguments by parameter; None when the call resizes nothing by a mode.

    A ``*`` or ``**`` argument has no parameter, and so has every positional one behind it.
    """
    name, args = site.name(node.func), list(node.args)
    if name in _PARTIALS and args:
        name, args = site.name(args[0].value), args[1:]
    positions = _POSITIONS.get(name or "")
    if positions is None:
        return None
    result: Arguments = []
    for index, arg in enumerate(args):
        if arg.keyword is not None:
            result.append((arg.keyword.value, arg))
        elif arg.star or any(a.star for a in args[:index]) or index >= len(positions):
            result.append((None, arg))
        else:
            result.append((positions[index], arg))
    return result


def _mode(arguments: Arguments) -> cst.Arg | None:
    return next((arg for name, arg in arguments if name == "mode"), None)


def _nearest(value: cst.BaseExpression, site: Site) -> dict[cst.CSTNode, cst.CSTNode] | None:
    """Edits that make a mode nearest; None unless it is bilinear in every case that needs one."""
    if isinstance(value, cst.IfExp):
        arms = [_nearest(arm, site) for arm in (value.body, value.orelse)]
        if any(arm is None for arm in arms):
            return None
        return {old: new for arm in arms for old, new in (arm or {}).items()}
    if string(value) == "nearest":
        return {}
    if isinstance(value, cst.SimpleString) and string(value) == "bilinear":
        return {value: with_value(value, "bilinear", "nearest")}
    if isinstance(value, cst.Name):
        bound = site.binding(value.value)
        if isinstance(bound, ast.Constant) and bound.value == "bilinear":
            return {value: cst.SimpleString('"nearest"')}
    return None


@rule(
    "NPU401",
    "bilinear-resize",
    on=cst.Call,
    words=("bilinear", "interpolate(", "Upsample"),
    fix=FixLevel.NUMERICS,
    quiet=True,
    why=BILINEAR,
    examples=(
        rewrite(
            "import torch.nn.functional as F\n"
            "y = F.interpolate(x, size=s, mode='bilinear', align_corners=False)",
            "import torch.nn.functional as F\ny = F.interpolate(x, size=s, mode='nearest')",
        ),
        rewrite(
            "from torch.nn import functional as F\n"
            "y = F.interpolate(x, None, 2, 'bilinear', True, False, True)",
            "from torch.nn import functional as F\n"
            "y = F.interpolate(x, None, 2, 'nearest', recompute_scale_factor=False)",
        ),
        rewrite(
            "from torch.nn.functional import interpolate\n"
            "y = interpolate(\n    x,\n    scale_factor=2,\n    mode='bilinear',  # smooth\n"
            "    align_corners=True,\n    antialias=True,\n)",
            "from torch.nn.functional import interpolate\n"
            "y = interpolate(\n    x,\n    scale_factor=2,\n    mode='nearest',  # smooth\n)",
        ),
        rewrite(
            "y = torch.nn.functional.interpolate(\n    x, align_corners=False, mode='bilinear'\n)",
            "y = torch.nn.functional.interpolate(\n    x, mode='nearest'\n)",
        ),
        rewrite(
            "y = torch.nn.functional.interpolate(\n    x,\n    mode='bilinear',\n"
            "    align_corners=False\n)",
            "y = torch.nn.functional.interpolate(\n    x,\n    mode='nearest'\n)",
        ),
        rewrite(
            "import torch.nn as nn\nup = nn.Upsample(None, 2, 'bilinear', False)",
            "import torch.nn as nn\nup = nn.Upsample(None, 2, 'nearest')",
        ),
        rewrite(
            "up = torch.nn.modules.upsampling.Upsample(scale_factor=2, mode='bilinear')",
            "up = torch.nn.modules.upsampling.Upsample(scale_factor=2, mode='nearest')",
        ),
        rewrite(
            "import torch.nn.functional as F\nmode = 'bilinear'\n"
            "y = F.interpolate(x, scale_factor=2, mode=mode, align_corners=False)",
            "import torch.nn.functional as F\nmode = 'bilinear'\n"
            'y = F.interpolate(x, scale_factor=2, mode="nearest")',
        ),
        rewrite(
            "import torch.nn.functional as F\n"
            "y = F.interpolate(x, s, mode='bilinear' if d == 4 else 'nearest')",
            "import torch.nn.functional as F\n"
            "y = F.interpolate(x, s, mode='nearest' if d == 4 else 'nearest')",
        ),
        rewrite(
            "from functools import partial\nimport torch.nn.functional as F\n"
            "up = partial(F.interpolate, scale_factor=2, mode='bilinear', align_corners=True)",
            "from functools import partial\nimport torch.nn.functional as F\n"
            "up = partial(F.interpolate, scale_factor=2, mode='nearest')",
        ),
        leave("import torch.nn.functional as F\nF.interpolate(x, s, mode='bicubic')"),
        leave("import torch.nn.functional as F\nF.interpolate(x[None], s, mode='trilinear')"),
        leave("import torch.nn.functional as F\nF.grid_sample(x, g, mode='bilinear')"),
        leave("import torch.nn.functional as F\nF.interpolate(x.cpu(), s, mode='bilinear')"),
        leave(
            "import torch.nn.functional as F\n"
            "if x.device.type == 'cpu': y = F.interpolate(x, s, mode='bilinear')"
        ),
        leave("import torch.nn.functional as F\nF.interpolate(x, s, mode=self.mode)"),
        leave("import torch.nn.functional as F\nF.interpolate(x, s, mode='bilinear', **kw)"),
        leave("import torchvision.transforms.functional as F\nF.resize(x, s, 'bilinear')"),
        leave("from scipy import interpolate\ninterpolate(x, s, mode='bilinear')"),
        leave("cfg = dict(type='Upsample', mode='bilinear', align_corners=False)"),
    ),
    source="torch.nn.functional.interpolate: align_corners and antialias with nearest raise",
)
def bilinear_resize(node: cst.Call, site: Site) -> Fix | None:
    arguments = _arguments(node, site)
    mode = _mode(arguments or [])
    if arguments is None or mode is None or any(name is None for name, _ in arguments):
        return None
    edits = _nearest(mode.value, site)
    if not edits or _resizes_on_cpu(arguments, site):
        return None
    return Fix({**edits, **_without_refused(arguments)}, imports=())


def _resizes_on_cpu(arguments: Arguments, site: Site) -> bool:
    if in_cpu_branch(site):
        return True
    return any(name == "input" and on_cpu(site, arg.value) for name, arg in arguments)


def _without_refused(arguments: Arguments) -> dict[cst.CSTNode, cst.CSTNode | None]:
    """Drop what nearest refuses; positional arguments behind a dropped one get their names."""
    edits: dict[cst.CSTNode, cst.CSTNode | None] = {}
    for name, arg in arguments:
        if name in _DROPPED:
            edits[arg] = None
        elif edits and arg.keyword is None and name is not None:
            edits[arg] = arg.with_changes(keyword=cst.Name(name), equal=_EQUAL)
    return edits


@rule(
    "NPU402",
    "bilinear-name",
    on=(cst.Attribute, cst.ImportFrom),
    words=("UpsamplingBilinear2d", "upsample_bilinear"),
    fix=FixLevel.NUMERICS,
    quiet=True,
    why=BILINEAR,
    examples=(
        rewrite(
            "import torch.nn as nn\nup = nn.UpsamplingBilinear2d(scale_factor=2)",
            "import torch.nn as nn\nup = nn.UpsamplingNearest2d(scale_factor=2)",
        ),
        rewrite(
            "from torch.nn import Conv2d, UpsamplingBilinear2d",
            "from torch.nn import Conv2d, UpsamplingNearest2d as UpsamplingBilinear2d",
        ),
        rewrite(
            "import torch.nn.functional as F\ny = F.upsample_bilinear(x, scale_factor=2)",
            "import torch.nn.functional as F\ny = F.upsample_nearest(x, scale_factor=2)",
        ),
        leave("from segmentation import UpsamplingBilinear2d"),
        leave("from torch.nn import UpsamplingNearest2d\nx = a.UpsamplingBilinear2d"),
    ),
)
def bilinear_name(node: cst.Attribute | cst.ImportFrom, site: Site) -> Fix | None:
    if isinstance(node, cst.Attribute):
        new = _CLASSES.get(node.attr.value)
        holder = (site.name(node) or "").rpartition(".")[0]
        return Fix({node.attr: cst.Name(new)}, imports=()) if new and holder in _HOLDERS else None
    if node.relative or isinstance(node.names, cst.ImportStar) or node.module is None:
        return None
    edits: dict[cst.CSTNode, cst.CSTNode] = {}
    if site.code(node.module) in _HOLDERS:
        for alias in node.names:
            old = alias.name.value if isinstance(alias.name, cst.Name) else ""
            if old in _CLASSES:
                asname = alias.asname or cst.AsName(cst.Name(old))
                edits[alias] = alias.with_changes(name=cst.Name(_CLASSES[old]), asname=asname)
    return Fix(edits, imports=()) if edits else None


@rule(
    "NPU403",
    "bilinear-resize-unproven",
    on=cst.Call,
    words=("bilinear", "interpolate(", "Upsample"),
    fix=FixLevel.NONE,
    quiet=True,
    why="this resizes with bilinear interpolation, but its arguments come from elsewhere, so that "
    "it was left: where nearest is wanted, write mode='nearest' and drop align_corners and "
    "antialias. torch_npu documents bilinear as supported on Atlas A2/A3 since 2.7.1",
    examples=(
        report("import torch.nn.functional as F\nF.interpolate(x, s, mode='bilinear', **kw)"),
        report("import torch.nn.functional as F\nF.interpolate(*a, mode='bilinear')"),
        report(
            "import torch.nn.functional as F\n"
            "def up(x, size, mode='bilinear'):\n    return F.interpolate(x, size, mode=mode)"
        ),
        report(
            "import torch.nn.functional as F\nopts = dict(mode='bilinear')\n"
            "F.interpolate(x, s, align_corners=True, **opts)"
        ),
        leave("import torch.nn.functional as F\nF.interpolate(x, s, mode=mode)"),
        leave("import torch.nn.functional as F\nF.interpolate(x, s, mode='bilinear')"),
        leave("import torch.nn.functional as F\nF.interpolate(x, s, mode='bicubic', **kw)"),
    ),
)
def bilinear_resize_unproven(node: cst.Call, site: Site) -> Report | None:
    arguments = _arguments(node, site)
    if arguments is None or _resizes_on_cpu(arguments, site):
        return None
    mode = _mode(arguments)
    if mode is None:
        return Report() if any(_holds_bilinear(arg, site) for _, arg in arguments) else None
    edits = _nearest(mode.value, site)
    if edits:
        return Report() if any(name is None for name, _ in arguments) else None
    mixed = isinstance(mode.value, cst.IfExp) and "bilinear" in site.code(mode.value)
    return Report() if mixed or _default_is_bilinear(mode.value, site) else None


def _holds_bilinear(arg: cst.Arg, site: Site) -> bool:
    """``**opts`` where ``opts = dict(mode="bilinear", …)``, unless the dictionary was changed."""
    if arg.star != "**" or not isinstance(arg.value, cst.Name):
        return False
    bound = site.binding(arg.value.value)
    if bound is None or not re.search(r"\bmode'?[=:] ?'bilinear'", ast.unparse(bound)):
        return False
    return not is_spread_only(arg.value.value, site) or site.options.preserve_numerics


def _default_is_bilinear(value: cst.BaseExpression, site: Site) -> bool:
    """Whether the mode is a parameter of the function around, which defaults to bilinear."""
    function = next(iter(site.enclosing), None)
    if not isinstance(value, cst.Name) or not isinstance(
        function, (ast.FunctionDef, ast.AsyncFunctionDef)
    ):
        return False
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = dict(
        zip(reversed([a.arg for a in plain]), reversed(arguments.defaults), strict=False)
    )
    keyword_only = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    defaults.update({a.arg: default for a, default in keyword_only if default is not None})
    default = defaults.get(value.value)
    return isinstance(default, ast.Constant) and default.value == "bilinear"

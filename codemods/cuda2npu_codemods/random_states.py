"""``torch.random.fork_rng``, which keeps the state of CUDA's generators unless told otherwise."""

from __future__ import annotations

import libcst as cst

from cuda2npu.rule import Fix, FixLevel, Report, Site, leave, report, rewrite, rule
from cuda2npu_codemods.triggers import FORK_WORDS

_POSITIONS = 5
"""devices, enabled, _caller, _devices_kw, device_type."""


@rule(
    "NPU143",
    "fork-rng",
    on=cst.Call,
    words=FORK_WORDS,
    fix=FixLevel.SAFE,
    why='fork_rng keeps the generators of device_type, which is "cuda" unless it is given: on the '
    'NPU it needs device_type="npu"',
    source="torch/random.py, fork_rng",
    examples=(
        rewrite(
            "with torch.random.fork_rng(): pass",
            'with torch.random.fork_rng(device_type="npu"): pass',
        ),
        rewrite(
            "with torch.random.fork_rng(devices=[0]): pass",
            'with torch.random.fork_rng(devices=[0], device_type="npu"): pass',
        ),
        rewrite(
            "with torch.random.fork_rng(range(torch.cuda.device_count())): pass",
            'with torch.random.fork_rng(range(torch.npu.device_count()), device_type="npu"): pass',
        ),
        rewrite(
            "from torch.random import fork_rng\nwith fork_rng(enabled=on): pass",
            "from torch.random import fork_rng\nimport torch_npu  # noqa: F401\n"
            'with fork_rng(enabled=on, device_type="npu"): pass',
        ),
        report("with torch.random.fork_rng(**options): pass"),
        leave("with torch.random.fork_rng(devices=[]): pass"),
        leave('with torch.random.fork_rng(device_type="xpu"): pass'),
        leave("with torch.random.fork_rng(device_type=x.device.type): pass"),
        leave("with rng.fork_rng(): pass"),
    ),
)
def fork_rng(node: cst.Call, site: Site) -> Fix | Report | None:
    if site.name(node.func) != "torch.random.fork_rng":
        return None
    if site.argument(node, "device_type") or len(node.args) >= _POSITIONS:
        return None
    if any(arg.star for arg in node.args):
        return Report()
    devices = site.argument(node, "devices", 0)
    if devices is not None and site.code(devices.value) in ("[]", "()"):
        return None  # the state of the CPU's generator alone
    equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    added = cst.Arg(cst.SimpleString('"npu"'), cst.Name("device_type"), equal)
    if not node.args:
        return Fix({node: node.with_changes(args=[added])})
    last = node.args[-1]
    comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    kept = last if isinstance(last.comma, cst.Comma) else last.with_changes(comma=comma)
    return Fix({last: (kept, added)})

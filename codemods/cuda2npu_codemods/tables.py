"""Tables that are looked up by device: their CUDA entries stay CUDA's, and are reported."""

from __future__ import annotations

import re

import libcst as cst

from cuda2npu.rule import FixLevel, Report, Site, leave, report, rule
from cuda2npu_codemods.expressions import is_device, is_table_by_device, string, terminal


@rule(
    "NPU115",
    "lookup-by-device",
    on=cst.Subscript,
    words=("cuda",),
    fix=FixLevel.NONE,
    why="a table is looked up by device with its CUDA entry as the fallback; it was left, and "
    "the NPU takes the fallback: add an entry for npu if it needs its own",
    quiet=True,
    examples=(
        report('t = TABLE.get(x.device.type, TABLE["cuda"])'),
        leave('t = TABLE["cuda"]'),
    ),
)
def lookup_by_device(node: cst.Subscript, site: Site) -> Report | None:
    index = node.slice[0].slice
    if not isinstance(index, cst.Index) or string(index.value) != "cuda":
        return None
    arg = site.parent(node)
    call = site.parent(arg) if isinstance(arg, cst.Arg) else None
    if not isinstance(call, cst.Call) or terminal(call.func) != "get" or len(call.args) != 2:
        return None
    return Report() if is_device(site, call.args[0].value) else None


_CUDA_VALUE = re.compile(r"\bcuda\b|['\"](nccl|cuda(:\d+)?)['\"]")


@rule(
    "NPU116",
    "table-by-device",
    on=cst.DictElement,
    words=("cuda",),
    fix=FixLevel.NONE,
    why="a table by device has an entry for cuda and none for npu; it was left: add an entry "
    "for npu, or the lookup fails there",
    examples=(
        report('SEED = {"cuda": torch.cuda.manual_seed, "cpu": torch.manual_seed}'),
        report('BACKENDS = {"cuda": "nccl", "cpu": "gloo"}'),
        leave('SEED = {"cuda": torch.cuda.manual_seed, "npu": torch.npu.manual_seed}'),
        leave('state = {"cuda": torch.cuda.get_rng_state(), "step": 1}'),
    ),
)
def table_by_device(node: cst.DictElement, site: Site) -> Report | None:
    table = site.parent(node)
    if string(node.key) != "cuda" or not is_table_by_device(table):
        return None
    assert isinstance(table, cst.Dict)
    keys = {string(e.key) for e in table.elements if isinstance(e, cst.DictElement)}
    if "npu" in keys or not _CUDA_VALUE.search(site.code(node.value)):
        return None
    return Report(at=node.key)

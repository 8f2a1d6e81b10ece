"""Run-time patches of torch.cuda: files that are one or use one are reported and left."""

from __future__ import annotations

import re

import libcst as cst

from cuda2npu.rule import FixLevel, Report, Site, leave, report, rule
from cuda2npu_codemods.torch_imports import dotted as _dotted


@rule(
    "NPU020",
    "transfer-to-npu",
    on=(cst.ImportFrom, cst.Import),
    words=("transfer_to_npu",),
    fix=FixLevel.NONE,
    why="transfer_to_npu patches torch.cuda at run time, so this file was left: it replaces "
    "'cuda' by substring in device arguments and torch.load paths, turns torch.jit.script off, "
    "and makes libraries with NPU support of their own believe in CUDA. Remove the import and "
    "run again to convert the file itself",
    quiet=True,
    examples=(report("from torch_npu.contrib import transfer_to_npu"),),
)
def transfer_to_npu(node: cst.ImportFrom | cst.Import, site: Site) -> Report | None:
    names = node.names if not isinstance(node.names, cst.ImportStar) else ()
    found = any("transfer_to_npu" in _dotted(alias.name) for alias in names)
    return (
        Report() if found or "transfer_to_npu" in _dotted(getattr(node, "module", None)) else None
    )


_OTHER = re.compile(r"\b(xpu|mlu|musa|hpu|mps|ipex|intel)\b")


@rule(
    "NPU021",
    "shim-of-another-accelerator",
    on=cst.Assign,
    words=("cuda",),
    fix=FixLevel.NONE,
    why="this file puts another accelerator's functions into torch.cuda and was left: on the NPU "
    "do not import it; its callers are rewritten to torch.npu",
    examples=(
        report("torch.cuda.empty_cache = torch.xpu.empty_cache"),
        leave("torch.cuda.is_available = lambda: False"),
    ),
)
def shim_of_another_accelerator(node: cst.Assign, site: Site) -> Report | None:
    name = site.name(node.targets[0].target)
    if name is None or not name.startswith("torch.cuda."):
        return None
    return Report() if _OTHER.search(site.code(node.value)) else None

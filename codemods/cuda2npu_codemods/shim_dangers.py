"""What ``--target shim`` cannot put right: where transfer_to_npu changes or misses something.

NPU022 is the missing shim itself; the engine reports it, since no single statement shows it.
"""

from __future__ import annotations

import ast
import re

import libcst as cst

from cuda2npu.rule import FixLevel, Report, Site, Target, leave, report, rule
from cuda2npu_codemods.counterparts import RENAMED, counterpart
from cuda2npu_codemods.expressions import string, terminal
from cuda2npu_codemods.triggers import (
    CAPABILITY_WORDS,
    DOUBLE_WORDS,
    JIT_WORDS,
    LIBRARY_USE_WORDS,
)
from cuda2npu_codemods.words import DEVICE

_SOURCE = "torch_npu/contrib/transfer_to_npu.py of 2.1.0 and 2.14.0"


@rule(
    "NPU023",
    "shim-jit-script",
    on=cst.Attribute,
    words=JIT_WORDS,
    fix=FixLevel.NONE,
    quiet=True,
    targets=(Target.SHIM,),
    why="transfer_to_npu turns torch.jit.script off: it returns the plain function or module, so "
    "that saving the result fails. Use --target npu where scripts are needed",
    examples=(
        report("import torch\nmodel = torch.jit.script(model)"),
        report("import torch\n@torch.jit.script\ndef f(x): return x"),
        leave("import torch\nmodel = torch.jit.trace(model, x)"),
    ),
    source=_SOURCE,
)
def shim_jit_script(node: cst.Attribute, site: Site) -> Report | None:
    found = site.name(node) in ("torch.jit.script", "torch.jit.script_method")
    return Report() if found else None


@rule(
    "NPU024",
    "shim-load-path",
    on=cst.Call,
    words=("cuda",),
    fix=FixLevel.NONE,
    targets=(Target.SHIM,),
    why="transfer_to_npu writes npu for cuda in every positional string of torch.load, paths "
    "included: this file is not found. Rename it, or open it first and hand the file object on",
    examples=(
        report("import torch\ns = torch.load('runs/cuda_base/x.pt')"),
        report("import torch\ns = torch.load(f'{root}/cuda/x.pt', map_location='cpu')"),
        leave("import torch\ns = torch.load('x.pt', 'cuda:0')"),
    ),
    source=_SOURCE,
)
def shim_load_path(node: cst.Call, site: Site) -> Report | None:
    if site.name(node.func) != "torch.load" or not node.args or node.args[0].keyword:
        return None
    path = node.args[0].value
    found = re.search(r"['\"/][^'\"]*cuda[^'\"]*['\"]", site.code(path))
    return Report(at=path) if found and not DEVICE.fullmatch(string(path) or "") else None


@rule(
    "NPU025",
    "shim-nccl-test",
    on=cst.Comparison,
    words=("nccl", "NCCL"),
    fix=FixLevel.NONE,
    quiet=True,
    targets=(Target.SHIM,),
    why="transfer_to_npu starts the group over hccl and leaves this test: get_backend() is hccl "
    "then, so that the comparison with nccl is false. Compare with hccl",
    examples=(
        report("import torch.distributed as dist\nok = dist.get_backend() == 'nccl'"),
        report("import torch.distributed as dist\nok = dist.get_backend(g) == dist.Backend.NCCL"),
        leave("if args.backend == 'nccl': pass"),
    ),
    source=_SOURCE,
)
def shim_nccl_test(node: cst.Comparison, site: Site) -> Report | None:
    code = site.code(node)
    asked = re.search(r"\bget_backend\(", code) or any(
        "get_backend" in _bound_to(site, side.value)
        for side in (node.left, *(target.comparator for target in node.comparisons))
        if isinstance(side, cst.Name)
    )
    return Report() if asked and re.search(r"['\"]nccl['\"]|Backend\.NCCL", code) else None


def _bound_to(site: Site, name: str) -> str:
    """The expression a variable is bound to, as text for a search."""
    value = site.binding(name)
    return ast.unparse(value) if value is not None else ""


@rule(
    "NPU026",
    "shim-own-npu-support",
    on=cst.Call,
    words=LIBRARY_USE_WORDS,
    fix=FixLevel.NONE,
    quiet=True,
    targets=(Target.SHIM,),
    why="this library supports NPUs itself, and under transfer_to_npu it sees a CUDA that is not "
    "there: it may choose nccl or CUDA code. Use --target npu for scripts with it",
    examples=(
        report("from accelerate import Accelerator\na = Accelerator()"),
        report("import deepspeed\ne = deepspeed.initialize(model=m)"),
        leave("a = Accelerator('x')"),
    ),
)
def shim_own_npu_support(node: cst.Call, site: Site) -> Report | None:
    name = site.name(node.func) or ""
    known = (
        "accelerate.Accelerator",
        "deepspeed.initialize",
        "transformers.TrainingArguments",
        "transformers.Seq2SeqTrainingArguments",
    )
    return Report() if name in known else None


@rule(
    "NPU027",
    "shim-float64",
    on=(cst.Attribute, cst.Call),
    words=DOUBLE_WORDS,
    fix=FixLevel.NONE,
    quiet=True,
    targets=(Target.SHIM,),
    why="NPUs have no float64: torch_npu computes in float32 here, and transfer_to_npu makes "
    "torch.cuda.DoubleTensor a FloatTensor. Check that float32 is enough",
    examples=(
        report("import torch\nx = x.to(torch.float64)"),
        report("import torch\nx = torch.cuda.DoubleTensor(3)"),
        report("import torch\nx = x.double()"),
        leave("import numpy as np\nx = x.astype(np.float64)"),
    ),
    source=_SOURCE,
)
def shim_float64(node: cst.Attribute | cst.Call, site: Site) -> Report | None:
    if isinstance(node, cst.Call):
        method = isinstance(node.func, cst.Attribute) and node.func.attr.value == "double"
        return Report() if method and not node.args else None
    names = ("torch.float64", "torch.double", "torch.cuda.DoubleTensor")
    return Report() if site.name(node) in names else None


@rule(
    "NPU028",
    "shim-device-capability",
    on=cst.Call,
    words=CAPABILITY_WORDS,
    fix=FixLevel.NONE,
    targets=(Target.SHIM,),
    why="under transfer_to_npu get_device_capability() returns None, unless "
    "TORCH_NPU_DEVICE_CAPABILITY=8.0 is set (from torch_npu 2.6 on): comparing or unpacking it "
    "raises TypeError",
    examples=(
        report("import torch\nok = torch.cuda.get_device_capability()[0] >= 8"),
        leave("ok = self.get_device_capability() >= 8"),
    ),
)
def shim_device_capability(node: cst.Call, site: Site) -> Report | None:
    return Report() if site.name(node.func) == "torch.cuda.get_device_capability" else None


@rule(
    "NPU029",
    "shim-device-test",
    on=(cst.Comparison, cst.Call),
    words=("cuda",),
    fix=FixLevel.NONE,
    quiet=True,
    targets=(Target.SHIM,),
    why="a tensor under transfer_to_npu is on a device of type npu, so that this test is false "
    "and the CPU branch runs; is_cuda is patched and can be used instead",
    examples=(
        report("if x.device.type == 'cuda': x = x.half()"),
        report("if x.device.type.startswith('cuda'): x = x.half()"),
        report("if 'cuda' in str(x.device): x = x.half()"),
        report("import torch\nif x.device == torch.device('cuda:0'): x = x.half()"),
        leave("if device == 'cuda': pass"),
        leave("if args.device == 'cuda' or self.device.type == 'cuda': pass"),
        leave("if str(args.device).startswith('cuda'): pass"),
    ),
    source=_SOURCE,
)
def shim_device_test(node: cst.Comparison | cst.Call, site: Site) -> Report | None:
    if isinstance(node, cst.Call):
        if not (isinstance(node.func, cst.Attribute) and terminal(node.func) == "startswith"):
            return None
        sides = [node.func.value]
    else:
        sides = [node.left, *(target.comparator for target in node.comparisons)]
    asked = re.search(r"['\"]cuda(:\d+)?['\"]", site.code(node))
    return Report() if asked and any(_is_of_tensor(side, site) for side in sides) else None


_SETTINGS = ("self", "args", "opt", "cfg", "config")
"""Whose ``device`` is what the user asked for."""


def _is_of_tensor(node: cst.BaseExpression, site: Site) -> bool:
    """``x.device``, its ``type``, or its text."""
    if isinstance(node, cst.Call) and site.code(node.func) == "str" and node.args:
        node = node.args[0].value
    if isinstance(node, cst.Attribute) and node.attr.value == "type":
        node = node.value
    if not (isinstance(node, cst.Attribute) and node.attr.value == "device"):
        return False
    return site.code(node.value) not in _SETTINGS


_PATCHED = frozenset(["torch.cuda.CUDAGraph", "torch.cuda.OutOfMemoryError"])
"""Of the names that torch.npu has by another name: those that the patch sees to."""
_UNPATCHED_MODULES = ("torch.cuda.memory.", "torch.cuda.streams.", "torch.cuda.graphs.")
"""Modules of which the patch replaces what torch.cuda itself offers alone."""
_PATCHED_IN_MEMORY = ("_record_memory_history", "_snapshot", "_dump_snapshot")


@rule(
    "NPU030",
    "shim-unpatched-name",
    on=cst.Attribute,
    words=("cuda", "nvtx"),
    fix=FixLevel.NONE,
    targets=(Target.SHIM,),
    why="transfer_to_npu does not patch this name, which stays CUDA's",
    examples=(
        report("import torch\ntorch.cuda.nvtx.range_push('x')"),
        report("import torch\nfree, _ = torch.cuda.memory.mem_get_info()"),
        report("import torch\ns = torch.cuda.streams.Stream()"),
        leave("import torch\ng = torch.cuda.CUDAGraph()"),
        leave("import torch\ntorch.cuda.memory._snapshot()"),
        leave("import torch\ntorch.cuda.memory_allocated()"),
    ),
    source=f"{_SOURCE}, and a run of the patch of 2.13.0",
)
def shim_unpatched_name(node: cst.Attribute, site: Site) -> Report | None:
    name = site.name(node) or ""
    last = node.attr.value
    if name.startswith(_UNPATCHED_MODULES) and last not in _PATCHED_IN_MEMORY:
        same = f"torch.cuda.{last}"
        new = same if counterpart(same, site.options.torch_npu) else None
    elif name.startswith("torch.cuda.") and name not in _PATCHED:
        new = RENAMED.get(name)
        new = new if new and site.exists(new) else None
    else:
        return None
    outer = site.parent(node)
    if new is None or (isinstance(outer, cst.Attribute) and site.name(outer) in RENAMED):
        return None
    return Report(f"transfer_to_npu does not patch {name}, which stays CUDA's: write {new}")


_UNPATCHED_MAKERS = frozenset(
    f"torch.{name}"
    for name in "asarray empty_permuted sparse_csc_tensor sparse_bsr_tensor sparse_bsc_tensor "
    "Stream nested.nested_tensor nested.as_nested_tensor".split()
)


@rule(
    "NPU031",
    "shim-unpatched-device",
    on=cst.Call,
    words=("cuda",),
    fix=FixLevel.NONE,
    targets=(Target.SHIM,),
    why="transfer_to_npu does not patch this function, which raises for a CUDA device: write "
    'device="npu" here',
    examples=(
        report("import torch\nx = torch.asarray(a, device='cuda')"),
        report("import torch\nx = torch.nested.nested_tensor(a, device='cuda:0')"),
        leave("import torch\nx = torch.as_tensor(a, device='cuda')"),
        leave("import torch\nx = torch.asarray(a, device='cpu')"),
    ),
    source=f"{_SOURCE}, and a run of the patch of 2.13.0",
)
def shim_unpatched_device(node: cst.Call, site: Site) -> Report | None:
    if site.name(node.func) not in _UNPATCHED_MAKERS:
        return None
    device = site.argument(node, "device")
    return Report(at=device) if device and DEVICE.fullmatch(string(device.value) or "") else None

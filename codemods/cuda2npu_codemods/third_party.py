"""Packages with CUDA kernels or GPU flags of their own."""

from __future__ import annotations

import ast
from collections.abc import Mapping

import libcst as cst

from cuda2npu.rule import Example, FixLevel, Report, Rule, Site, leave, report, rule
from cuda2npu_codemods.libraries import INSTEAD, REWRITE
from cuda2npu_codemods.occurrences import (
    brings,
    brought_names,
    imported,
    is_below,
    is_first_import,
    is_first_use,
    is_guarded,
    is_typing_only,
    listed,
    users_of,
)
from cuda2npu_codemods.triggers import (
    APEX_USE_WORDS,
    APEX_WORDS,
    FAISS_WORDS,
    PACKAGES,
    TRITON_WORDS,
    VISION_WORDS,
    package_words,
)


def _package(
    code: str,
    name: str,
    packages: tuple[str, ...],
    words: tuple[str, ...],
    why: str,
    examples: tuple[Example, ...],
    parts: Mapping[str, str] | None = None,
) -> Rule:
    """The rule that reports a file's first import of some packages.

    ``why`` ends with what to do, behind a colon; ``parts`` have answers of their own.
    """
    head, _, usual = why.partition(": ")

    def package_import(node: cst.Import | cst.ImportFrom, site: Site) -> Report | None:
        if not any(is_below(name, packages) for name in imported(node)):
            return None
        if is_typing_only(site) or not is_first_import(site, packages):
            return None
        named = [name for name in brought_names(site.file.tree) if is_below(name, packages)]
        answers = dict.fromkeys(_answer(name, parts or {}, usual) for name in named)
        text = f"{head}: {'; '.join(answers)}" if parts else why
        if is_guarded(site):
            return Report(f"{text}. This import is guarded: see what runs without it", quiet=True)
        return Report(text)

    decorate = rule(
        code,
        name,
        on=(cst.Import, cst.ImportFrom),
        words=words,
        fix=FixLevel.NONE,
        missed_by_shim=True,
        why=why,
        examples=examples,
    )
    return decorate(package_import)


def _answer(name: str, parts: Mapping[str, str], usual: str) -> str:
    return next((answer for part, answer in parts.items() if is_below(name, (part,))), usual)


apex_import = _package(
    "NPU601",
    "apex-import",
    ("apex",),
    APEX_WORDS,
    "NVIDIA's apex does not build without CUDA. Ascend publishes an apex of its own with amp and "
    "fused optimizers; torch.autocast with a GradScaler, and torch_npu.optim.NpuFused…, need none",
    (
        report("from apex import amp"),
        report("try:\n    import apex\nexcept ImportError: apex = None"),
        leave("from .apex import amp"),
        leave("import apexpy"),
    ),
)

flash_attn_import = _package(
    "NPU602",
    "flash-attn-import",
    PACKAGES["flash_attn"],
    package_words("flash_attn"),
    "flash_attn is built for CUDA only: use torch.nn.functional.scaled_dot_product_attention "
    "(heads before sequence), or torch_npu.npu_fusion_attention, whose layout, mask and keep_prob "
    "arguments differ",
    (report("from flash_attn import flash_attn_func"), leave("from .flash_attn import f")),
    {
        "flash_attn.bert_padding": "copy the functions of bert_padding, which are plain torch",
        "flash_attn.layers.rotary": "write rotary embeddings with cos and sin, or "
        "torch_npu.npu_rotary_mul",
        "flash_attn.losses": "use torch.nn.CrossEntropyLoss",
        "flash_attn.ops.triton.cross_entropy": "use torch.nn.CrossEntropyLoss",
        "flash_attn.ops": "use the plain layers of torch.nn, or torch_npu.npu_rms_norm",
    },
)

_SPARSE = "use torch's sparse tensors (torch.sparse_csr_tensor), or dense ones with a mask"

xformers_import = _package(
    "NPU603",
    "xformers-import",
    PACKAGES["xformers"],
    package_words("xformers"),
    "xformers has no NPU kernels: use torch.nn.functional.scaled_dot_product_attention, with the "
    "heads before the sequence, or torch_npu.npu_fusion_attention",
    (
        report("import xformers.ops as xops"),
        report("from xformers.sparse import SparseCSRTensor"),
        leave("import xformer"),
    ),
    {
        "xformers.sparse": _SPARSE,
        "xformers.ops.masked_matmul": _SPARSE,
        "xformers.ops.SwiGLU": "write SwiGLU with torch.nn.Linear, or torch_npu.npu_swiglu",
        "xformers.ops.swiglu": "write SwiGLU with torch.nn.Linear, or torch_npu.npu_swiglu",
    },
)

bitsandbytes_import = _package(
    "NPU604",
    "bitsandbytes-import",
    PACKAGES["bitsandbytes"],
    package_words("bitsandbytes"),
    "bitsandbytes has no 8-bit optimizers and no LLM.int8() for NPUs; recent releases do 4-bit nf4 "
    "there. Use torch.optim.AdamW or torch_npu.optim.NpuFusedAdamW for the optimizers",
    (report("import bitsandbytes as bnb"), leave("import bits")),
)

transformer_engine_import = _package(
    "NPU605",
    "transformer-engine-import",
    PACKAGES["transformer_engine"],
    package_words("transformer_engine"),
    "transformer_engine is for NVIDIA GPUs only: use the plain torch.nn layers, or MindSpeed's",
    (report("import transformer_engine.pytorch as te"), leave("import transformer")),
)

deepspeed_ops_import = _package(
    "NPU606",
    "deepspeed-ops-import",
    PACKAGES["deepspeed_ops"],
    package_words("deepspeed_ops"),
    "an operator that DeepSpeed builds itself: its NPU builders are few (FusedAdam, CPUAdam and "
    "inference kernels in recent releases), so use a DeepSpeed that has this one, or torch.optim",
    (report("from deepspeed.ops.adam import FusedAdam"), leave("import deepspeed")),
)

mmcv_ops_import = _package(
    "NPU607",
    "mmcv-ops-import",
    PACKAGES["mmcv_ops"],
    package_words("mmcv_ops"),
    "the ops of mmcv are compiled: build mmcv on the NPU machine (MMCV_WITH_OPS=1 FORCE_NPU=1), "
    "and see in its list of operators which of them have an NPU version",
    (report("from mmcv.ops import nms"), leave("import mmcv")),
)


@rule(
    "NPU608",
    "compiled-package-import",
    on=(cst.Import, cst.ImportFrom),
    words=package_words("compiled"),
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="this package's kernels are compiled for CUDA and have no NPU version in it: " + REWRITE,
    examples=(
        report("import pytorch3d.ops"),
        report("from mamba_ssm import Mamba"),
        report("import gsplat\nimport spconv.pytorch as spconv"),
        report("from warpctc_pytorch import CTCLoss"),
        report("import torch\nfrom nerfacc import OccGridEstimator"),
        report("import torch\nimport kvikio"),
        report("import torch\nfrom cucim import CuImage"),
        report("import torch\nfrom pytorch_quantization import nn as quant_nn"),
        report(
            "import torch\ntry:\n    import instance_norm_nvfuser_cuda\nexcept ImportError: pass"
        ),
        leave(
            "import torch\nimport cupy\nimport pycuda\nimport numba\n"
            "import tensorrt\nimport onnxruntime"
        ),
        leave("import gs"),
        leave("from .dgl import graph"),
    ),
)
def compiled_package_import(node: cst.Import | cst.ImportFrom, site: Site) -> Report | None:
    if is_typing_only(site):
        return None
    brought = [p for p in PACKAGES["compiled"] if any(is_below(n, (p,)) for n in imported(node))]
    first = [package for package in brought if is_first_import(site, (package,))]
    if not first:
        return None
    instead = "; ".join(dict.fromkeys(INSTEAD[package] for package in first))
    names = " and ".join(first)
    text = f"the kernels of {names} are compiled for CUDA and have no NPU version: {instead}"
    if is_guarded(site):
        return Report(f"{text}. This import is guarded: see what runs without it", quiet=True)
    return Report(text)


_FUSED = {
    "FusedAdam": "torch_npu.optim.NpuFusedAdamW (or NpuFusedAdam with adam_w_mode=False)",
    "FusedLAMB": "torch_npu.optim.NpuFusedLamb",
    "FusedSGD": "torch_npu.optim.NpuFusedSGD",
    "FusedLayerNorm": "torch.nn.LayerNorm",
    "MixedFusedLayerNorm": "torch.nn.LayerNorm",
    "FusedRMSNorm": "torch_npu.npu_rms_norm, or torch.nn.RMSNorm",
    "MixedFusedRMSNorm": "torch_npu.npu_rms_norm, or torch.nn.RMSNorm",
}


@rule(
    "NPU609",
    "apex-fused-class",
    on=cst.Call,
    words=APEX_USE_WORDS,
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="a fused class of apex needs apex's CUDA extensions",
    examples=(
        report("from apex.optimizers import FusedAdam\nopt = FusedAdam(ps, lr=1e-3)"),
        leave("opt = FusedAdam(ps)"),
    ),
)
def apex_fused_class(node: cst.Call, site: Site) -> Report | None:
    name = site.name(node.func) or ""
    last = name.rpartition(".")[2]
    if not name.startswith("apex.") or last not in _FUSED:
        return None
    return Report(f"apex's {last} needs its CUDA extensions: use {_FUSED[last]}")


_VISION_NAMES = (
    "nms batched_nms roi_align roi_pool ps_roi_align ps_roi_pool deform_conv2d RoIAlign "
    "RoIPool PSRoIAlign PSRoIPool DeformConv2d MultiScaleRoIAlign"
).split()
_VISION_OPS = tuple(f"torchvision.ops.{name}" for name in _VISION_NAMES)
_VISION_IMPORTS = (*_VISION_OPS, "torchvision.ops.poolers.MultiScaleRoIAlign")


@rule(
    "NPU616",
    "torchvision-operator",
    on=(cst.Attribute, cst.ImportFrom),
    words=VISION_WORDS,
    fix=FixLevel.NONE,
    missed_by_shim=True,
    quiet=True,
    why="nms, roi_align and deform_conv2d of torchvision are compiled and fall to the CPU for NPU "
    "tensors, or fail: import torchvision_npu where it is installed",
    examples=(
        report("from torchvision.ops import nms"),
        report("import torchvision\nkeep = torchvision.ops.nms(boxes, scores, 0.5)"),
        leave("import torchvision\nimport torchvision_npu\nk = torchvision.ops.nms(b, s, 0.5)"),
        report("from torchvision.ops import nms\nfrom torchvision.ops import roi_align"),
        report(
            "import torchvision\nfrom torchvision.ops import nms\nk = torchvision.ops.nms(b, s)"
        ),
        leave("from torchvision.ops import FeaturePyramidNetwork"),
    ),
)
def torchvision_operator(node: cst.Attribute | cst.ImportFrom, site: Site) -> Report | None:
    if site.file.imports("torchvision_npu"):
        return None
    if isinstance(node, cst.ImportFrom):
        named = any(name in _VISION_IMPORTS for name in imported(node))
        return Report() if named and is_first_import(site, _VISION_IMPORTS) else None
    if site.name(node) not in _VISION_OPS or brings(site.file.tree, _VISION_IMPORTS):
        return None
    return Report() if is_first_use(site, _VISION_NAMES) else None


def _triton_kernels(tree: ast.Module) -> list[ast.FunctionDef]:
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and any(_is_jit(decorator) for decorator in node.decorator_list)
    ]


def _is_jit(decorator: ast.expr) -> bool:
    inner = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(inner) in ("triton.jit", "jit")


@rule(
    "NPU617",
    "triton-kernel",
    on=cst.Decorator,
    words=TRITON_WORDS,
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="Triton compiles for NVIDIA and AMD GPUs; on an NPU it needs Ascend's triton-ascend, where "
    "many kernels run as they are and others need smaller blocks",
    examples=(
        report(
            "import triton\n@triton.jit\ndef add_kernel(x): pass\ndef add(x): add_kernel[(1,)](x)"
        ),
        leave("import numba\n@numba.jit\ndef f(x): pass"),
    ),
)
def triton_kernel(node: cst.Decorator, site: Site) -> Report | None:
    inner = node.decorator.func if isinstance(node.decorator, cst.Call) else node.decorator
    if site.name(inner) not in ("triton.jit", "triton.runtime.jit.jit"):
        return None
    kernels = _triton_kernels(site.file.tree)
    if not kernels or site.statement is not min(kernels, key=lambda kernel: kernel.lineno):
        return None
    names = [kernel.name for kernel in kernels]
    callers = [user for name in names for user in users_of(site.file.tree, name)]
    users = listed(user for user in callers if user not in names)
    called = f", called by {users}" if users else ""
    return Report(
        f"Triton kernels ({listed(names)}){called}: on an NPU they need Ascend's triton-ascend, "
        "where many run as they are and others need smaller blocks; or write them with torch",
        kernels=tuple(names),
    )


@rule(
    "NPU618",
    "faiss-gpu",
    on=cst.Attribute,
    words=FAISS_WORDS,
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="the GPU indexes of faiss need CUDA: keep the index on the CPU, or use Ascend's IndexSDK",
    examples=(
        report("import torch, faiss\nres = faiss.StandardGpuResources()"),
        leave("import torch, faiss\nindex = faiss.IndexFlatL2(8)"),
    ),
)
def faiss_gpu(node: cst.Attribute, site: Site) -> Report | None:
    name = site.name(node) or ""
    if not name.startswith("faiss."):
        return None
    last = name.partition(".")[2]
    return Report() if last.startswith(("StandardGpu", "index_cpu_to_", "GpuIndex")) else None

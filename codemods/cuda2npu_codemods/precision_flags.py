"""Switches below ``torch.backends``: TF32, reduced precision, attention kernels, cuDNN, cuFFT.

cudnn.benchmark, cudnn.deterministic and set_float32_matmul_precision only set globals that
nothing reads on an NPU; they stay without a word.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import libcst as cst

from cuda2npu.rule import Fix, FixLevel, Report, Site, leave, report, rewrite, rule
from cuda2npu_codemods.counterparts import counterpart
from cuda2npu_codemods.expressions import string, terminal

_TF32 = ("torch.backends.cuda.matmul.allow_tf32", "torch.backends.cudnn.allow_tf32")
_CUFFT = "torch.backends.cuda.cufft_plan_cache"

_SDP = "torch_npu chooses its own attention kernel, and this switch changes nothing there: drop it"
_REDUCED = "this switch is cuBLAS's, and the NPU has none like it: drop it"
_ADVICE: Mapping[str, str] = {
    "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction": _REDUCED,
    "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction": _REDUCED,
    "torch.backends.cuda.matmul.allow_fp16_accumulation": _REDUCED,
    "torch.backends.cuda.matmul.fp32_precision": "write torch.npu.matmul.allow_hf32 = True for "
    "'tf32', False for 'ieee'",
    "torch.backends.cudnn.conv.fp32_precision": "write torch.npu.conv.allow_hf32 = True for "
    "'tf32', False for 'ieee'; it is on by default",
    "torch.backends.cudnn.fp32_precision": "write torch.npu.conv.allow_hf32 = True for 'tf32', "
    "False for 'ieee'; it is on by default",
    "torch.backends.cuda.sdp_kernel": _SDP,
    "torch.backends.cuda.SDPBackend": _SDP,
    "torch.backends.cuda.SDPAParams": _SDP,
    "torch.backends.cuda.can_use_flash_attention": _SDP,
    "torch.backends.cuda.can_use_efficient_attention": _SDP,
    "torch.backends.cuda.can_use_cudnn_attention": _SDP,
    "torch.nn.attention.SDPBackend.FLASH_ATTENTION": _SDP,
    "torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION": _SDP,
    "torch.nn.attention.SDPBackend.CUDNN_ATTENTION": _SDP,
    "torch.backends.cuda.preferred_linalg_library": "the NPU has no cuSOLVER or MAGMA: drop it",
    "torch.backends.cuda.preferred_blas_library": "the NPU has no cuBLAS: drop it",
    "torch.backends.cuda.is_built": "it is False on an NPU machine: ask torch.npu.is_available()",
    "torch.has_cuda": "it is False on an NPU machine: ask torch.npu.is_available()",
    "torch.has_cudnn": "it is False on an NPU machine: write what is to happen there",
    "torch._C.has_cuda": "it is False on an NPU machine: ask torch.npu.is_available()",
    "torch.backends.cudnn.is_available": "it is False on an NPU machine: write what is to "
    "happen there",
    "torch.backends.cudnn.version": "it is None on an NPU machine: drop the question",
}
_SDP_SWITCHES = tuple(
    f"torch.backends.cuda.{name}"
    for kernel in ("flash", "mem_efficient", "math", "cudnn")
    for name in (f"enable_{kernel}_sdp", f"{kernel}_sdp_enabled")
)


def _stored_value(node: cst.Attribute, site: Site) -> cst.BaseExpression | None:
    """What is assigned to the flag, or None when it is only read."""
    target = site.parent(node)
    assign = site.parent(target) if isinstance(target, cst.AssignTarget) else None
    return assign.value if isinstance(assign, cst.Assign) else None


def _is_no_bool(value: cst.BaseExpression | None) -> bool:
    if isinstance(value, cst.Name):
        return value.value == "None"
    return isinstance(value, (cst.BaseNumber, cst.BaseString))


@rule(
    "NPU501",
    "tf32-flag",
    on=cst.Attribute,
    words=("allow_tf32",),
    fix=FixLevel.SAFE,
    missed_by_shim=True,
    quiet=True,
    why="TF32 is NVIDIA's; the NPU's counterpart is HF32, off by default for matmul and on by "
    "default for convolutions. The CUDA flag sets a global that nothing reads there",
    examples=(
        rewrite(
            "torch.backends.cuda.matmul.allow_tf32 = True", "torch.npu.matmul.allow_hf32 = True"
        ),
        rewrite(
            "torch.backends.cudnn.allow_tf32 = args.tf32", "torch.npu.conv.allow_hf32 = args.tf32"
        ),
        rewrite(
            "import torch\nfrom torch.backends import cudnn\nold = cudnn.allow_tf32",
            "import torch\nimport torch_npu  # noqa: F401\nold = torch.npu.conv.allow_hf32",
        ),
        rewrite(
            "import torch.backends.cudnn as cudnn\ncudnn.allow_tf32 = False",
            "import torch_npu\ntorch_npu.npu.conv.allow_hf32 = False",
        ),
        leave("torch.backends.cudnn.allow_tf32 = 1"),
        leave("torch.backends.cudnn.benchmark = True"),
        leave("torch.backends.mudnn.allow_tf32 = True"),
        leave("ok = hasattr(torch.backends.cuda.matmul, 'allow_tf32')"),
    ),
)
def tf32_flag(node: cst.Attribute, site: Site) -> Fix | None:
    name = site.name(node)
    new = counterpart(name, site.options.torch_npu) if name in _TF32 else None
    if new is None or _is_no_bool(_stored_value(node, site)):
        return None
    return Fix({node: site.spell(new)})


@rule(
    "NPU502",
    "tf32-flag-not-bool",
    on=cst.Attribute,
    words=("allow_tf32",),
    fix=FixLevel.NONE,
    quiet=True,
    why="torch.npu's allow_hf32 takes only a bool, and this is none: write True or False and run "
    "again",
    examples=(
        report("torch.backends.cudnn.allow_tf32 = 1"),
        report("torch.backends.cuda.matmul.allow_tf32 = 'true'"),
        leave("torch.backends.cudnn.allow_tf32 = True"),
    ),
)
def tf32_flag_not_bool(node: cst.Attribute, site: Site) -> Report | None:
    return Report() if site.name(node) in _TF32 and _is_no_bool(_stored_value(node, site)) else None


@rule(
    "NPU503",
    "cuda-backend-switch",
    on=(cst.Attribute, cst.Name),
    words=(
        "cuda",
        "cudnn",
        "sdp_kernel",
        "sdp_enabled",
        "_sdp(",
        "SDPBackend",
        "FLASH_ATTENTION",
        "EFFICIENT_ATTENTION",
        "CUDNN_ATTENTION",
    ),
    fix=FixLevel.NONE,
    missed_by_shim=True,
    quiet=True,
    why="this switch or question is about CUDA's libraries and means nothing on an NPU",
    examples=(
        report("torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False"),
        report("with torch.backends.cuda.sdp_kernel(enable_flash=False): pass"),
        report("torch.backends.cuda.enable_flash_sdp(False)"),
        report("from torch.nn.attention import SDPBackend as B\nb = B.FLASH_ATTENTION"),
        report("if torch.backends.cuda.is_built(): pass"),
        report("v = torch.backends.cudnn.version()"),
        report("d = 'cuda' if torch.has_cuda else 'cpu'"),
        leave("b = torch.nn.attention.SDPBackend.MATH"),
        leave("torch.set_float32_matmul_precision('high')"),
        leave("torch.backends.cudnn.deterministic = True"),
        leave("sdp_kernel = None\nsdp_kernel()"),
        leave("cpu_config = Config([torch.nn.attention.SDPBackend.FLASH_ATTENTION])"),
        leave("c = {'cpu': torch.nn.attention.SDPBackend.FLASH_ATTENTION}"),
        report("cpu_or_gpu = torch.nn.attention.SDPBackend.FLASH_ATTENTION"),
    ),
)
def cuda_backend_switch(node: cst.Attribute | cst.Name, site: Site) -> Report | None:
    name = site.name(node) or ""
    if isinstance(node, cst.Name) and site.binding(node.value) is not None:
        return None  # the assignment is reported
    if name.rpartition(".")[0].endswith("SDPBackend") and _is_for_cpu(node, site):
        return None  # the CPU has kernels of these names, too
    advice = _SDP if name in _SDP_SWITCHES else _ADVICE.get(name)
    return Report(f"{name} speaks of CUDA's libraries: {advice}") if advice else None


_CPU_ONLY = re.compile(r"(?!.*(gpu|cuda))(\w*_)?cpu(_\w*)?", re.I)


def _is_for_cpu(node: cst.CSTNode, site: Site) -> bool:
    """Whether the variable, argument or entry that takes the value is named as the CPU's."""
    for ancestor in site.ancestors(node):
        taker: str | None = None
        if isinstance(ancestor, cst.Assign):
            taker = terminal(ancestor.targets[0].target)
        elif isinstance(ancestor, cst.AnnAssign):
            taker = terminal(ancestor.target)
        elif isinstance(ancestor, cst.Arg) and ancestor.keyword is not None:
            taker = ancestor.keyword.value
        elif isinstance(ancestor, cst.DictElement):
            taker = string(ancestor.key)
        if _CPU_ONLY.fullmatch(taker or ""):
            return True
    return False


@rule(
    "NPU504",
    "cudnn-enabled-test",
    on=cst.Attribute,
    words=("cudnn",),
    fix=FixLevel.NONE,
    missed_by_shim=True,
    quiet=True,
    why="cudnn.enabled is True on an NPU machine although there is no cuDNN: look at the path "
    "that this test selects",
    examples=(
        report("if torch.backends.cudnn.enabled: pass"),
        report("import torch.backends.cudnn as cudnn\nfast = a and not cudnn.enabled"),
        leave("torch.backends.cudnn.enabled = False"),
        leave("with torch.backends.cudnn.flags(enabled=False): pass"),
        leave("old = torch.backends.cudnn.enabled"),
    ),
)
def cudnn_enabled_test(node: cst.Attribute, site: Site) -> Report | None:
    if site.name(node) != "torch.backends.cudnn.enabled":
        return None
    tests = (cst.If, cst.IfExp, cst.While, cst.Assert, cst.BooleanOperation, cst.UnaryOperation)
    return Report() if isinstance(site.parent(node), tests) else None


@rule(
    "NPU505",
    "cufft-plan-cache",
    on=(cst.Attribute, cst.Name),
    words=("cufft_plan_cache",),
    fix=FixLevel.SAFE,
    missed_by_shim=True,
    why="the cache of FFT plans is torch.npu.backends.fft_plan_cache on the NPU, one for all "
    "devices",
    examples=(
        rewrite(
            "torch.backends.cuda.cufft_plan_cache.max_size = 32",
            "torch.npu.backends.fft_plan_cache.max_size = 32",
        ),
        rewrite(
            "torch.backends.cuda.cufft_plan_cache.clear()",
            "torch.npu.backends.fft_plan_cache.clear()",
        ),
        rewrite(
            "n = torch.backends.cuda.cufft_plan_cache[0].size",
            "n = torch.npu.backends.fft_plan_cache.size",
        ),
    ),
)
def cufft_plan_cache(node: cst.Attribute | cst.Name, site: Site) -> Fix | None:
    new = counterpart(_CUFFT, site.options.torch_npu)
    if site.name(node) != _CUFFT or new is None:
        return None
    outer = site.parent(node)
    indexed = isinstance(outer, cst.Subscript) and outer.value is node
    return Fix({(outer if indexed and outer else node): site.spell(new)})

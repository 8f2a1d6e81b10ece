"""The tables from torch.cuda to torch.npu. A row is held to the wheels' name tables by a test."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache

from cuda2npu.releases import RELEASES, exists, names

RENAMED: Mapping[str, str] = {
    "torch.cuda.CUDAGraph": "torch.npu.NPUGraph",
    "torch.cuda.graphs.CUDAGraph": "torch.npu.graphs.NPUGraph",
    "torch.cuda.CUDAPluggableAllocator": "torch.npu.NPUPluggableAllocator",
    "torch.cuda.memory.CUDAPluggableAllocator": "torch.npu.memory.NPUPluggableAllocator",
    "torch.cuda.memory.mem_get_info": "torch.npu.mem_get_info",
    "torch.cuda.OutOfMemoryError": "torch.OutOfMemoryError",
    "torch.cuda.nvtx": "torch.npu.mstx",
    "torch.cuda.nvtx.mark": "torch.npu.mstx.mark",
    "torch.cuda.nvtx.range_push": "torch.npu.mstx.range_push",
    "torch.cuda.nvtx.range_pop": "torch.npu.mstx.range_pop",
    "torch.cuda.nvtx.range_start": "torch.npu.mstx.range_start",
    "torch.cuda.nvtx.range_end": "torch.npu.mstx.range_end",
    "torch.cuda.nvtx.range": "torch.npu.mstx.mstx_range",
    "torch.cuda._sanitizer.enable_cuda_sanitizer": "torch.npu._sanitizer.enable_npu_sanitizer",
    "torch.backends.cuda.cufft_plan_cache": "torch.npu.backends.fft_plan_cache",
    "torch.backends.cuda.matmul.allow_tf32": "torch.npu.matmul.allow_hf32",
    "torch.backends.cudnn.allow_tf32": "torch.npu.conv.allow_hf32",
}
"""Names whose counterpart is called otherwise. Everything else keeps its name."""

OF_TORCH: Mapping[str, str] = {"torch.OutOfMemoryError": "2.5.1"}
"""Counterparts that torch itself offers, with the first release whose torch does."""

ADVICE: Mapping[str, str] = {
    "torch.cuda.OutOfMemoryError": "before torch 2.5 catch RuntimeError, its base",
    "torch.cuda.nccl": "HCCL has no such module: ask torch.distributed instead",
    "torch.cuda.comm": "use torch.distributed collectives over hccl",
    "torch.cuda.cudart": "torch_npu.npu.npurt offers a small subset from 2.7.1 on",
    "torch.cuda.nvtx": "drop it, or write torch_npu.npu.mstx.mstx_range around the code",
    "torch.cuda.nvtx.range_push": "this release has no mstx.range_push: use mstx.range_start",
    "torch.cuda.nvtx.range_pop": "this release has no mstx.range_pop: use mstx.range_end",
    "torch.cuda.get_arch_list": "there are no compute capabilities; ask get_device_name()",
    "torch.cuda.get_gencode_flags": "there is no nvcc; drop it",
    "torch.cuda.get_stream_from_external": "use torch.npu.ExternalStream(pointer, device)",
    "torch.cuda.temperature": "read it from npu-smi info",
    "torch.cuda.power_draw": "read it from npu-smi info",
    "torch.cuda.clock_rate": "read it from npu-smi info",
    "torch.cuda.memory_usage": "read it from npu-smi info",
    "torch.cuda.list_gpu_processes": "read them from npu-smi info",
    "torch.cuda.device_memory_used": "use torch.npu.mem_get_info()",
    "torch.cuda.is_tf32_supported": "HF32 takes its place: torch.npu.matmul.allow_hf32",
    "torch.cuda.profiler": "use torch_npu.profiler",
    "torch.cuda.sparse": "use sparse tensors with device='npu'",
    "torch.cuda.jiterator": "write the operation with torch functions, or as an Ascend C kernel",
    "torch.cuda.tunable": "drop it; use torch.npu.set_compile_mode where tuning is wanted",
    "torch.cuda.check_error": "drop it: torch_npu raises RuntimeError by itself",
    "torch.cuda.CudaError": "catch RuntimeError",
    "torch.cuda.AcceleratorError": "catch torch.AcceleratorError, or RuntimeError",
}
"""What to do about names that torch.npu has no counterpart for."""


@lru_cache(maxsize=4096)
def counterpart(dotted: str, release: str) -> str | None:
    """The torch.npu name for a torch.cuda name, or None when the release has none.

    A name below a class or object of torch.npu (``torch.cuda.Stream.priority_range``) counts
    when the class exists; one below a module must exist itself.
    """
    renamed = RENAMED.get(dotted)
    if renamed is not None:
        return renamed if _is_offered(renamed, release) else None
    head, _, last = dotted.rpartition(".")
    if dotted == "torch.cuda":
        return "torch.npu"
    if not head.startswith("torch.cuda"):
        return None
    same = dotted.replace("torch.cuda", "torch.npu", 1)
    if exists(same, release):
        return same
    parent = counterpart(head, release)
    if parent is None or parent == "torch.npu" or parent in _with_members():
        return None
    return f"{parent}.{last}"


def _is_offered(name: str, release: str) -> bool:
    if name in OF_TORCH:
        return RELEASES.index(release) >= RELEASES.index(OF_TORCH[name])
    return exists(name, release)


@cache
def _with_members() -> frozenset[str]:
    """Modules and objects whose members the name tables list."""
    parents = {name.rpartition(".")[0] for name in names()}
    return frozenset(parent.replace("torch_npu.npu", "torch.npu", 1) for parent in parents)


def advice(dotted: str) -> str:
    """What to do about a name without counterpart, from its nearest row."""
    while dotted.startswith("torch.cuda."):
        if dotted in ADVICE:
            return ADVICE[dotted]
        dotted = dotted.rpartition(".")[0]
    return "remove it, or keep it where only CUDA runs"

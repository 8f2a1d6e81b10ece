"""Packages by the names that installers know them by, and the NPU's answer to each. No LibCST."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cuda2npu_codemods.libraries import LIBRARIES

_IMPORTS = {
    "apex": "apex",
    "auto-gptq": "auto_gptq",
    "autoawq": "awq",
    "autoawq-kernels": "awq",
    "bitsandbytes": "bitsandbytes",
    "bmtrain": "bmtrain",
    "causal-conv1d": "causal_conv1d",
    "colossalai": "colossalai",
    "cucim": "cucim",
    "cupy": "cupy",
    "dgl": "dgl",
    "faiss-gpu": "faiss",
    "flash-attn": "flash_attn",
    "flash-attn-3": "flash_attn",
    "flash-attn-4": "flash_attn",
    "flash-attention": "flash_attn",
    "flashinfer": "flashinfer",
    "flashinfer-python": "flashinfer",
    "grouped-gemm": "grouped_gemm",
    "gsplat": "gsplat",
    "horovod": "horovod",
    "kaolin": "kaolin",
    "kvikio": "kvikio",
    "lmdeploy": "lmdeploy",
    "mamba-ssm": "mamba_ssm",
    "megatron-core": "megatron",
    "mmcv": "mmcv",
    "mmcv-full": "mmcv",
    "minkowskiengine": "MinkowskiEngine",
    "nerfacc": "nerfacc",
    "nvdiffrast": "nvdiffrast",
    "nvidia-dali": "nvidia.dali",
    "nvidia-ml-py": "pynvml",
    "nvidia-ml-py3": "pynvml",
    "nvidia-tensorrt": "tensorrt",
    "onnxruntime-gpu": "onnxruntime",
    "pycuda": "pycuda",
    "pynvml": "pynvml",
    "pytorch-quantization": "pytorch_quantization",
    "pytorch3d": "pytorch3d",
    "sageattention": "sageattention",
    "sglang": "sglang",
    "spconv": "spconv",
    "tensorrt": "tensorrt",
    "tinycudann": "tinycudann",
    "torch-cluster": "torch_cluster",
    "torch-scatter": "torch_scatter",
    "torch-sparse": "torch_sparse",
    "torch-tensorrt": "tensorrt",
    "torchsparse": "torchsparse",
    "transformer-engine": "transformer_engine",
    "transformer-engine-torch": "transformer_engine",
    "triton": "triton",
    "vllm": "vllm",
    "xformers": "xformers",
}
"""Packages that an NPU has no use for as they are, with the name they are imported by.

What runs on NPUs by itself (transformers, accelerate, DeepSpeed) asks for nothing.
"""
_ADVICE: Mapping[str, str] = {library.name: library.advice for library in LIBRARIES}
_CUDA_TAIL = re.compile(r"-(cuda|cu)\d+x?\d*$")
_TOOLKIT = (
    "it belongs to CUDA's toolkit, driver or bindings. An NPU's is CANN, which the system or the "
    "container brings: drop it, and port what uses it"
)
_TOOLKIT_NAMES = re.compile(
    r"cudatoolkit(-dev)?|cuda(-[\w-]+)?|pytorch-cuda|cudnn\d*|nccl|cutensor|nvcc"
    r"|libcu(blas|dart|fft|file|pti|rand|solver|sparse|tensor)\w*(-[\w-]+)?"
    r"|libcudnn\d[\w-]*|libnccl[\d-][\w-]*|libnvinfer[\w-]*|nvidia-(cuda|cu|nccl|nvtx|nvjitlink|npp"
    r"|driver|container|docker|utils|headless)[\w-]*"
)
WORDS = (
    *_IMPORTS,
    *(name.replace("-", "_") for name in _IMPORTS if "-" in name),
    "cuda",
    "cudnn",
    "nccl",
    "cutensor",
    "nvcc",
    "libcu",
    "libnv",
    "nvidia",
    "MinkowskiEngine",
)
"""What a file must hold for these packages to be looked for."""


def advice_for(package: str) -> str | None:
    """What to do about a package, by its name in lower case with hyphens; None when nothing."""
    plain = _CUDA_TAIL.sub("", package)
    library = _IMPORTS.get(plain)
    if library is not None:
        return f"{package} is made for CUDA; on an NPU: {_ADVICE[library]}"
    return f"{package}: {_TOOLKIT}" if _TOOLKIT_NAMES.fullmatch(plain) else None

"""Third-party libraries and the NPU's answer to each, for the inventory of a project. No LibCST.

From the vendor's list of libraries and of what cannot be migrated (Ascend Extension for PyTorch
7.3.0), from the documentation of vllm-ascend, SGLang and ONNX Runtime, and from the sources of
the libraries themselves, where they name the NPU.
"""

from __future__ import annotations

from cuda2npu.pack import Library
from cuda2npu_codemods.triggers import PACKAGES

REWRITE = "write the operation with torch functions, move it to the CPU, or port the kernel"
_LIGHTNING = "Ascend's port of Lightning, or an Accelerator class of your own"
_QUANTIZE = "load the model in bfloat16, or quantize with Ascend's tools"
_ATTENTION = (
    "use torch.nn.functional.scaled_dot_product_attention or torch_npu.npu_fusion_attention"
)

_SPECIAL = {
    "warpctc_pytorch": "use torch.nn.CTCLoss",
    "auto_gptq": _QUANTIZE,
    "awq": _QUANTIZE,
    "pytorch_quantization": "quantize with Ascend's tools",
    "instance_norm_nvfuser_cuda": "use torch.nn.InstanceNorm3d",
    "kvikio": "read the file to the host and move the tensor with .npu()",
    "pynvrtc": "port its kernels to Ascend C, or write them with torch functions",
    "cucim": "read and process the image on the CPU with scikit-image",
    "dgl": "keep its graphs on the CPU, or write the message passing with torch functions",
}
INSTEAD = {name: _SPECIAL.get(name, REWRITE) for name in PACKAGES["compiled"]}
"""What to do without a package whose kernels are compiled for CUDA."""

_WORKS = {
    "accelerate": "finds the NPU by itself where torch_npu is installed",
    "deepspeed": "a recent release has an NPU accelerator; of its fused operators only some",
    "diffusers": "give it the device npu",
    "mmdet": "with mmcv built on the NPU machine",
    "mmengine": "0.5 and newer",
    "mmpretrain": "with mmcv built on the NPU machine",
    "mmseg": "with mmcv built on the NPU machine",
    "peft": "without the layers that need bitsandbytes or another CUDA package",
    "sentence_transformers": "give it the device npu",
    "torchtune": "give it the device npu",
    "transformers": "finds the NPU by itself; recent releases run flash attention with torch_npu",
    "trl": "as transformers does",
}
_PORTED = {
    "apex": "Ascend's patch of apex, built from source; or torch.autocast and torch_npu.optim",
    "bitsandbytes": "a recent release does 4-bit nf4; no 8-bit optimizers and no LLM.int8()",
    "faiss": "its CPU indexes work; Ascend's IndexSDK has NPU ones",
    "lightning": _LIGHTNING,
    "lmdeploy": "dlinfer-ascend",
    "megatron": "Ascend's MindSpeed",
    "mmcv": "build it on the NPU machine: MMCV_WITH_OPS=1 FORCE_NPU=1; not every operator is there",
    "onnxruntime": "onnxruntime-cann, with the provider CANNExecutionProvider",
    "pytorch_lightning": _LIGHTNING,
    "sglang": "its installation for Ascend, with sgl-kernel-npu",
    "torchvision": "its models and transforms work; nms, roi_align and such need torchvision_npu",
    "triton": "triton-ascend; many kernels run as they are, others need smaller blocks",
    "vllm": "the plugin vllm-ascend",
}
_NONE = {
    "bmtrain": "use torch's FSDP or a DeepSpeed with its NPU accelerator",
    "colossalai": "its HybridAdam does not run: use torch.optim.AdamW",
    "composer": "installs, but knows no NPU: write the training loop, or use accelerate",
    "ctranslate2": "it runs on the CPU there; or run the model with torch",
    "cupy": "use torch or numpy for this part",
    "deep_ep": "use torch.distributed over hccl",
    "faster_whisper": "it runs on the CPU there; or run the model with transformers",
    "flash_attn": _ATTENTION,
    "horovod": "use torch.distributed over hccl",
    "nvidia.dali": "load and augment the data on the CPU",
    "pycuda": "port the kernels to Ascend C",
    "pynvml": "ask torch.npu, or npu-smi",
    "tensorrt": "convert the model for Ascend (ATC), or run it with torch_npu",
    "transformer_engine": "use the plain torch.nn layers, or MindSpeed's",
    "xformers": _ATTENTION,
}

ADVICE = {**_WORKS, **_PORTED, **_NONE}
"""What to do about a library, by its name."""

LIBRARIES = (
    *(Library(name, "works", advice) for name, advice in _WORKS.items()),
    *(Library(name, "ported", advice) for name, advice in _PORTED.items()),
    *(Library(name, "none", advice) for name, advice in {**_NONE, **INSTEAD}.items()),
)

"""Trigger words of the packs that look beyond ``torch.cuda``. No LibCST here: see ``PACK``.

A word opens every file that holds it, so each one is as long as its rule allows.
"""

from __future__ import annotations

from itertools import product

ALIAS_WORDS = (
    "CUDAGraph CUDAPluggableAllocator OutOfMemoryError nvtx nccl cudart get_arch_list "
    "get_gencode_flags get_stream_from_external CudaError AcceleratorError jiterator"
).split()
"""Words that show a renamed or missing name of torch.cuda behind an alias: ``gpu.CUDAGraph()``."""
INDEX_NAMES = (
    "rank",
    "local_rank",
    "gpu",
    "gpu_id",
    "gpu_idx",
    "gpu_index",
    "device_id",
    "device_idx",
    "device_index",
    "process_index",
    "local_process_index",
)
"""Names that hold the number of a device."""
_INDICES = (
    "rank local_rank gpu device_i self.rank self.local_rank self.gpu args.rank args.local_rank "
    "args.gpu opt.gpu"
).split()
INDEX_WORDS = (
    *(
        taker + index
        for taker, index in product((".to(", ".device(", "device=", "map_location="), _INDICES)
    ),
    *(".to(0", ".to(1", ".to(device=0", ".device(0", ".device(1", "device=0", "map_location=0"),
)
DEVICE_MAP_WORDS = ("device_map={", '"device_map": {', "'device_map': {")

LOAD_WORDS = ("torch.load", "th.load", "jit.load", "torch import load")
PARALLEL_WORDS = ("DataParallel", "data_parallel")
PIN_WORDS = ("pin_memory=True",)

PROPERTY_WORDS = (
    ".major",
    ".minor",
    ".multi_processor_count",
    ".warp_size",
    ".gcnArchName",
    ".shared_memory_per_",
    ".max_threads_per_multi_processor",
    ".regs_per_multiprocessor",
)
CAPABILITY_WORDS = ("get_device_capability",)
GPU_NAME_WORDS = (
    "get_device_name",
    "A100",
    "H100",
    "V100",
    "GeForce",
    "Tesla",
    "'NVIDIA",
    '"NVIDIA',
)
VERSION_WORDS = ("version.cuda", "version.hip")
MESSAGE_WORDS = ("out of memory", "CUDA", "cuda", "CUBLAS", "cublas", "CUDNN", "NCCL")
NVML_WORDS = ("pynvml", "py3nvml", "nvidia_smi", "cuda import", "import cuda", "from cuda")
PRIVATE_WORDS = ("_C._cuda_", "_C._Cuda", "_C._cudart")
SMI_WORDS = ("nvidia-smi",)
LIBRARY_WORDS = ("libcuda", "libnvrtc", "libnccl", "nvcuda")
PEAK_FLOPS = (
    "65e12",
    "112e12",
    "125e12",
    "15.7e12",
    "19.5e12",
    "121e12",
    "156e12",
    "181e12",
    "209e12",
    "242e12",
    "312e12",
    "362e12",
    "624e12",
    "756e12",
    "835e12",
    "989e12",
    "989.4e12",
    "989.5e12",
    "1979e12",
)
"""Peak operations per second of NVIDIA cards from the T4 to the H100, as scripts write them."""


APEX_WORDS = ("import apex", "from apex")
APEX_USE_WORDS = ("FusedAdam", "FusedLAMB", "FusedSGD", "FusedLayerNorm", "FusedRMSNorm")
PACKAGES = {
    "flash_attn": ("flash_attn", "flash_attn_interface", "flash_attn_2_cuda"),
    "xformers": ("xformers",),
    "bitsandbytes": ("bitsandbytes",),
    "transformer_engine": ("transformer_engine",),
    "deepspeed_ops": ("deepspeed.ops",),
    "mmcv_ops": ("mmcv.ops",),
    "compiled": (
        "mamba_ssm",
        "causal_conv1d",
        "sageattention",
        "flashinfer",
        "grouped_gemm",
        "tinycudann",
        "nvdiffrast",
        "gsplat",
        "diff_gaussian_rasterization",
        "simple_knn",
        "kaolin",
        "MinkowskiEngine",
        "spconv",
        "torchsparse",
        "pytorch3d",
        "torch_scatter",
        "torch_cluster",
        "torch_sparse",
        "warpctc_pytorch",
        "auto_gptq",
        "awq",
        "dgl",
        "nerfacc",
        "pytorch_quantization",
        "kvikio",
        "pynvrtc",
        "cucim",
        "instance_norm_nvfuser_cuda",
    ),
}
"""Packages whose kernels are compiled for CUDA, by the rule that reports their import."""


def package_words(group: str) -> tuple[str, ...]:
    return tuple(f"{verb} {name}" for name in PACKAGES[group] for verb in ("import", "from"))


TRITON_WORDS = ("triton.jit", "triton import jit")
VISION_WORDS = ("torchvision.ops", "torchvision import ops")
ATTENTION_WORDS = ("implementation='flash_", 'implementation="flash_')
TRAINING_WORDS = ("tf32=True",)
OPTIMIZER_WORDS = ("adamw_bnb", "adamw_apex", "paged_adam", "paged_lion", '_8bit"', "_8bit'")
LIGHTNING_WORDS = ("accelerator=", "gpus=")
MULTI_GPU_WORDS = ("MULTI_GPU",)
FLASH_WORDS = ("use_flash_attention_2=True",)
APEX_BACKEND_WORDS = ("backend='apex", 'backend="apex')
INT8_WORDS = ("load_in_8bit=True",)
KERNEL_SOURCE_WORDS = ("RawKernel", "RawModule")
FAISS_WORDS = ("StandardGpuResources", "index_cpu_to_", "GpuIndex")

MOCK_WORDS = ("torch.cuda",)
METHOD_WORDS = ("Tensor.cuda", "Module.cuda")
FORK_WORDS = ("fork_rng",)
ONNX_WORDS = ("bind_input", "bind_output", "bind_ortvalue", "ortvalue_from_")
EXPORT_WORDS = ("onnx.export(", "onnx.utils.export(")
DYNAMO_EXPORT_WORDS = ("dynamo_export(",)
OPSET_WORDS = ("opset_version",)
ATEN_WORDS = ("ONNX_ATEN", "ONNX_FALLTHROUGH")
GETATTR_WORDS = ('"cuda"', "'cuda'")

NPU_WORDS = ("torch_npu", "torch.npu", ".npu.")

JIT_WORDS = ("torch.jit.script",)
SCRIPT_WORDS = (".cuda(", ".is_cuda")
DOUBLE_WORDS = ("torch.float64", ".double(", "DoubleTensor")
LIBRARY_USE_WORDS = ("Accelerator(", "deepspeed.initialize", "TrainingArguments(")

WORDS: tuple[str, ...] = tuple(
    sorted(
        {
            *INDEX_WORDS,
            *DEVICE_MAP_WORDS,
            *LOAD_WORDS,
            *PARALLEL_WORDS,
            *PIN_WORDS,
            *PROPERTY_WORDS,
            *CAPABILITY_WORDS,
            *GPU_NAME_WORDS,
            *PRIVATE_WORDS,
            *VERSION_WORDS,
            *MESSAGE_WORDS,
            *NVML_WORDS,
            *SMI_WORDS,
            *LIBRARY_WORDS,
            *PEAK_FLOPS,
            *APEX_WORDS,
            *APEX_USE_WORDS,
            *(word for group in PACKAGES for word in package_words(group)),
            *TRITON_WORDS,
            *VISION_WORDS,
            *ATTENTION_WORDS,
            *TRAINING_WORDS,
            *OPTIMIZER_WORDS,
            *LIGHTNING_WORDS,
            *MULTI_GPU_WORDS,
            *INT8_WORDS,
            *FLASH_WORDS,
            *APEX_BACKEND_WORDS,
            *FAISS_WORDS,
            *KERNEL_SOURCE_WORDS,
            *MOCK_WORDS,
            *FORK_WORDS,
            *ONNX_WORDS,
            *EXPORT_WORDS,
            *DYNAMO_EXPORT_WORDS,
            *OPSET_WORDS,
            *ATEN_WORDS,
            *NPU_WORDS,
            *JIT_WORDS,
            *SCRIPT_WORDS,
            *DOUBLE_WORDS,
            *LIBRARY_USE_WORDS,
        }
    )
)
"""All of them, for ``PACK``."""

DOCUMENT_WORDS: tuple[str, ...] = tuple(
    "cuda CUDA nccl NCCL nvidia NVIDIA nvcr.io CUBLAS gpu GPU gres torch accelerator +cu /cu "
    '-cu1 apex "amp" tf32 8bit optim flash_attention '
    "ASCEND_RT_VISIBLE_DEVICES PYTORCH_NPU_ALLOC_CONF".split()
)
"""Words of the rules about documents; those of packages stand with the packages."""

SHELL_WORDS = (
    *("cuda", "CUDA", "nccl", "NCCL", "cudnn", "CUBLAS"),
    *("ASCEND_RT_VISIBLE_DEVICES", "PYTORCH_NPU_ALLOC_CONF"),
    *("nvidia", "nvcc", "nvitop", "nvprof", "nvdisasm", "nv-nsight", "ptxas", "cuobjdump"),
    *("gpu", "-G", "--nv", "nsys", "ncu", "compute-sanitizer", "dcgmi", "libcud", "libnccl"),
)
"""What shell scripts and makefiles are opened for."""

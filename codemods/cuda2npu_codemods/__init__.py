"""The rules that come with cuda2npu, one module per family."""

from __future__ import annotations

from cuda2npu.rule import Pack
from cuda2npu_codemods.triggers import WORDS
from cuda2npu_codemods.words import ALIAS_WORDS

PACK = Pack(
    name="builtin",
    words=(
        "cuda",
        "nvtx",
        "nccl",
        "NCCL",
        "CUDA",
        "transfer_to_npu",
        "GradScaler",
        "is_autocast_enabled",
        "set_autocast_enabled",
        "autocast_gpu_dtype",
        "CUBLAS_WORKSPACE_CONFIG",
        *ALIAS_WORDS,
        *WORDS,
    ),
    modules=(
        "cuda2npu_codemods.torch_imports",
        "cuda2npu_codemods.shims",
        "cuda2npu_codemods.placement",
        "cuda2npu_codemods.devices",
        "cuda2npu_codemods.tables",
        "cuda2npu_codemods.names",
        "cuda2npu_codemods.amp",
        "cuda2npu_codemods.distributed",
        "cuda2npu_codemods.process_groups",
        "cuda2npu_codemods.environment",
        "cuda2npu_codemods.hardware",
        "cuda2npu_codemods.checkpoints",
        "cuda2npu_codemods.indices",
        "cuda2npu_codemods.mocks",
        "cuda2npu_codemods.third_party",
        "cuda2npu_codemods.frameworks",
        "cuda2npu_codemods.missing_names",
        "cuda2npu_codemods.messages",
    ),
)

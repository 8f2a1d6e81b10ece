"""Environment variables of CUDA and NCCL: the NPU's counterpart, or what to do without one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from cuda2npu.releases import env_exists

VISIBLE = "CUDA_VISIBLE_DEVICES"
NPU_VISIBLE = "ASCEND_RT_VISIBLE_DEVICES"
ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"
NPU_ALLOCATOR = "PYTORCH_NPU_ALLOC_CONF"

COUNTERPARTS: Mapping[str, str] = {
    VISIBLE: NPU_VISIBLE,
    "CUDA_LAUNCH_BLOCKING": "ASCEND_LAUNCH_BLOCKING",
    ALLOCATOR: NPU_ALLOCATOR,
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "PYTORCH_NO_NPU_MEMORY_CACHING",
    "NCCL_BLOCKING_WAIT": "TORCH_HCCL_BLOCKING_WAIT",
    "NCCL_ASYNC_ERROR_HANDLING": "TORCH_HCCL_ASYNC_ERROR_HANDLING",
    "NCCL_DESYNC_DEBUG": "TORCH_HCCL_DESYNC_DEBUG",
    "TORCH_NCCL_BLOCKING_WAIT": "TORCH_HCCL_BLOCKING_WAIT",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "TORCH_HCCL_ASYNC_ERROR_HANDLING",
    "TORCH_NCCL_DESYNC_DEBUG": "TORCH_HCCL_DESYNC_DEBUG",
    "TORCH_NCCL_TRACE_BUFFER_SIZE": "TORCH_HCCL_TRACE_BUFFER_SIZE",
    "TORCH_NCCL_TRACE_CPP_STACK": "TORCH_HCCL_TRACE_CPP_STACK",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "TORCH_HCCL_DUMP_ON_TIMEOUT",
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "TORCH_HCCL_DEBUG_INFO_TEMP_FILE",
    "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "TORCH_HCCL_DEBUG_INFO_PIPE_FILE",
    "TORCH_NCCL_ENABLE_MONITORING": "TORCH_HCCL_ENABLE_MONITORING",
    "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "TORCH_HCCL_HEARTBEAT_TIMEOUT_SEC",
    "TORCH_NCCL_COORD_CHECK_MILSEC": "TORCH_HCCL_COORD_CHECK_MILSEC",
    "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "TORCH_HCCL_WAIT_TIMEOUT_DUMP_MILSEC",
    "TORCH_NCCL_HIGH_PRIORITY": "TORCH_HCCL_HIGH_PRIORITY",
}
"""Variables with the one that means the same on the NPU."""
_OLDER: Mapping[str, str] = {
    f"TORCH_HCCL_{tail}": f"HCCL_{tail}"
    for tail in ("BLOCKING_WAIT", "ASYNC_ERROR_HANDLING", "DESYNC_DEBUG")
}
"""What a counterpart is called in releases that do not read it yet."""
_READ_BY_CANN = frozenset({NPU_VISIBLE})
"""Variables that the runtime below torch_npu reads, whatever torch_npu itself does."""

ADVICE: Mapping[str, str] = {
    "CUDA_HOME": "it points to the CUDA toolkit; Ascend's is ASCEND_HOME_PATH, which set_env.sh "
    "of CANN sets: port the build with torch_npu.utils.cpp_extension",
    "CUDA_PATH": "it points to the CUDA toolkit; Ascend's is ASCEND_HOME_PATH, which set_env.sh "
    "of CANN sets",
    "TORCH_CUDA_ARCH_LIST": "it chooses GPU architectures for compiled CUDA kernels: drop it",
    "FORCE_CUDA": "it makes a build compile CUDA kernels, which an NPU cannot run: drop it",
    "CUDA_DEVICE_ORDER": "NPUs are numbered by their own ids, and nothing reads it: drop it",
    "CUDA_MODULE_LOADING": "it loads CUDA kernels lazily and does nothing on an NPU: drop it",
    "CUDA_CACHE_PATH": "it caches compiled CUDA kernels: drop it",
    "CUDA_DEVICE_MAX_CONNECTIONS": "it orders CUDA streams in hardware; CANN has no such setting: "
    "drop it, and check overlap of communication and computation by a profile",
    "CUBLAS_WORKSPACE_CONFIG": "it makes cuBLAS deterministic and does nothing on an NPU: use "
    "torch.use_deterministic_algorithms(True), and HCCL_DETERMINISTIC=true for collectives",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "it asks NVIDIA's driver for devices: drop it",
    "NCCL_DEBUG": "HCCL logs through CANN: set ASCEND_GLOBAL_LOG_LEVEL (1 is info) and "
    "ASCEND_SLOG_PRINT_TO_STDOUT=1 to see its messages",
    "NCCL_SOCKET_IFNAME": "HCCL_SOCKET_IFNAME means less: it chooses the host's interface for "
    "setting a group up, while data goes over the NPUs' own network: set it by hand if needed",
    "NCCL_IB": "there is no InfiniBand setting: NPUs reach each other over HCCS and RoCE, which "
    "CANN sets up (HCCL_RDMA_TC, HCCL_RDMA_SL, HCCL_RDMA_TIMEOUT): drop it",
    "NCCL_P2P": "NPUs reach each other over HCCS without a switch for it: drop it",
    "NCCL_BUFFSIZE": "HCCL_BUFFSIZE counts megabytes, not bytes: set it by hand",
    "NCCL_ALGO": "HCCL_ALGO has a syntax of its own: set it by hand",
    "NCCL_": "HCCL does not read NCCL's variables: drop it, or look for its purpose among the "
    "HCCL_ variables of the CANN manual",
    "TORCH_NCCL_": "this torch_npu release reads nothing of the kind: drop it",
}
"""What to do about variables without counterpart; the longest beginning counts."""

_KNOWN_WORDS = (
    *COUNTERPARTS,
    "CUDA_HOME",
    "CUDA_PATH",
    "TORCH_CUDA_ARCH_LIST",
    "FORCE_CUDA",
    "CUDA_DEVICE_ORDER",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_MODULE_LOADING",
    "CUDA_CACHE_PATH",
    "CUBLAS_WORKSPACE_CONFIG",
    "PYTORCH_NVML_BASED_CUDA_CHECK",
    "NCCL_",
)
WORDS: tuple[str, ...] = tuple(dict.fromkeys(_KNOWN_WORDS))
"""Trigger words of the rules about them."""


@lru_cache(maxsize=1024)
def variable(name: str, release: str) -> str | None:
    """The variable that the release reads in the place of this one of CUDA or NCCL."""
    new = COUNTERPARTS.get(name)
    for candidate in (new, _OLDER.get(new or "")):
        if candidate and (candidate in _READ_BY_CANN or env_exists(candidate, release)):
            return candidate
    return None


def variable_advice(name: str) -> str | None:
    """What to do about a variable without counterpart; None when it is none of CUDA's."""
    rows = [head for head in ADVICE if name == head or (_is_head(head) and name.startswith(head))]
    if rows:
        return ADVICE[max(rows, key=len)]
    return "this torch_npu release reads nothing of the kind" if name in COUNTERPARTS else None


def _is_head(row: str) -> bool:
    return row.endswith("_") or row in ("NCCL_IB", "NCCL_P2P", "NCCL_DEBUG")


def replaced(old: str, new: str) -> str:
    """Why a variable gives way to its counterpart."""
    if old == VISIBLE:
        return (
            "the NPU ignores CUDA_VISIBLE_DEVICES, so that every process sees all devices: "
            "ASCEND_RT_VISIBLE_DEVICES takes its place, with ids that must ascend"
        )
    return f"torch_npu does not read {old}, so that the setting is lost: it reads {new}"


def value_problem(name: str, value: str) -> str | None:
    """What is wrong with a value for the NPU's counterpart; None when nothing is."""
    if name in (VISIBLE, NPU_VISIBLE):
        return _visible_problem(value)
    return _allocator_problem(value) if name in (ALLOCATOR, NPU_ALLOCATOR) else None


def _visible_problem(value: str) -> str | None:
    if value in ("", "-1"):
        return (
            f"{value!r} hides every GPU, but is no documented value of ASCEND_RT_VISIBLE_DEVICES: "
            "torch_npu then finds no device, while CANN and other programs may see all of them. "
            'To run on the CPU, choose torch.device("cpu") in the code'
        )
    if not re.fullmatch(r"[0-9,]+", value):
        return (
            f"{value!r} is not a list of numbers: the NPU reads ids up to the first character "
            "that is neither digit nor comma, and knows no UUIDs. Write ids such as 0,1"
        )
    ids = [int(part) for part in value.split(",") if part]
    if ids != sorted(set(ids)):
        return (
            f"the ids {value} do not ascend: torch_npu then counts 0 devices and is_available() is "
            "False. Write them in ascending order, and map ranks to devices in the code"
        )
    return None


def _allocator_problem(value: str) -> str | None:
    if not re.search(r"\bbackend\s*:|cuda", value):
        return None
    return (
        f"{value!r} speaks of CUDA's own allocator, which torch_npu's does not take: keep "
        "max_split_size_mb, garbage_collection_threshold or expandable_segments and drop the rest"
    )

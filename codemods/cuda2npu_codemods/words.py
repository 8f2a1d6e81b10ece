"""Which identifiers speak of a device or a backend, and which strings name one."""

from __future__ import annotations

import re

DEVICE = re.compile(r"cuda(:\d+)?")
"""A whole string that names a CUDA device."""
DEVICE_TEMPLATE = re.compile(r"cuda:(%[ds]|\{[^{}]*\})?")
"""A whole string that becomes a CUDA device when an index is added or formatted in."""
BACKEND_MAP = re.compile(r"(\w+:\w+,)*cuda:nccl(,\w+:\w+)*")
"""A whole string that maps device types to process-group backends, CUDA's among them."""
TENSOR_TYPE = re.compile(r"torch\.cuda\.(sparse\.)?[A-Z][A-Za-z0-9]*Tensor")

OTHER_ACCELERATORS = frozenset(
    "mps xpu hpu mlu musa xla tpu ipu vulkan hip rocm sdaa maca ttnn neuron".split()
)
"""Device types of other vendors; a list with one of them is a list to extend."""
HOST_DEVICES = frozenset({"cpu", "meta", "auto"})
OTHER_BACKENDS = frozenset("gloo mpi ucc ccl xccl smddp".split())

ALIAS_WORDS = (
    "CUDAGraph CUDAPluggableAllocator OutOfMemoryError nvtx nccl cudart get_arch_list "
    "get_gencode_flags get_stream_from_external CudaError AcceleratorError jiterator"
).split()
"""Words that show a renamed or missing name of torch.cuda behind an alias: ``gpu.CUDAGraph()``."""

_DEVICE_WORDS = frozenset(["device", "devices", "dev", "devs"])
_DEVICE_TAILS = _DEVICE_WORDS | frozenset(
    "type types name str string arg map location choice choices option kind".split()
)
_WHOLE_DEVICE_WORDS = frozenset({"map_location", "map_loc", "devicetype", "torchdevice"})
_BACKEND_WORDS = frozenset({"backend", "backends"})
_NOT_PROCESS_GROUP = frozenset(
    "attn attention compile dynamo plot matplotlib quant quantization kernel rnnt "
    "loss render video audio image tokenizer data decode decoding".split()
)


def _parts(identifier: str) -> list[str]:
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", identifier)
    return [part for part in re.split(r"[_\-.]+", snake.lower()) if part]


def names_device(identifier: str) -> bool:
    """Whether a variable, keyword or flag of this name holds a device or device type.

    >>> [names_device(n) for n in ("device", "--device", "torch_device", "device_type", "dev")]
    [True, True, True, True, True]
    >>> [names_device(n) for n in ("device_id", "device_count", "develop", "cuda", "device_ids")]
    [False, False, False, False, False]
    """
    if identifier.lower() in _WHOLE_DEVICE_WORDS:
        return True
    parts = _parts(identifier)
    if not parts:
        return False
    if parts[-1] in _DEVICE_WORDS:
        return True
    return parts[-1] in _DEVICE_TAILS and any(part in _DEVICE_WORDS for part in parts)


def names_backend(identifier: str) -> bool:
    """Whether a variable, keyword or flag of this name holds a process-group backend.

    >>> [names_backend(n) for n in ("backend", "--dist-backend", "DIST_BACKEND", "dist_backends")]
    [True, True, True, True]
    >>> [names_backend(n) for n in ("attn_backend", "backend_flags", "background")]
    [False, False, False]
    """
    parts = _parts(identifier)
    return bool(parts) and parts[-1] in _BACKEND_WORDS and not _NOT_PROCESS_GROUP & set(parts)

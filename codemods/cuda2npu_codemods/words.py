"""Which identifiers speak of a device or a backend, and which strings name one."""

from __future__ import annotations

import re

from cuda2npu.rule import names_backend, names_device

__all__ = [
    "BACKEND_MAP",
    "DEVICE",
    "DEVICE_TEMPLATE",
    "HOST_DEVICES",
    "OTHER_ACCELERATORS",
    "OTHER_BACKENDS",
    "TENSOR_TYPE",
    "names_backend",
    "names_device",
]

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

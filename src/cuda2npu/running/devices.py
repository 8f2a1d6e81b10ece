"""Which devices this machine has, found without importing torch."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path


def has_npu() -> bool:
    from cuda2npu.simulator.environment import real_npus

    return bool(real_npus())


def has_gpu(devices: int = 1) -> bool:
    """Whether there are that many GPUs that the installed torch was built for."""
    found = len(list(Path("/dev").glob("nvidia[0-9]*")))
    if found < devices and not (devices == 1 and Path("/dev/dxg").exists()):
        return False
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    from cuda2npu.simulator.build import cuda_build

    return cuda_build(Path(spec.origin).parent) is not None

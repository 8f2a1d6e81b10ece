"""Points in time on a device, and the memory that was used there. Child side.

torch.cuda and torch.npu have the same calls, so that one clock reads both.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any, Protocol

from cuda2npu.benchmark.spec import BenchError


class Clock(Protocol):
    """Tells what time it is, as the device sees it."""

    def mark(self) -> Any:
        """A point in time, which comes when the device has done what it was given before."""

    def between(self, start: Any, end: Any) -> float:
        """Milliseconds between two marks; the device must have got to both."""

    def synchronize(self) -> None: ...

    def memory(self) -> dict[str, int]:
        """The most bytes that were in use, by the name of what was counted."""

    def describe(self) -> dict[str, str]: ...


class HostClock:
    """The CPU does at once what it is told."""

    def mark(self) -> float:
        return time.perf_counter()

    def between(self, start: float, end: float) -> float:
        return (end - start) * 1e3

    def synchronize(self) -> None:
        pass

    def memory(self) -> dict[str, int]:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {"resident": peak if sys.platform == "darwin" else peak * 1024}

    def describe(self) -> dict[str, str]:
        import torch

        return {"device": _processor(), "threads": str(torch.get_num_threads())}


class DeviceClock:
    """Events on the current stream of a CUDA device or an NPU."""

    def __init__(self, name: str) -> None:
        """Raise BenchError where torch sees no such device."""
        import torch

        # torch.get_device_module(name) is this; torch before 2.5 lacks it.
        self._module: Any = getattr(torch, name)
        self._name = name
        if not self._module.is_available():
            cure = "; `cuda2npu doctor` says why" if name == "npu" else ""
            raise BenchError(f"--device {name}: torch.{name}.is_available() is False here{cure}")

    def mark(self) -> Any:
        event = self._module.Event(enable_timing=True)
        event.record()
        return event

    def between(self, start: Any, end: Any) -> float:
        return float(start.elapsed_time(end))

    def synchronize(self) -> None:
        self._module.synchronize()

    def memory(self) -> dict[str, int]:
        return {
            "allocated": int(self._module.max_memory_allocated()),
            "reserved": int(self._module.max_memory_reserved()),
        }

    def describe(self) -> dict[str, str]:
        found = {"device": str(self._module.get_device_name())}
        if self._name == "npu":
            found["cann"] = _cann()
        return found


def clock_of(device: str) -> Clock:
    """The clock of ``npu``, ``cuda`` or ``cpu``; raises BenchError where there is none."""
    return HostClock() if device == "cpu" else DeviceClock(device)


def _cann() -> str:
    """As torch_npu tells it, in the releases that do."""
    utils: Any = sys.modules.get("torch_npu.npu.utils")
    tell = getattr(utils, "get_cann_version", None)
    return str(tell()) if tell is not None else "unknown"


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:  # noqa: PTH123
            names = (line.partition(":")[2].strip() for line in stream if "model name" in line)
            name = next(names, "CPU")
    except OSError:
        name = "CPU"
    return f"{name}, {os.cpu_count()} cores"

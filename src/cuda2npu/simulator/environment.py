"""What is simulated, and the environment variables that carry it to every child process."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from cuda2npu.releases.chips import SOC_NAMES
from cuda2npu.simulator import SWITCH, SimulatorError

DEVICES = "CUDA2NPU_SIMULATE_DEVICES"
CHIP = "CUDA2NPU_SIMULATE_CHIP"
MEMORY = "CUDA2NPU_SIMULATE_MEMORY"
LIBRARIES = "CUDA2NPU_SIMULATE_LIBRARIES"

MOST_DEVICES = 64
_SHORT = {"310P": "310P3", "310B": "310B1", "910_93": "910_9391"}
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class Simulation(NamedTuple):
    devices: int = 1
    chip: str = "Ascend910B1"
    memory: int | None = None
    """Bytes per device; None is what the chip has."""


def simulation(
    devices: int = 1, chip: str = "Ascend910B1", memory: str | None = None
) -> Simulation:
    """Check what was asked for."""
    if not 1 <= devices <= MOST_DEVICES:
        raise SimulatorError(f"{devices} devices: must be 1 to {MOST_DEVICES}")
    return Simulation(devices, _chip(chip), None if memory is None else _bytes(memory))


def _chip(name: str) -> str:
    short = re.sub("(?i)^ascend", "", name.strip())
    short = _SHORT.get(short.upper(), short)
    for known in SOC_NAMES:
        if known.lower() == f"ascend{short}".lower():
            return known
    raise SimulatorError(f"torch_npu knows no chip {name!r}; it knows {', '.join(SOC_NAMES)}")


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(?i)\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\s*", text)
    size = int(float(found[1]) * _UNITS[found[2].upper()]) if found else 0
    if not size:
        raise SimulatorError(f"{text!r} is no size of memory; write 16GiB, 512MiB or bytes")
    return size


def from_environment(environ: Mapping[str, str]) -> Simulation:
    """What the variables ask for; those that are not there leave the default."""
    devices = environ.get(DEVICES) or "1"
    if not devices.isdecimal():
        raise SimulatorError(f"{DEVICES}={devices} is no number")
    return simulation(int(devices), environ.get(CHIP) or "Ascend910B1", environ.get(MEMORY) or None)


def variables(asked: Simulation, libraries: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables to set over ``environ`` for a process and its children."""
    search = [str(libraries)]
    search += [
        part
        for part in environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
        if part and part != str(libraries)
    ]
    return {
        SWITCH: "1",
        DEVICES: str(asked.devices),
        CHIP: asked.chip,
        MEMORY: "" if asked.memory is None else str(asked.memory),
        LIBRARIES: str(libraries),
        "LD_LIBRARY_PATH": os.pathsep.join(search),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "1",
        # torch_npu warns when it finds no CANN, and hands operators to a thread of its own,
        # which the CPU kernels would race with.
        "ASCEND_HOME_PATH": str(libraries / "cann"),
        "ASCEND_OPP_PATH": str(libraries / "cann" / "opp"),
        "TASK_QUEUE_ENABLE": "0",
    }


def real_npus() -> list[str]:
    """The device files of the Ascend driver."""
    return sorted(str(path) for path in Path("/dev").glob("davinci[0-9]*"))

"""What a child needs to find an NPU: a real one, else the simulated one, which says so."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from cuda2npu.running.devices import has_npu
from cuda2npu.simulator import SWITCH
from cuda2npu.smoke.spec import SIMULATOR_NOTES, SmokeError

_PACKAGES = {
    "capture": ("numpy", "safetensors"),
    "smoke": ("numpy", "safetensors", "torch", "torch_npu"),
}


class Machine(NamedTuple):
    """Where the NPU run is done."""

    environment: dict[str, str]
    simulated: bool


def reference_environment() -> dict[str, str]:
    """The reference sees no NPU; what torch loads by itself leads the processes it starts."""
    return {"TORCH_DEVICE_BACKEND_AUTOLOAD": "1", SWITCH: ""}


def check_installed(extra: str) -> None:
    """Raise SmokeError unless the packages of an extra are there; none of them is imported."""
    if find_spec("torch") is None and extra == "capture":
        raise SmokeError("torch is not installed; install the release that the script runs with")
    for name in _PACKAGES[extra]:
        if find_spec(name) is None:
            raise SmokeError(f"{name} is not installed; do: pip install 'cuda2npu[{extra}]'")


def machine(folder: Path, devices: int = 1) -> Machine:
    """The real NPU when there is one; raises SmokeError when there can be none."""
    if has_npu():
        return Machine({}, simulated=False)
    return Machine(_simulator(folder / SIMULATOR_NOTES, devices), simulated=True)


def _simulator(notes: Path, devices: int) -> dict[str, str]:
    """The environment that gives a child a simulated NPU."""
    from cuda2npu.simulator import SimulatorError
    from cuda2npu.simulator.build import libraries
    from cuda2npu.simulator.environment import simulation, variables
    from cuda2npu.simulator.record import RECORD_VARIABLE

    try:
        found = variables(simulation(devices), libraries(), os.environ)
    except SimulatorError as error:
        raise SmokeError(f"there is no NPU here, and none can be simulated: {error}") from None
    return {**found, RECORD_VARIABLE: str(notes)}

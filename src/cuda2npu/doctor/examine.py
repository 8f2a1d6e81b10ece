"""Looks at everything, in an order in which what comes first explains what comes later."""

from __future__ import annotations

from dataclasses import dataclass

from cuda2npu.doctor import ascend, devices, environment, software, usage
from cuda2npu.doctor.attempt import Attempt, attempt
from cuda2npu.doctor.check import Check, Status, unchecked
from cuda2npu.doctor.devices import Devices
from cuda2npu.doctor.failures import Advice, cpu_torch
from cuda2npu.doctor.machine import Machine
from cuda2npu.doctor.packages import Packages, look_up
from cuda2npu.simulator.environment import DEVICES

SIMULATED = "the NPU is simulated"
OF_A_REAL_NPU = (
    "CANN toolkit",
    "CANN kernels",
    "driver",
    "firmware",
    "set_env.sh",
    "LD_LIBRARY_PATH",
    "npu-smi info",
    "device files",
)
OF_DEVICES = ("driver", environment.VISIBLE_ROW, "npu-smi info", "device files")
"""The rows that can say why no device is found."""


@dataclass(frozen=True)
class Diagnosis:
    """All that was found."""

    checks: tuple[Check, ...]
    simulated: bool
    ran: bool
    """Whether an operation ran on the NPU."""
    devices: Devices | None = None

    def having(self, status: Status) -> list[Check]:
        return [check for check in self.checks if check.status is status]

    @property
    def can_run(self) -> bool:
        return self.ran and not self.having(Status.WRONG)

    @property
    def verdict(self) -> str:
        """The last word."""
        wrong = len(self.having(Status.WRONG))
        things = "1 thing is wrong" if wrong == 1 else f"{wrong} things are wrong"
        if self.simulated and self.can_run:
            return (
                "NPU code runs here on the simulated NPU; nothing is said of a real one, its "
                "driver and CANN"
            )
        if self.can_run:
            return "NPU code can run here"
        if self.ran:
            return f"an operation ran on the NPU, but {things}"
        return f"NPU code cannot run here: {things}"


def examine(machine: Machine, timeout: float) -> Diagnosis:
    """Raises UsageError if the machine's Python is none."""
    system = software.system(machine)
    if machine.system != "Linux":
        rest = unchecked("everything else", "there is no Linux")
        return Diagnosis((system, rest), machine.simulated, ran=False)
    packages = look_up(machine)
    rows = [
        system,
        software.python(packages, machine),
        software.torch(packages, machine),
        software.torch_npu(packages, machine),
    ]
    if machine.simulated:
        return _simulated(machine, packages, rows, timeout)
    installed = ascend.installed(machine)
    own = packages.versions.get("torch_npu", "")
    source = ascend.how_to_source(installed, machine, own)
    found = devices.look(machine, environment.visible_devices(machine))
    rows += software.requirements(packages, installed.cann)
    rows.append(software.numpy(packages, installed.cann))
    rows += ascend.checks(installed, machine, own, found.chips)
    rows += environment.checks(installed, machine, source, found.number)
    rows += found.checks
    tried = _try(machine, packages, timeout)
    rows += _usage(tried, machine, packages, source, rows)
    return Diagnosis(tuple(rows), simulated=False, ran=_came_through(tried), devices=found)


def _simulated(
    machine: Machine, packages: Packages, rows: list[Check], timeout: float
) -> Diagnosis:
    """Of a real NPU nothing is said; the list of visible devices holds for the simulated ones."""
    rows += software.requirements(packages, "")
    rows.append(software.numpy(packages, ""))
    rows += [unchecked(name, SIMULATED) for name in OF_A_REAL_NPU]
    number = machine.environ.get(DEVICES) or "1"
    rows.append(environment.visible(machine, int(number) if number.isdecimal() else None))
    tried = _try(machine, packages, timeout)
    rows += _usage(tried, machine, packages, "start it with cuda2npu simulate --", rows)
    return Diagnosis(tuple(rows), simulated=True, ran=_came_through(tried))


def _try(machine: Machine, packages: Packages, timeout: float) -> Attempt | None:
    """None where there is nothing to try."""
    there = {"torch", "torch_npu"} <= set(packages.folders)
    return attempt(machine, timeout) if there else None


def _usage(
    tried: Attempt | None, machine: Machine, packages: Packages, source: str, rows: list[Check]
) -> list[Check]:
    if tried is None:
        return usage.untried("torch and torch_npu are not both here")
    advice = Advice(
        source=source,
        torch=cpu_torch(software.needed_torch(packages), machine.architecture),
        folder=str(packages.folders["torch_npu"]),
        hiding=tuple(row.name for row in rows if row.name in OF_DEVICES and row.todo),
    )
    return list(usage.checks(tried, advice))


def _came_through(tried: Attempt | None) -> bool:
    return tried is not None and not tried.failed

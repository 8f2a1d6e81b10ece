"""Checks of Ascend's software: CANN, its kernels, driver and firmware, and whether they fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cuda2npu.doctor import table, versions
from cuda2npu.doctor.check import Check, ok, unchecked, warning, wrong
from cuda2npu.doctor.machine import Machine
from cuda2npu.doctor.table import Pair
from cuda2npu.doctor.versions import Package

MANAGERS = ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")
"""Device files that each process opens beside those of its NPUs."""
HAND_IN = (
    "in a container, mount the driver and hand the devices in: docker run "
    "-v /usr/local/Ascend/driver:/usr/local/Ascend/driver "
    "-v /usr/local/dcmi:/usr/local/dcmi -v /usr/local/bin/npu-smi:/usr/local/bin/npu-smi "
    + " ".join(f"--device {path}" for path in ("/dev/davinci0", *MANAGERS))
)
NO_NPU = f"use a machine with an Ascend NPU and its driver; {HAND_IN}"
KERNEL_FOLDER = "built-in/op_impl/ai_core/tbe/kernel"
"""Below the folder opp: the compiled operators, a folder per kind of chip."""
_KINDS = (("910B", "ascend910b"), ("310P", "ascend310p"), ("310B", "ascend310b"))
"""How npu-smi's names of chips begin, and the folders of their kernels. ``Ascend910`` is the name
of two kinds, so it is not judged."""


@dataclass(frozen=True)
class Installed:
    """Ascend's software on this machine."""

    home: Path | None
    toolkit: Package | None
    kernels: Package | None
    driver: Package | None
    firmware: Package | None

    @property
    def cann(self) -> str:
        return self.toolkit.version if self.toolkit else ""


def installed(machine: Machine) -> Installed:
    home = versions.home(machine)
    return Installed(
        home,
        versions.toolkit(home) if home else None,
        versions.kernels(home) if home else None,
        versions.driver(machine),
        versions.firmware(machine),
    )


def pair_of(torch_npu: str) -> Pair | None:
    public = torch_npu.partition("+")[0]
    return next((pair for pair in table.pairs() if pair.torch_npu == public), None)


def how_to_source(software: Installed, machine: Machine, torch_npu: str) -> str:
    """What gives a shell CANN's variables, or puts CANN there first."""
    if software.home is None:
        pair = pair_of(torch_npu)
        which = f" {pair.cann}" if pair and pair.cann else ""
        return (
            f"install CANN{which} (toolkit and the kernels of your chip), then: "
            "source /usr/local/Ascend/ascend-toolkit/set_env.sh"
        )
    # The script lies beside the folder that it points to, or in it: CANN 8 and 9.
    places = (software.home / "set_env.sh", software.home.parent / "set_env.sh")
    script = next((one for one in places if one.is_file()), places[1])
    return f"source {machine.shown(script)}"


def checks(
    software: Installed, machine: Machine, torch_npu: str, chips: tuple[str, ...]
) -> Iterator[Check]:
    """The rows about CANN, driver and firmware."""
    yield _toolkit(software, machine, torch_npu)
    yield _kernels(software, chips)
    yield _driver(software, machine, chips)
    yield _firmware(software)


def _toolkit(software: Installed, machine: Machine, torch_npu: str) -> Check:
    name = "CANN toolkit"
    source = how_to_source(software, machine, torch_npu)
    if software.home is None:
        places = ", ".join(versions.DEFAULT_HOMES)
        return wrong(name, f"not found in ASCEND_HOME_PATH, {places}", source)
    where = machine.shown(software.home)
    if software.toolkit is None:
        return unchecked(name, f"{where} holds no file that tells its version")
    version = software.toolkit.version
    found = f"{version}, {where}"
    pair = pair_of(torch_npu) if torch_npu else None
    if pair is None:
        about = f"torch_npu {torch_npu}" if torch_npu else "no torch_npu"
        return ok(name, f"{found}; not checked: no CANN was published for {about}")
    if table.is_pair(pair, version):
        return ok(name, f"{found}; published with torch_npu {torch_npu} ({pair.source})")
    stated = f"CANN {pair.cann}" if pair.cann else f"its product version {pair.product}"
    if table.is_compatible(pair, version):
        return ok(name, f"{found}; compatible; torch_npu {torch_npu} came with {stated}")
    todo = f"install {stated}, or the torch-npu that was published with CANN {version}"
    text = f"{found}, but torch_npu {torch_npu} was published with {stated} ({pair.source})"
    return warning(name, text, todo)


def _kernels(software: Installed, chips: tuple[str, ...]) -> Check:
    name = "CANN kernels"
    if software.home is None or software.toolkit is None:
        return unchecked(name, "there is no toolkit to which they belong")
    version = software.toolkit.version
    todo = f"install the kernels (ops) package of your chip in version {version}"
    if software.kernels is None:
        return warning(name, "not found: operators may have no compiled kernel", todo)
    found = software.kernels.version
    package = software.kernels.fields.get("package_name", "")
    found += f", {package}" if package else ""
    if software.kernels.version != version:
        return warning(name, f"{found}, but the toolkit is {version}", todo)
    there = [path.name for path in (software.home / "opp" / KERNEL_FOLDER).glob("ascend*")]
    for chip in chips:
        kind = next((kind for start, kind in _KINDS if chip.upper().startswith(start)), None)
        if there and kind and kind not in there:
            text = f"{found}: for {', '.join(sorted(there))}, not for the {chip} of this machine"
            return wrong(name, text, todo)
    return ok(name, found)


def _driver(software: Installed, machine: Machine, chips: tuple[str, ...]) -> Check:
    name, package = "driver", software.driver
    if package is None:
        if chips or any(machine.at("/dev").glob("davinci[0-9]*")):
            return unchecked(name, "version.info is not here, as in many containers")
        text = "not installed: no version.info in /usr/local/Ascend/driver"
        return wrong(name, text, NO_NPU)
    if software.toolkit is None:
        return ok(name, f"{package.version}; not checked: whether it fits a CANN")
    fits = versions.drives(package, software.toolkit)
    cann = f"CANN {software.cann}"
    if fits is None:
        return ok(name, f"{package.version}; not checked: it does not say whether it fits {cann}")
    if fits:
        return ok(name, f"{package.version}; fits {cann}, by its version.info")
    text = f"{package.version}: neither its version.info nor that of {cann} names the other"
    return warning(name, text, f"install the driver that CANN's release notes name for {cann}")


def _firmware(software: Installed) -> Check:
    name, package = "firmware", software.firmware
    if package is None:
        return unchecked(name, "no version.info in /usr/local/Ascend/firmware")
    fits = versions.takes_firmware(software.driver, package) if software.driver else None
    if fits is None:
        return ok(name, f"{package.version}; not checked: whether it fits the driver")
    if fits:
        return ok(name, f"{package.version}; fits the driver, by its version.info")
    text = f"{package.version}: not among those that the driver's version.info names"
    return warning(name, text, "install the firmware that came with the driver, then restart")

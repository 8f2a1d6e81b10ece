"""The versions of CANN, its kernels, the driver and the firmware, from the files they leave.

Sources: CANN's installation guide, "File Paths" (8.0 and 8.5), for ``ascend_toolkit_install.info``
and ``ascend_ops_install.info``; torch_npu's ``get_cann_version`` for the driver's place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from cuda2npu.doctor.machine import Machine, read
from cuda2npu.doctor.table import numbers

DEFAULT_HOMES = (
    "/usr/local/Ascend/ascend-toolkit/latest",
    "/usr/local/Ascend/cann",
    "/usr/local/Ascend/nnae/latest",
)
"""Where the toolkit of root lies; that of a user lies at the same place below the home folder."""
INSTALLED = "/etc/ascend_install.info"
"""Names the folders that driver and firmware were installed into."""


class Package(NamedTuple):
    """One installed package of Ascend's software."""

    version: str
    file: Path
    fields: Mapping[str, str]
    """The file's keys, in small letters, and values."""


def fields(text: str) -> dict[str, str]:
    """``key=value`` lines; the keys in small letters, for files differ in that."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip().lower(): value.strip().strip('"') for key, _, value in pairs}


def _package(file: Path, *keys: str) -> Package | None:
    text = read(file)
    if text is None:
        return None
    found = fields(text)
    version = next((found[key] for key in keys if found.get(key)), "")
    return Package(version, file, found) if version else None


def home(machine: Machine) -> Path | None:
    """The folder of CANN: that of the variables, else the first that tells a version."""
    for name in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"):
        named = machine.environ.get(name)
        if named and Path(named).is_dir():
            return Path(named)
    places = [machine.at(place) for place in DEFAULT_HOMES]
    user = machine.environ.get("HOME")
    if user:
        places += [Path(user) / place.removeprefix("/usr/local/") for place in DEFAULT_HOMES]
    there = [place for place in places if place.is_dir()]
    return next((place for place in there if toolkit(place)), there[0] if there else None)


def toolkit(home: Path) -> Package | None:
    """CANN itself, as the files of its folder tell, the most exact one first."""
    for pattern in ("*-linux/ascend_*_install.info", "ascend_*_install.info"):
        for file in sorted(home.glob(pattern)):
            if re.search(r"_(toolkit|nnae|nnrt)_", file.name):
                return _package(file, "version")
    running = _running(home, "toolkit") or _running(home, "runtime")
    if running:
        return running
    for part in ("toolkit", "runtime", "compiler"):
        found = _package(home / part / "version.info", "version_dir")
        if found:
            return found
    return None


def kernels(home: Path) -> Package | None:
    """The package of compiled operators: "ops" since CANN 8.5, "kernels" before."""
    for file in sorted(home.glob("*-linux/ascend_ops_install.info")):
        return _package(file, "version")
    found = _package(home / "opp_kernel" / "version.info", "version_dir")
    return found or _running(home, "opp_kernel")


def _running(home: Path, part: str) -> Package | None:
    """What ``version.cfg`` says: ``toolkit_running_version=[7.6.0.1.220:8.0.0]``."""
    found = _package(home / "version.cfg", f"{part}_running_version")
    if found is None:
        return None
    return found._replace(version=found.version.strip("[]").rpartition(":")[2])


def driver(machine: Machine) -> Package | None:
    return _installed(machine, "driver")


def firmware(machine: Machine) -> Package | None:
    return _installed(machine, "firmware")


def _installed(machine: Machine, part: str) -> Package | None:
    record = fields(read(machine.at(INSTALLED)) or "")
    place = record.get(f"{part}_install_path_param", "/usr/local/Ascend")
    return _package(machine.at(f"{place}/{part}/version.info"), "package_version", "version")


def drives(driver_of: Package, toolkit_of: Package) -> bool | None:
    """Whether driver and toolkit name each other; None if their files do not say.

    ``compatible_version`` names families such as ``V100R001C19``; two in brackets are a range.
    """
    answers = [
        _family_in(other.fields.get("innerversion", ""), one.fields.get("compatible_version", ""))
        for one, other in ((driver_of, toolkit_of), (toolkit_of, driver_of))
    ]
    return True if True in answers else False if False in answers else None


def _family_in(version: str, stated: str) -> bool | None:
    own = re.match(r"(V\d+R\d+)C(\d+)", version)
    spans = re.findall(r"\[([^\]]+)\]", stated)
    if own is None or not spans:
        return None
    for span in spans:
        ends = re.findall(r"(V\d+R\d+)C(\d+)", span)
        same_line = bool(ends) and ends[0][0] == own[1]
        if same_line and int(ends[0][1]) <= int(own[2]) <= int(ends[-1][1]):
            return True
    return False


def takes_firmware(driver_of: Package, firmware_of: Package) -> bool | None:
    """Whether the firmware is in the driver's ``compatible_version_fw``, ranges of versions."""
    own = numbers(firmware_of.fields.get("version", ""))
    spans = re.findall(r"\[([^,\]]+),([^\]]+)\]", driver_of.fields.get("compatible_version_fw", ""))
    if not own or not spans:
        return None
    return any(numbers(low) <= own <= numbers(high) for low, high in spans)

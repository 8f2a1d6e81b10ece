"""Checks of the variables: CANN's, the loader's path, and which devices are visible."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from cuda2npu.doctor.ascend import Installed
from cuda2npu.doctor.attempt import AUTOLOAD
from cuda2npu.doctor.check import Check, ok, unchecked, warning, wrong
from cuda2npu.doctor.failures import DRIVER_PATH
from cuda2npu.doctor.machine import Machine

VISIBLE = "ASCEND_RT_VISIBLE_DEVICES"
VISIBLE_ROW = "visible devices"
MOST = 64
"""As many devices torch_npu counts on where the variable is not set."""
OF_CANN = ("libhccl.so", "libascendcl.so")
OF_DRIVER = "libascend_hal.so"


def set_env(software: Installed, machine: Machine, source: str) -> Check:
    """What ``set_env.sh`` sets, as torch_npu checks it when it is imported."""
    name = "set_env.sh"
    home = machine.environ.get("ASCEND_HOME_PATH")
    if home is None and software.home is None:
        return unchecked(name, "there is no CANN whose script could be sourced")
    if home is None:
        return wrong(name, "not sourced: ASCEND_HOME_PATH is not set", source)
    if not Path(home).is_dir():
        return wrong(name, f"ASCEND_HOME_PATH is {home}, which is not there", source)
    opp = machine.environ.get("ASCEND_OPP_PATH")
    if not opp:
        return wrong(name, "ASCEND_OPP_PATH is not set", source)
    if not Path(opp).is_dir():
        return wrong(name, f"ASCEND_OPP_PATH is {opp}, which is not there", source)
    gone = [part for part in ("runtime", "compiler") if not Path(home, part).is_dir()]
    if gone:
        text = f"{home} has no folder {' and '.join(gone)}: part of the toolkit is missing"
        return wrong(name, text, "install the whole CANN toolkit, and source its set_env.sh")
    return ok(name, f"sourced: ASCEND_HOME_PATH is {home}")


def library_path(software: Installed, machine: Machine, source: str) -> Check:
    """Whether the loader's variable leads to the libraries, and to those of one CANN alone."""
    name = "LD_LIBRARY_PATH"
    value = machine.environ.get("LD_LIBRARY_PATH", "")
    if software.home is None:
        return unchecked(name, "there is no CANN that it could lead to")
    parts = [Path(part) for part in value.split(os.pathsep) if part]
    lacking = [lib for lib in OF_CANN if not any((part / lib).exists() for part in parts)]
    if lacking:
        text = f"no folder of it holds {' and '.join(lacking)}"
        return warning(name, text, source)
    roots = {(part / OF_CANN[0]).resolve() for part in parts if (part / OF_CANN[0]).exists()}
    if len(roots) > 1:
        text = f"leads to more than one CANN: {', '.join(sorted(str(r.parent) for r in roots))}"
        return warning(name, text, f"start a new shell, and do once: {source}")
    if not any((part / OF_DRIVER).exists() for part in parts):
        return warning(
            name, f"no folder of it holds {OF_DRIVER}, the driver's library", DRIVER_PATH
        )
    return ok(name, "leads to the libraries of CANN and of the driver")


def autoload(machine: Machine) -> Check:
    """Whether ``import torch`` loads torch_npu, which torch does from 2.5 on."""
    name = "autoload"
    if machine.environ.get(AUTOLOAD, "1") == "0":
        return ok(name, f"off by {AUTOLOAD}=0: scripts must import torch_npu, or torch has no npu")
    return ok(name, "on: torch 2.5 and newer import torch_npu by themselves")


def visible(machine: Machine, count: int | None) -> Check:
    """The list of visible devices, as the runtime reads it.

    Source: ``_parse_visible_devices`` and ``_device_count_ascend_hal`` in torch_npu's
    ``npu/__init__.py``. ``count`` is None where it is not known how many devices there are.
    """
    value = machine.environ.get(VISIBLE)
    if value is None:
        return ok(VISIBLE_ROW, f"all: {VISIBLE} is not set")
    numbers, meant = _numbers(value), _meant(value, MOST if count is None else count)
    given = f"{VISIBLE}={value}"
    fault = _fault(numbers, count)
    if fault:
        todo = f"export {VISIBLE}={','.join(map(str, meant)) or '0'}"
        return wrong(VISIBLE_ROW, f"{given} {fault}", todo)
    if set(meant) - set(numbers):
        text = (
            f"{given}: only {','.join(map(str, numbers))} is read, for what is neither a digit nor "
            "a comma ends the list, and so does an empty place"
        )
        return warning(VISIBLE_ROW, text, f"export {VISIBLE}={','.join(map(str, meant))}")
    return ok(VISIBLE_ROW, given if count is not None else f"{given}; not checked: how many exist")


def _fault(numbers: list[int], count: int | None) -> str:
    """Why the runtime finds less than the list names; empty if it does not."""
    if not numbers:
        return "makes no device visible"
    if len(set(numbers)) < len(numbers):
        return "names a device twice, and so makes none visible"
    if numbers != sorted(numbers):
        return "does not ascend, and so makes no device visible"
    if count and numbers[-1] >= count:
        return f"goes beyond the last device, which is {count - 1}"
    if numbers[-1] >= MOST:
        return f"goes beyond the {MOST} devices that torch_npu counts on"
    return ""


def visible_devices(machine: Machine) -> tuple[int, ...] | None:
    """The devices that the variable names; None for all."""
    value = machine.environ.get(VISIBLE)
    return None if value is None else tuple(_numbers(value))


def _numbers(value: str) -> list[int]:
    """The list up to the first character that belongs into none, or to an empty place."""
    listed = re.match(r"(?:[0-9]+,)*(?:[0-9]+)?", value)
    return [_number(part) for part in (listed[0] if listed else "").split(",") if part]


def _meant(value: str, count: int) -> list[int]:
    """The devices that a person who wrote this list wants, of those that exist."""
    words = re.split(r"[^\w-]+", re.sub(r"\s*-\s*", "-", value))
    spans = [re.fullmatch(r"(\d+)(?:-(\d+))?", word) for word in words]
    ends = [(_number(one[1]), _number(one[2] or one[1])) for one in spans if one]
    return [one for one in range(count) if any(low <= one <= high for low, high in ends)]


def _number(digits: str) -> int:
    """Of a number that is far too large the first digits will do: int() refuses very long ones."""
    return int(digits.lstrip("0")[:10] or "0")


def checks(
    software: Installed, machine: Machine, source: str, count: int | None
) -> Iterator[Check]:
    """The rows about variables."""
    yield set_env(software, machine, source)
    yield library_path(software, machine, source)
    yield autoload(machine)
    yield visible(machine, count)

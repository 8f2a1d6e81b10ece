"""Checks of the system, of Python and of the installed packages, and whether they fit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from cuda2npu.doctor import table
from cuda2npu.doctor.check import Check, ok, unchecked, warning, wrong
from cuda2npu.doctor.failures import CPU_BUILD, TORCH_PAIR, cpu_torch, elsewhere
from cuda2npu.doctor.machine import Machine
from cuda2npu.doctor.packages import MODULES, OF_CANN, Packages, name_of, pip_install
from cuda2npu.doctor.table import numbers
from cuda2npu.simulator.build import cuda_build

MACHINES = ("x86_64", "aarch64")
REFUSES_CUDA = (2, 5, 1)
"""torch_npu's first release that raises beside a torch built for CUDA ("Two accelerators …")."""
NUMPY_2 = (2, 3)
"""The first torch whose wheels were compiled for NumPy 2, too."""


def system(machine: Machine) -> Check:
    name = "system"
    found = f"{machine.system} {machine.architecture}"
    if machine.system != "Linux":
        todo = "use a Linux machine with an Ascend NPU, or a container there"
        return wrong(name, f"{found}: torch_npu and CANN exist for Linux alone", todo)
    if machine.architecture not in MACHINES:
        todo = f"use a machine with {' or '.join(MACHINES)}"
        return wrong(name, f"{found}: torch_npu has no wheel for this architecture", todo)
    return ok(name, found)


def python(packages: Packages, machine: Machine) -> Check:
    """Whether there is a torch_npu for this Python at all."""
    minor = ".".join(packages.python.split(".")[:2])
    found = f"{packages.python}, {machine.python}"
    fitting = [w.torch_npu for w in table.wheels() if minor in w.pythons(machine.architecture)]
    if fitting:
        return ok("Python", found)
    newest = table.wheels()[0]
    todo = f"use Python {', '.join(newest.pythons(machine.architecture))} for the newest torch_npu"
    text = f"{found}: no torch_npu release has a wheel for Python {minor} here"
    return (warning if "torch_npu" in packages.folders else wrong)("Python", text, todo)


def needed_torch(packages: Packages) -> str:
    """The torch that the installed torch_npu is for, such as ``2.13.0``; empty if unknown."""
    pins = [one for one in packages.requires if name_of(one) == "torch"]
    stated = pins[0].partition("==")[2] if pins else packages.versions.get("torch_npu", "")
    return ".".join(map(str, numbers(stated)))


def torch(packages: Packages, machine: Machine) -> Check:
    name, folder = "torch", packages.folders.get("torch")
    needed = needed_torch(packages)
    pip = cpu_torch(needed, machine.architecture)
    if folder is None:
        return wrong(name, "not installed", pip if needed else _install(packages, machine))
    fault = _broken(name, packages) or _stranger(name, packages)
    if fault:
        return fault
    version = packages.versions.get("torch", "")
    if not version:
        return warning(name, f"{folder}: no package, only a folder", "install torch with pip")
    other = _accelerator(folder, version)
    found = f"{version}, built for {other}" if other else version
    own = packages.versions.get("torch_npu", "")
    if needed and numbers(version) != numbers(needed):
        text = f"{found}, but torch_npu {own} needs {needed}"
        return wrong(name, text, TORCH_PAIR.format(torch=pip))
    if other and own:
        todo = CPU_BUILD.format(torch=pip)
        text = f"{found}: torch_npu does not run beside a build for another accelerator"
        if numbers(own) >= REFUSES_CUDA:
            return wrong(name, text, todo)
        return warning(name, f"{found}; torch_npu {own} asks for the build for the CPU", todo)
    return ok(name, found)


def _accelerator(folder: Path, version: str) -> str:
    """What torch was built for beside the CPU, by its file or the label of its version."""
    cuda = cuda_build(folder)
    if cuda:
        return f"CUDA {cuda}"
    label = re.search(r"\+(cu(?=\d)|rocm|xpu)([\d.]*)", version)
    if label is None:
        return ""
    if label[1] == "cu":
        return f"CUDA {label[2][:-1]}.{label[2][-1:]}"  # cu118 is 11.8
    return f"{'ROCm' if label[1] == 'rocm' else 'XPU'} {label[2]}".strip()


def _broken(name: str, packages: Packages) -> Check | None:
    """A distribution whose metadata tells no version."""
    why = packages.broken.get(name)
    todo = f"remove its .dist-info folder there, then install {name} anew with pip"
    return wrong(name, why, todo) if why else None


def _stranger(name: str, packages: Packages) -> Check | None:
    """A module of that name which is not the package, mostly one of the current folder."""
    if name not in packages.strangers:
        return None
    place, version = packages.folders[name], packages.versions.get(name)
    text = f"{place}: no package, only a {'file' if place.suffix == '.py' else 'folder'}"
    if version:
        text = f"{version}, but Python takes it from {place}, which holds no compiled library"
        if place.suffix == ".py":
            text = f"{version}, but Python takes it from {place}, which is another module"
    return wrong(name, text, elsewhere(name))


def _plain(version: str) -> str:
    return ".".join(map(str, numbers(version)))


def torch_npu(packages: Packages, machine: Machine) -> Check:
    name, folder = "torch_npu", packages.folders.get("torch_npu")
    version = packages.versions.get("torch_npu", "")
    if folder is None:
        return wrong(name, "not installed", _install(packages, machine))
    if not version and name not in packages.broken:
        return wrong(name, f"{folder}: no package, only a folder", elsewhere(name))
    return _broken(name, packages) or _stranger(name, packages) or ok(name, version)


def _install(packages: Packages, machine: Machine) -> str:
    """How to install torch_npu: the release of the torch that is there, else the newest."""
    minor = ".".join(packages.python.split(".")[:2])
    own = numbers(packages.versions.get("torch", ""))
    fitting = [w for w in table.wheels() if minor in w.pythons(machine.architecture)]
    for wheel in fitting:
        if numbers(wheel.torch_npu) == own:
            return f"pip install torch-npu=={wheel.torch_npu}"
    if not fitting:
        return "install torch-npu with a Python that has a wheel; see the row Python"
    torch_of = cpu_torch(_plain(fitting[0].torch), machine.architecture)
    pair = f"{torch_of}; then: pip install torch-npu=={fitting[0].torch_npu}"
    if own:
        return f"torch {_plain(packages.versions['torch'])} has no torch_npu here: {pair}"
    return pair


def requirements(packages: Packages, cann: str) -> Iterator[Check]:
    """Packages that torch_npu imports, and those that CANN's operator compiler imports."""
    known = {*packages.versions, *packages.broken}
    for name in sorted(set(packages.broken) - set(MODULES)):
        fault = _broken(name, packages)
        if fault and (name in packages.required or cann):
            yield fault
    if "torch_npu" in packages.versions:
        missing = [name for name in packages.required if name not in known]
        name = "torch_npu's packages"
        if missing:
            todo = f"pip install {' '.join(missing)}"
            yield wrong(name, f"not installed: {', '.join(missing)}", todo)
        else:
            yield ok(name, ", ".join(packages.required) or "it names none")
    if not cann:
        return
    missing = [name for name in OF_CANN if name not in known]
    if missing:
        text = f"not installed: {', '.join(missing)}; CANN needs them to compile operators"
        yield warning("CANN's packages", text, pip_install(missing))
    else:
        yield ok("CANN's packages", "all that its operator compiler imports")


def numpy(packages: Packages, cann: str) -> Check:
    """NumPy 2 came after many releases of torch and CANN; sources: their wheels and guides."""
    name, version = "numpy", packages.versions.get("numpy", "")
    fault = _broken(name, packages) or _stranger(name, packages)
    if fault:
        return fault
    if not version:
        return unchecked(name, "not installed")
    old = numbers(packages.versions.get("torch", "3"), 2)
    if numbers(version) < (2,):
        return ok(name, version)
    if old < NUMPY_2:
        text = f"{version}, but torch {packages.versions['torch']} was compiled for NumPy 1"
        return wrong(name, text, "pip install 'numpy<2'")
    # CANN 8.5's guide: below 2.0 with a Python below 3.13; 9.0's has no upper limit.
    if cann and numbers(cann) < (9,) and numbers(packages.python, 2) < (3, 13):
        text = f"{version}; CANN {cann} asks for numpy below 2.0"
        return warning(name, text, "pip install 'numpy<2'")
    return ok(name, version)

"""Machines for the tests of doctor: made folders, and Pythons with packages that we wrote."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from cuda2npu.doctor.machine import Machine

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures" / "doctor"
DEVICE_FILES = ("davinci0", "davinci1", "davinci_manager", "devmm_svm", "hisi_hdc")
LIBRARIES = ("libhccl.so", "libascendcl.so", "libascend_hal.so")

TORCH = """
import os

__version__ = "2.8.0+cpu"


class Tensor(float):
    def __add__(self, other):
        return Tensor(float(self) + other)

    def sum(self):
        return Tensor(float(self) * 4)

    def cpu(self):
        return self


def ones(*shape, device):
    return Tensor(1)


if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "1":
    try:
        import torch_npu
    except Exception as error:
        raise RuntimeError("Failed to load the backend extension: torch_npu.") from error
"""
"""What doctor asks of torch, and how torch 2.5 and newer load torch_npu."""

TORCH_NPU = """
import sys
from types import SimpleNamespace

__version__ = "2.8.0"
sys.modules["torch"].npu = SimpleNamespace(
    is_available=lambda: True,
    device_count=lambda: 2,
    get_device_name=lambda index: "Ascend910B2",
)
"""
REQUIRES = ("torch==2.8.0+cpu", "numpy", "pyyaml")


def recorded(name: str) -> str:
    """What npu-smi printed once."""
    return (FIXTURES / "npu-smi" / f"{name}.txt").read_text(encoding="utf-8")


def program(folder: Path, output: str, code: int = 0) -> Path:
    """A folder for PATH whose npu-smi prints this."""
    folder.mkdir(exist_ok=True)
    (folder / "printed.txt").write_text(output, encoding="utf-8")
    script = folder / "npu-smi"
    script.write_text(f'#!/bin/sh\ncat "{folder}/printed.txt"\nexit {code}\n', encoding="utf-8")
    script.chmod(0o755)
    return folder


def root(folder: Path, name: str, devices: int = 2) -> Path:
    """A made root folder with device files and with what a whole CANN has."""
    shutil.copytree(FIXTURES / "machines" / name, folder)
    (folder / "dev").mkdir()
    for file in DEVICE_FILES[:devices] + DEVICE_FILES[2:] if devices else ():
        (folder / "dev" / file).touch()
    home = cann_of(folder)
    for part in ("runtime", "compiler", "opp", "lib64"):
        (home / part).mkdir(exist_ok=True)
    for library in LIBRARIES:
        (home / "lib64" / library).touch()
    return folder


def cann_of(folder: Path) -> Path:
    places = ("usr/local/Ascend/ascend-toolkit/latest", "usr/local/Ascend/cann")
    return next(folder / place for place in places if (folder / place).is_dir())


def sourced(home: Path) -> dict[str, str]:
    """What set_env.sh of this CANN sets."""
    return {
        "ASCEND_HOME_PATH": str(home),
        "ASCEND_OPP_PATH": str(home / "opp"),
        "LD_LIBRARY_PATH": str(home / "lib64"),
    }


class Venv:
    """A virtual environment without pip, whose packages are the ones that a test puts there."""

    def __init__(self, folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        self.python = str(folder / "bin" / "python")
        self.packages = next(folder.glob("lib/python*/site-packages"))

    def package(
        self, name: str, version: str, code: str | None = None, requires: tuple[str, ...] = ()
    ) -> None:
        """Install a distribution; with code, the module of its name."""
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Dist: {one}" for one in requires]
        folder = self.packages / f"{name}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text("\n".join(lines) + "\n", encoding="utf-8")
        if code is not None:
            (self.packages / name).mkdir()
            (self.packages / name / "__init__.py").write_text(code, encoding="utf-8")
            (self.packages / name / "_C.so").touch()

    def pair(self, torch: str = TORCH, torch_npu: str = TORCH_NPU) -> Venv:
        """torch 2.8.0 and a torch_npu that fit each other, and what they need."""
        self.package("torch", "2.8.0+cpu", torch)
        self.package("torch_npu", "2.8.0", torch_npu, REQUIRES)
        self.package("numpy", "1.26.4")
        self.package("pyyaml", "6.0.2")
        return self


def machine(venv: Venv, folder: Path, listing: Path | None, **environ: str) -> Machine:
    """The machine with this Python and root folder, and npu-smi in another folder."""
    variables: Mapping[str, str] = {
        "PATH": str(listing or folder / "nothing"),
        "HOME": str(folder / "root"),
        **environ,
    }
    return Machine(folder, variables, venv.python, "Linux", "x86_64", lambda path: True)

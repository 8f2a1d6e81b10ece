"""Puts the simulated runtime under torch_npu in a running process."""

from __future__ import annotations

import ctypes
import os
import sys
from importlib import import_module
from pathlib import Path

from cuda2npu.simulator import SimulatorError, build
from cuda2npu.simulator.environment import LIBRARIES, Simulation, from_environment, variables

PARTS = ("cuda2npu.simulator.kernels", "cuda2npu.simulator.hccl")
"""The modules whose ``register`` gives torch_npu its operators and its collectives."""

_LAST_STEPS = "torch_npu._init.core.optional_features"
_LAST_STEP = "_enable_optional_features"
_registered = False


def activate(asked: Simulation | None = None) -> None:
    """Simulate in this process and its children. Without an argument: what the variables ask for.

    Needs nothing where ``cuda2npu simulate`` made the environment; elsewhere it must come before
    torch_npu is imported, which is the case before ``import torch``.
    """
    if not _registered:
        if "torch_npu._C" not in sys.modules:
            _prepare(asked or from_environment(os.environ))
        import_module("torch_npu")
        _register()


def is_active() -> bool:
    """Whether operators of the NPU are computed by the simulator in this process."""
    return _registered


def _prepare(asked: Simulation) -> None:
    """Load the libraries by path: the loader read LD_LIBRARY_PATH when the process began."""
    given = os.environ.get(LIBRARIES, "")
    folder = Path(given) if given and Path(given, build.RUNTIME).exists() else build.libraries()
    os.environ.update(variables(asked, folder, os.environ))
    for library in sorted(folder.glob("*.so")):
        ctypes.CDLL(str(library))


def torch_npu_is_loading() -> None:
    """Called by the simulated runtime while ``import torch_npu`` loads it: register at its end."""
    steps = import_module(_LAST_STEPS)
    last = getattr(steps, _LAST_STEP)

    def last_step() -> None:
        last()
        _register()

    setattr(steps, _LAST_STEP, last_step)


def _register() -> None:
    global _registered
    if _registered:
        return
    try:
        ctypes.CDLL(build.RUNTIME, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        raise SimulatorError(
            "torch_npu was loaded with the libraries of a real CANN, not with the simulated ones"
        ) from None
    _registered = True
    for name in PARTS:
        import_module(name).register()

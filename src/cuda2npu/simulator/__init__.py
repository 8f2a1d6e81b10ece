"""A simulated Ascend NPU: the published torch_npu on a machine with neither CANN nor an NPU.

``runtime/`` is a stand-in for the CANN libraries in C, in which device memory is host memory;
``build`` compiles it, ``activate`` puts it under torch_npu, ``kernels`` computes every operator
with torch's own CPU kernels, ``hccl`` leads collectives over Gloo. Names, placement, dtypes and
control flow are torch_npu's own; the accuracy and the speed of NPU kernels are not simulated.
"""

from __future__ import annotations

import os
from importlib import import_module

SWITCH = "CUDA2NPU_SIMULATE"
"""The environment variable that asks for the simulated NPU in a process and its children."""


RECORDED = "CUDA2NPU_SMOKE"
"""The environment variable that names the smoke run whose script started a process."""


class SimulatorError(Exception):
    """The simulated NPU cannot be had here; the message says what to do."""


def autoload() -> None:
    """The entry point of the group ``torch.backends``: called at the end of ``import torch``."""
    if os.environ.get(SWITCH):
        from cuda2npu.simulator.activate import activate

        activate()
    if os.environ.get(RECORDED):
        import_module("cuda2npu.smoke.adopted").adopt()

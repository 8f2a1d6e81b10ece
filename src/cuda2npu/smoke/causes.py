"""Known causes of a script's failure on the NPU, and what cures them."""

from __future__ import annotations

import re
from typing import NamedTuple


class Cause(NamedTuple):
    """Why a script failed, in the user's terms."""

    name: str
    text: str
    cure: str


class _Known(NamedTuple):
    pattern: re.Pattern[str]
    cause: Cause


CUDA_LEFT = "CUDA call left"
TWO_NPUS = "tensors on two NPUs"
_THERE = r"\([^)]*(?:npu|cuda|privateuse)[^)]*\)"
_HERE = r"\((?![^)]*(?:npu|cuda|privateuse))[^)]*\)"
"""A type of tensors on a device, and one on the CPU."""


def _known(pattern: str, name: str, text: str, cure: str) -> _Known:
    return _Known(re.compile(pattern, re.IGNORECASE | re.DOTALL), Cause(name, text, cure))


_CAUSES = (
    _known(
        r"module 'torch' has no attribute 'npu'|Expected one of .* device type at start of device "
        r"string: npu|PyTorch is not linked with support for npu|has no attribute 'npu'",
        "missing import",
        "torch knows no NPU, because torch_npu was not imported before its first use",
        "put `import torch_npu` after `import torch` in the script that runs first",
    ),
    _known(
        r"same device.*npu:(\d+).*npu:(?!\1)\d",
        TWO_NPUS,
        "tensors on two NPUs meet in one operation",
        "give one process one NPU: `torch.npu.set_device(local_rank)` in each that torchrun starts",
    ),
    _known(
        r"unexpected keyword argument 'grad_scaler'",
        "fused optimizer and GradScaler",
        "the GradScaler of torch_npu hands itself to an optimizer made with `fused=True`, whose "
        "`step` takes none in torch",
        "make the optimizer without `fused=True`, or take torch_npu's: "
        "`torch_npu.optim.NpuFusedAdamW(…)`; for the Trainer of transformers, "
        '`optim="adamw_torch"`',
    ),
    _known(
        r"Expected all tensors to be on the same device|Expected .* on the same device|"
        r"found at least two devices|same device.*(cpu|npu)|is on cpu.*npu|"
        rf"Input type {_THERE} and (weight|bias) type {_HERE}|"
        rf"Input type {_HERE} and (weight|bias) type {_THERE}",
        "device mismatch",
        "tensors on the CPU and on the NPU meet in one operation",
        "move the tensor that is made on this line with `.to(device)`; look for layers in plain "
        "lists, buffers that are not registered, and tensors that are made in `forward`",
    ),
    _known(
        r"Input type .* and (weight|bias) type|(the|have) same dtype|dtypes? (to |must )?match|"
        r"expected scalar type|found dtype \w+ but expected|result type \w+ can't be cast|"
        r"have the same (data )?type",
        "dtype mismatch",
        "tensors of two types meet in one operation that wants one",
        "convert the one that is made on this line with `.to(other.dtype)`, or let autocast do it; "
        "look for a model in half precision whose inputs, buffers or later layers are not",
    ),
    _known(
        r"optimizer.*(before|moved)|exp_avg.*device|state.*same device.*step|"
        r"params?, grads?.*same device",
        "optimizer built before the move",
        "the optimizer holds parameters that were on the CPU when it was made",
        "move the model to the NPU first, and build the optimizer from its parameters then",
    ),
    _known(
        r"TypeError.*can't convert npu.*numpy|convert .*npu.* tensor to numpy",
        "tensor on the NPU given to numpy",
        "numpy reads the memory of the CPU alone",
        "write `.cpu().numpy()`",
    ),
    _known(
        r"ProcessGroup.*(HCCL|hccl)|Distributed package doesn't have (HCCL|NCCL)|HcclComm|"
        r"hccl.*(init|timeout|fail)|EI000\d|unknown backend.*hccl",
        "HCCL not up",
        "the process group of the NPUs could not be started",
        "check that torch_npu is imported before `init_process_group`, that the backend is "
        '"hccl", that each process called `torch.npu.set_device`, and that no other run holds '
        "the port",
    ),
    _known(
        r"environment variable (RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|LOCAL_RANK) expected|"
        r"KeyError: '(RANK|LOCAL_RANK|WORLD_SIZE)'",
        "no launcher",
        "the script expects the variables that torchrun sets",
        "start it as torchrun does, with as many processes as it is meant for: "
        "`cuda2npu smoke --nproc 2 …`, or `--nproc 1`",
    ),
    _known(
        r"NPU out of memory|CUDA out of memory|OutOfMemoryError|EL0004|"
        r"Tried to allocate .* (GiB|MiB)",
        "out of memory",
        "the program needs more memory than the device has",
        "take a smaller batch, gradient checkpointing or bfloat16",
    ),
    _known(
        r"Torch not compiled with CUDA enabled|No CUDA GPUs are available|"
        r"Found no NVIDIA driver|Cannot initialize CUDA|Unexpected cuda|libcudart|libcublas",
        CUDA_LEFT,
        "a call still asks for CUDA",
        "look for the device that this line is given: it may come from an argument (leave it out: "
        "its default is rewritten, what you type is not), a variable of the environment, a file, "
        "or a library that the line calls",
    ),
    _known(
        r"error: argument .*invalid choice: '(cuda|nccl)",
        "argument for CUDA",
        "the rewritten script takes another value, and both runs are given the same arguments",
        "leave the argument out where its default is the same; else give it that default",
    ),
    _known(
        r"Could not run 'aten::|Could not run '|NotImplementedError.*(PrivateUse1|npu)|"
        r"aclnn\w+.*(not found|not in|failed)|EZ9999|not implemented for|"
        r"not support(?!ed between instances)|no kernel|not currently implemented",
        "missing operator",
        "the NPU has no kernel for this operation or for this type of its tensors",
        "use float32 where it is float64, another operation of torch, or do this step on the CPU "
        "with `.cpu()` and move the result back",
    ),
    _known(
        r"attempted relative import with no known parent package",
        "script of a package",
        "the script imports its neighbours relatively, which Python allows with `-m` alone",
        "run it as a module: `cuda2npu smoke -m package.module -- ARGS`, in the folder that holds "
        "the package",
    ),
    _known(
        r"ModuleNotFoundError|ImportError",
        "missing module",
        "a module cannot be imported on this machine",
        "install it, or, when it holds CUDA kernels, take its counterpart in torch or torch_npu",
    ),
    _known(
        r"AttributeError: module '(torch[\w.]*)' has no attribute|"
        r"AttributeError: module .* has no attribute",
        "name that does not exist",
        "a module has no such name in the version that is installed here",
        "compare the release that was written for (`--torch-npu`) with the one that is installed",
    ),
)  # fmt: skip

_KILLED = {
    -9: Cause("killed", "the process was killed, most likely for its memory", "take smaller data"),
    -11: Cause("crash", "the process crashed in native code", "the Python frames are shown above"),
    -6: Cause("crash", "the process was aborted in native code", "read the last lines it printed"),
}


_OF_ANY_RUN = ("no launcher", "script of a package", "missing module")
"""Causes that have nothing to do with the device."""
_ON_CPU = Cause(
    "reference on the CPU",
    "the original ran with its CUDA calls led to the CPU, which answers for a GPU as far as "
    "docs/smoke.md says; nothing of it was rewritten yet",
    "if the original runs on a machine with a GPU, keep what it computes there with `cuda2npu "
    "capture` and give that to `--reference`; if it fails there too, mend it first",
)
_ON_CUDA = Cause(
    "original fails", "nothing of it was rewritten yet", "mend the original first, or its arguments"
)


def reference_cause(kind: str, message: str, on_cpu: bool, code: int = 1) -> Cause:
    """Why the original failed: no fault of the NPU's."""
    known = cause_of(kind, message, code)
    if known is not None and (known.name in _OF_ANY_RUN or known in _KILLED.values()):
        return known
    return _ON_CPU if on_cpu else _ON_CUDA


def cause_of(kind: str, message: str, code: int = 1) -> Cause | None:
    """The known cause of an exception, or of the signal that ended a process."""
    if code in _KILLED and not kind:
        return _KILLED[code]
    text = f"{kind}: {message}"
    return next((known.cause for known in _CAUSES if known.pattern.search(text)), None)

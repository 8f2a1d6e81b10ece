"""NVIDIA's libraries and tools: NVML, cuda-python, nvidia-smi, private bindings of torch."""

from __future__ import annotations

import re

import libcst as cst

from cuda2npu.rule import FixLevel, Report, Site, leave, report, rule
from cuda2npu_codemods.expressions import string, terminal
from cuda2npu_codemods.occurrences import (
    imported,
    is_below,
    is_first_import,
    is_guarded,
    is_typing_only,
)
from cuda2npu_codemods.triggers import LIBRARY_WORDS, NVML_WORDS, PRIVATE_WORDS, SMI_WORDS

_CUDA_PYTHON = ("cuda.cudart", "cuda.cuda", "cuda.bindings", "cuda.nvrtc")
_LIBRARIES = ("pynvml", "py3nvml", "nvidia_smi", *_CUDA_PYTHON)
_DRIVER = (
    "this library speaks to the NVIDIA driver, which an NPU machine lacks: read memory with "
    "torch.npu.mem_get_info(), load with torch.npu.utilization(), everything else with npu-smi"
)
_RUNTIME = (
    "cuda-python calls the CUDA driver, runtime and compiler, which an NPU machine lacks: use the "
    "streams, events and graphs of torch.npu, or acl, the Python interface of CANN"
)
_GUARDED = ". This import is guarded: see what runs without it"


@rule(
    "NPU135",
    "nvidia-library-import",
    on=(cst.Import, cst.ImportFrom, cst.Call),
    words=NVML_WORDS,
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why=_DRIVER,
    examples=(
        report("import torch\nimport pynvml"),
        report("import torch\nfrom cuda import cudart"),
        report("import torch\nnvml = __import__('pynvml')"),
        report("import torch\nif HAS_CUDA_PYTHON:\n    from cuda.bindings import runtime"),
        leave("import torch\nfrom .cuda import cudart"),
        leave("import torch\nfrom numba import cuda"),
    ),
)
def nvidia_library_import(
    node: cst.Import | cst.ImportFrom | cst.Call, site: Site
) -> Report | None:
    if isinstance(node, cst.Call):
        called = terminal(node.func) in ("__import__", "import_module") and node.args
        return Report() if called and string(node.args[0].value) in _LIBRARIES else None
    if not any(is_below(name, _LIBRARIES) for name in imported(node)):
        return None
    if is_typing_only(site) or not is_first_import(site, _LIBRARIES):
        return None
    if not site.file.imports("torch"):
        return None
    runtime = any(is_below(name, _CUDA_PYTHON) for name in imported(node))
    message = _RUNTIME if runtime else _DRIVER
    return Report(message + _GUARDED, quiet=True) if is_guarded(site) else Report(message)


_COMMANDS = ("run", "Popen", "call", "check_call", "check_output", "system", "popen", "getoutput")


@rule(
    "NPU136",
    "nvidia-smi",
    on=cst.SimpleString,
    words=SMI_WORDS,
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="nvidia-smi does not exist on an NPU machine: call npu-smi info, whose output differs, "
    "or ask torch.npu.mem_get_info() and torch.npu.utilization()",
    examples=(
        report("import subprocess\nsubprocess.check_output(['nvidia-smi', '-L'])"),
        report("import os\nos.system('nvidia-smi')"),
        leave("print('run nvidia-smi to see it')"),
    ),
)
def nvidia_smi(node: cst.SimpleString, site: Site) -> Report | None:
    if not re.match(r"(\S*/)?nvidia-smi\b", string(node) or ""):
        return None
    for ancestor in site.ancestors(node):
        if isinstance(ancestor, cst.Call):
            callee = terminal(ancestor.func)
            return Report() if callee in (*_COMMANDS, "which") else None
        if isinstance(ancestor, cst.Assign):
            name = terminal(ancestor.targets[0].target) or ""
            return Report() if re.search(r"cmd|command|args", name, re.I) else None
    return None


@rule(
    "NPU137",
    "cuda-library-handle",
    on=cst.Call,
    words=LIBRARY_WORDS,
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="this loads a library of the CUDA toolkit, which an NPU machine lacks; ask torch.npu "
    "instead, or call the ascendcl library",
    examples=(
        report("import ctypes\nlib = ctypes.CDLL('libcudart.so')"),
        leave("import ctypes\nlib = ctypes.CDLL('libm.so')"),
    ),
)
def cuda_library_handle(node: cst.Call, site: Site) -> Report | None:
    if terminal(node.func) not in ("CDLL", "LoadLibrary", "find_library", "load_library", "WinDLL"):
        return None
    first = string(node.args[0].value) if node.args else None
    return Report() if re.match(r"(\S*/)?(lib)?(cuda|nvrtc|nccl|nvcuda)", first or "") else None


@rule(
    "NPU138",
    "private-cuda-binding",
    on=cst.Attribute,
    words=PRIVATE_WORDS,
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="a private function of the CUDA build of torch: torch_npu has none of that name. Use the "
    "public torch.npu function for it",
    examples=(
        report("torch._C._cuda_setRNGState(state)"),
        leave("ok = hasattr(torch._C, '_cuda_setRNGState')"),
    ),
)
def private_cuda_binding(node: cst.Attribute, site: Site) -> Report | None:
    name = site.name(node) or ""
    return Report() if re.fullmatch(r"torch\._C\._(cuda_\w+|Cuda\w+|cudart\w*)", name) else None

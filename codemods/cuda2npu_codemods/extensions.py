"""Compiled CUDA code: extensions, kernels built at run time, imported kernels, graphs, compilers.

None of it can be translated. Each place is reported with what uses it, so that a person can
port the kernel or take the way without it.
"""

from __future__ import annotations

import ast
import re

import libcst as cst

from cuda2npu.releases import RELEASES
from cuda2npu.rule import Fix, FixLevel, Report, Site, leave, report, rule
from cuda2npu_codemods.arguments import Use
from cuda2npu_codemods.expressions import string
from cuda2npu_codemods.extension_builders import compiles_at_run_time
from cuda2npu_codemods.fused_scaling import fused_optimizer_with_grad_scaler
from cuda2npu_codemods.occurrences import is_first_read
from cuda2npu_codemods.triggers import KERNEL_SOURCE_WORDS
from cuda2npu_codemods.uses import use_of
from cuda2npu_codemods.words import DEVICE

_BUILD = "torch.utils.cpp_extension."
PORT = (
    "port the kernel to Ascend C and build it with torch_npu.utils.cpp_extension.NpuExtension, or "
    "use the way through plain torch functions"
)


def _functions_using(name: str, site: Site, but: ast.AST | None = None) -> list[str]:
    """The functions of the file whose code names something, innermost first."""
    found = []
    for node in ast.walk(site.file.tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node is not but:
            inner = (n for statement in node.body for n in ast.walk(statement))
            if any(isinstance(n, ast.Name) and n.id == name for n in inner):
                found.append(f"{node.name}() in line {node.lineno}")
    return found


def used_by(names: list[str], site: Site, but: ast.AST | None = None) -> str:
    """A sentence that names the functions of the file which use one of the names."""
    users = [user for name in names for user in _functions_using(name, site, but)]
    return f" It is used by {', '.join(dict.fromkeys(users[:4]))}." if users else ""


def _extension_name(call: cst.Call, site: Site) -> str:
    arg = site.argument(call, "name", 0)
    return (string(arg.value) if arg else None) or ""


def _led(name: str) -> str:
    return f" {name}" if name else ""


def _is_imported(node: cst.Attribute | cst.Name, site: Site) -> bool:
    return isinstance(node, cst.Attribute) or site.binding(node.value) is None


@rule(
    "NPU520",
    "cuda-extension",
    on=(cst.Attribute, cst.Name),
    words=("CUDAExtension",),
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="CUDAExtension compiles CUDA kernels with nvcc, which an NPU machine has not: " + PORT,
    examples=(
        report(
            "from torch.utils.cpp_extension import CUDAExtension\n"
            "ext = CUDAExtension(name='ops_cuda', sources=['ops.cu'])"
        ),
        report("from torch.utils import cpp_extension\nkind = cpp_extension.CUDAExtension"),
        leave("from torch.utils.cpp_extension import CUDAExtension, BuildExtension"),
        leave("from torch.utils.cpp_extension import CppExtension\nx = CppExtension('a', [])"),
    ),
)
def cuda_extension(node: cst.Attribute | cst.Name, site: Site) -> Report | None:
    if site.name(node) != _BUILD + "CUDAExtension" or not _is_imported(node, site):
        return None
    call = site.parent(node)
    own = isinstance(call, cst.Call) and call.func is node
    name = _extension_name(call, site) if own and isinstance(call, cst.Call) else ""
    why = "compiles CUDA kernels with nvcc, which an NPU machine has not"
    return Report(f"the extension{_led(name)} {why}: {PORT}", kernels=(name,))


@rule(
    "NPU521",
    "cuda-kernel-at-run-time",
    on=cst.Call,
    words=("cuda", "CUDA", ".cu'", '.cu"', "load_inline", *KERNEL_SOURCE_WORDS),
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="this compiles a CUDA kernel when it runs, with nvcc, which an NPU machine has not: "
    + PORT,
    examples=(
        report(
            "from torch.utils.cpp_extension import load\nops = load('ops', sources=['ops.cu'])\n"
            "def f(x):\n    return ops.run(x)"
        ),
        report("import torch.utils.cpp_extension as c\nm = c.load_inline('m', cuda_sources=SRC)"),
        report(
            "import torch\nfrom pynvrtc.compiler import Program\n"
            "p = Program(SRC.encode(), 'scan.cu'.encode())"
        ),
        report("import torch, cupy\nk = cupy.RawKernel(SRC, 'scan')"),
        leave("import torch\nfrom shows import Program\np = Program(SRC, 'scan.cu')"),
        leave("from torch.utils.cpp_extension import load\nm = load('m', sources=['m.cpp'])"),
        leave("from torch.utils.cpp_extension import load_inline\nm = load_inline('m', SRC)"),
        leave("from json import load\nx = load('cuda.json')"),
    ),
)
def cuda_kernel_at_run_time(node: cst.Call, site: Site) -> Report | None:
    name = site.name(node.func) or ""
    if name in _COMPILERS:
        kernel = _source_name(node, name)
    elif name in (_BUILD + "load", _BUILD + "load_inline") and _compiles_cuda(node, site):
        kernel = _extension_name(node, site)
    else:
        return None
    holder = next(iter(site.enclosing), None)
    targets = []
    if isinstance(site.statement, ast.Assign):
        targets = [t.id for t in site.statement.targets if isinstance(t, ast.Name)]
    elif isinstance(site.statement, ast.Return):
        targets = [getattr(holder, "name", "")]
    return Report(
        f"the kernel{_led(kernel)} is compiled when this runs, with nvcc, which an NPU machine has "
        f"not: {PORT}.{used_by(targets, site, holder)}",
        kernels=(kernel or ("" if holder else next(iter(targets), "")),),
    )


_COMPILERS = ("pynvrtc.compiler.Program", "cupy.RawKernel", "cupy.RawModule")
"""What compiles CUDA sources at run time, besides torch."""


def _source_name(call: cst.Call, compiler: str) -> str:
    """What the kernel, or the file that it is said to come from, is called."""
    if len(call.args) < 2 or call.args[1].keyword is not None:
        return ""
    inner = call.args[1].value
    while isinstance(inner, cst.Call) and isinstance(inner.func, cst.Attribute):
        inner = inner.func.value  # "scan.cu".encode()
    return (string(inner) or "").partition(".")[0] if compiler != "cupy.RawModule" else ""


def _compiles_cuda(call: cst.Call, site: Site) -> bool:
    for arg in call.args:
        if arg.keyword is not None and "cuda" in arg.keyword.value:
            return True
        text = site.code(arg.value)
        bound = site.binding(arg.value.value) if isinstance(arg.value, cst.Name) else None
        if bound is not None:
            text += ast.unparse(bound)
        if re.search(r"\.cu\b|cuda", text):
            return True
    return False


@rule(
    "NPU522",
    "cuda-home",
    on=(cst.Attribute, cst.Name),
    words=("CUDA_HOME",),
    fix=FixLevel.NONE,
    missed_by_shim=True,
    quiet=True,
    why="CUDA_HOME is None on a machine without the CUDA toolkit: the branch that builds without "
    "CUDA kernels is the one that runs; see that there is one. A file has one finding, at the "
    "first use",
    examples=(
        report("from torch.utils.cpp_extension import CUDA_HOME\nok = CUDA_HOME is not None"),
        report(
            "try:\n    from torch.utils.cpp_extension import CUDA_HOME\n"
            "except ImportError:\n    CUDA_HOME = None\nok = CUDA_HOME is not None"
        ),
        leave("import os\nCUDA_HOME = os.environ['CUDA_HOME']\nprint(CUDA_HOME)"),
    ),
)
def cuda_home(node: cst.Attribute | cst.Name, site: Site) -> Report | None:
    found = site.name(node) == _BUILD + "CUDA_HOME" and _is_imported(node, site)
    return Report() if found and is_first_read(site, "CUDA_HOME") else None


@rule(
    "NPU524",
    "operator-library",
    on=cst.Call,
    words=("load_library",),
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="this loads a library of operators: if they are CUDA kernels it does not load, or has no "
    "kernel for the NPU; " + PORT,
    examples=(
        report("torch.ops.load_library('ops.so')\ny = torch.ops.mine.run(x)"),
        leave("import ctypes\nctypes.cdll.load_library('ops.so')"),
    ),
)
def operator_library(node: cst.Call, site: Site) -> Report | None:
    if site.name(node.func) != "torch.ops.load_library":
        return None
    path = site.argument(node, "path", 0)
    name = (string(path.value) if path else None) or ""
    return Report(kernels=(name.rpartition("/")[2].partition(".")[0],))


@rule(
    "NPU525",
    "pluggable-allocator-library",
    on=cst.Call,
    words=("CUDAPluggableAllocator",),
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="the shared library of this allocator calls the CUDA runtime: write it anew against the "
    "NPU's (aclrtMalloc and aclrtFree, with an aclrtStream in place of a cudaStream_t)",
    examples=(
        report("a = torch.cuda.memory.CUDAPluggableAllocator('a.so', 'my_malloc', 'my_free')"),
        leave("a = torch.npu.memory.NPUPluggableAllocator('a.so', 'my_malloc', 'my_free')"),
    ),
    source="torch_npu/npu/memory.py of 2.14.0",
)
def pluggable_allocator_library(node: cst.Call, site: Site) -> Report | None:
    name = site.name(node.func) or ""
    own = name.startswith("torch.cuda.") and name.endswith(".CUDAPluggableAllocator")
    return Report() if own else None


@rule(
    "NPU526",
    "device-of-cuda-compiler",
    on=cst.SimpleString,
    words=("cuda",),
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="this device is for CUDA code that the function compiles when it runs, so that it was "
    "left: " + PORT,
    examples=(
        report(
            "import torch\ndef compiled(source):\n    from pynvrtc.compiler import Program\n"
            "    device = torch.device('cuda')\n    torch.rand(1).to(device)\n"
            "    return Program(source).compile()"
        ),
        leave(
            "import torch\nfrom pynvrtc.compiler import Program\n"
            "def f(): return torch.device('cuda')"
        ),
    ),
)
def device_of_cuda_compiler(node: cst.SimpleString, site: Site) -> Report | None:
    if not DEVICE.fullmatch(string(node) or "") or not compiles_at_run_time(site):
        return None
    return Report() if use_of(site, node) is Use.DEVICE else None


_OLD_COMPILE = RELEASES[: RELEASES.index("2.6.0")]
"""Releases whose newest wheel is older than TorchNPU 7.3.0, the first with inductor."""
_OLD_FUSED = RELEASES[: RELEASES.index("2.5.1")]


@rule(
    "NPU530",
    "torch-compile-mode",
    on=cst.Call,
    words=("torch.compile", "inductor", "cudagraphs", "reduce-overhead", "max-autotune"),
    fix=FixLevel.NONE,
    why="torch.compile takes inductor to the NPU only from TorchNPU 7.3.0 on",
    examples=(
        report("model = torch.compile(model, backend='cudagraphs')"),
        report("model = torch.compile(model, mode='reduce-overhead')"),
        report("@torch.compile(mode='max-autotune')\ndef f(x): pass"),
        report("model = torch.compile(model)", release="2.4.0"),
        leave("model = torch.compile(model)"),
        leave("model = torch.compile(model, backend='aot_eager')"),
        leave("import re\nre.compile('reduce-overhead')"),
    ),
)
def torch_compile_mode(node: cst.Call, site: Site) -> Report | None:
    if site.name(node.func) != "torch.compile":
        return None
    backend, mode = (site.argument(node, keyword) for keyword in ("backend", "mode"))
    wanted = string(backend.value) if backend else "inductor"
    kind = string(mode.value) if mode else None
    if wanted == "cudagraphs":
        return Report("cudagraphs is a backend of CUDA: the NPU's counterpart is 'npugraphs'")
    if wanted == "inductor" and site.options.torch_npu in _OLD_COMPILE:
        return Report(
            "inductor needs TorchNPU 7.3.0, newer than this release: use backend='aot_eager' or "
            "'npugraphs', or drop torch.compile"
        )
    if kind in ("reduce-overhead", "max-autotune"):
        return Report(
            f"mode={kind!r} tunes for CUDA graphs and Triton: try backend='npugraphs' on the NPU, "
            "and measure",
            quiet=True,
        )
    return None


@rule(
    "NPU531",
    "fused-optimizer",
    on=cst.Call,
    words=("fused=True",),
    fix=FixLevel.NONE,
    why="torch's fused optimizers refuse NPU tensors before torch 2.5: drop fused=True, or use "
    "torch_npu.optim.NpuFusedAdamW and its like",
    examples=(
        report("o = torch.optim.AdamW(ps, fused=True)", release="2.4.0"),
        leave("o = torch.optim.AdamW(ps, fused=True)"),
        leave("o = build(ps, fused=True)"),
    ),
)
def fused_optimizer(node: cst.Call, site: Site) -> Report | None:
    if not (site.name(node.func) or "").startswith("torch.optim."):
        return None
    fused = site.argument(node, "fused")
    asked = fused is not None and isinstance(fused.value, cst.Name) and fused.value.value == "True"
    if isinstance(fused_optimizer_with_grad_scaler.function(node, site), Fix):
        return None
    return Report() if asked and site.options.torch_npu in _OLD_FUSED else None

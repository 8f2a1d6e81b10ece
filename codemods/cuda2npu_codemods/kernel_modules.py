"""Modules that are compiled CUDA kernels: where they are imported, loaded or called."""

from __future__ import annotations

import ast
import re

import libcst as cst

from cuda2npu.rule import FixLevel, Report, Site, leave, report, rule
from cuda2npu_codemods.expressions import last_name, outward, string, terminal
from cuda2npu_codemods.extensions import PORT, used_by
from cuda2npu_codemods.occurrences import brings, is_first_use
from cuda2npu_codemods.torch_imports import dotted

_KERNEL_MODULE = re.compile(
    r"\w+_cuda|\w+_cuda_(ext|kernels?|lib|core|ops|backend)|_cuda_ext|amp_C"
)
_COMPILED = re.compile(r"_C|_ext|\w+_cuda(_ext)?")
"""Names that a package gives its compiled part, as imported from the package itself."""
_OTHERS = frozenset("torch torchvision torchaudio apex flash_attn xformers triton cupy".split())


@rule(
    "NPU523",
    "compiled-kernel-import",
    on=(cst.Import, cst.ImportFrom, cst.Call),
    words=("_cuda", "import _C", "import _ext"),
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="this import brings a compiled CUDA kernel, which does not load on an NPU machine: " + PORT,
    examples=(
        report(
            "import torch\nimport focal_loss_cuda\ndef f(x):\n    return focal_loss_cuda.run(x)"
        ),
        report("import torch\nfrom . import _C"),
        report("import torch\nfrom mamba import scan_cuda\ny = scan_cuda.fwd(x)"),
        report('import torch\nfused = importlib.import_module("fused_adam_cuda")'),
        leave("import torch\nfused = importlib.import_module(name_cuda)"),
        leave('import torch\nfused = load("fused_adam_cuda")'),
        leave("import torch\nfrom torch import _C"),
        leave("import torch\nfrom .utils import to_cuda"),
        leave("import torch\nfrom .helpers import move_to_cuda"),
        leave("import torch\nfrom attention import attend_cuda\ny = attend_cuda(x)"),
        leave("import torch\nimport numpy as np"),
        leave("import focal_loss_cuda"),
    ),
)
def compiled_kernel_import(
    node: cst.Import | cst.ImportFrom | cst.Call, site: Site
) -> Report | None:
    if not site.file.imports("torch"):
        return None
    if isinstance(node, cst.Call):
        kernels = _loaded_kernel(node, site)
    else:
        kernels = _imported_kernels(node, site)
    if not kernels:
        return None
    names = tuple(dict.fromkeys(kernels.values()))
    return Report(
        f"{', '.join(names)} is a compiled CUDA kernel, which does not load on an NPU machine: "
        f"{PORT}.{used_by(list(kernels), site)}",
        kernels=names,
    )


def _loaded_kernel(call: cst.Call, site: Site) -> dict[str, str]:
    """The variable that a kernel is loaded to by name, with the kernel's name."""
    loads = terminal(call.func) in ("import_module", "__import__") and call.args
    name = (string(call.args[0].value) if loads else None) or ""
    if not _KERNEL_MODULE.fullmatch(name.rpartition(".")[2]):
        return {}
    _, holder = outward(call, site)
    target = terminal(holder.targets[0].target) if isinstance(holder, cst.Assign) else None
    return {target or "": name}


def _imported_kernels(node: cst.Import | cst.ImportFrom, site: Site) -> dict[str, str]:
    """Local names of compiled kernels that an import brings, with their real names."""
    if isinstance(node.names, cst.ImportStar):
        return {}
    module = dotted(node.module) if isinstance(node, cst.ImportFrom) else ""
    relative = isinstance(node, cst.ImportFrom) and bool(node.relative)
    if not relative and module.partition(".")[0] in _OTHERS:
        return {}
    found: dict[str, str] = {}
    for alias in node.names:
        name = dotted(alias.name)
        local = alias.asname.name if alias.asname else None
        bound = local.value if isinstance(local, cst.Name) else name
        plain = isinstance(node, cst.Import)
        if name.partition(".")[0] in _OTHERS and plain:
            continue
        if _is_kernel(name, module, plain, bound, site):
            found[bound] = name if plain or _COMPILED.fullmatch(name) else module
    return found


_MOVES = re.compile(r"(\w+_)?(to|is|use|no|has|with|on|from|test|init|set|get|enable|move)_cuda")


def _is_kernel(name: str, module: str, plain: bool, bound: str, site: Site) -> bool:
    last = name.rpartition(".")[2]
    if _MOVES.fullmatch(last):
        return False
    if last in ("_C", "_ext"):
        return True
    if plain:
        return bool(_KERNEL_MODULE.fullmatch(last))
    # `from package import kernel_cuda`, `from kernel_cuda import forward`
    if _COMPILED.fullmatch(last) and _has_members(bound, site):
        return True
    return "." not in module and bool(_KERNEL_MODULE.fullmatch(module))


def _has_members(name: str, site: Site) -> bool:
    """Whether the file uses a name as a module."""
    return any(
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == name
        for node in ast.walk(site.file.tree)
    )


_EXTENSION = re.compile(r"\w+_(C|cpp|engine|ext|extension|kernels?|ops?)")
_ENTRY = re.compile(r"\w+_cuda(_(forward|backward|fwd|bwd|half|float))?")


@rule(
    "NPU527",
    "compiled-kernel-call",
    on=cst.Call,
    words=("_cuda",),
    fix=FixLevel.NONE,
    why="this calls a CUDA kernel of a compiled module, which does not load on an NPU machine: "
    + PORT,
    examples=(
        report("import torch, awq_ext\ndef f(x): awq_ext.layernorm_forward_cuda(x)"),
        report(
            "import torch\ntry:\n    import point_ops\nexcept ImportError: pass\n"
            "def f(x): return point_ops.gather_cuda_forward(x)"
        ),
        leave("import torch, awq_ext\nawq_ext.layernorm_forward(x)"),
        leave("import torch, tensor_ops\nx = tensor_ops.to_cuda(x)"),
        leave("import torch, helpers\nhelpers.run_cuda(x)"),
        leave("import torch, scan_cuda\nscan_cuda.run_cuda(x)"),
        leave("import torch\nfrom . import my_ops\nmy_ops.run_cuda(x)"),
    ),
)
def compiled_kernel_call(node: cst.Call, site: Site) -> Report | None:
    owner = node.func.value if isinstance(node.func, cst.Attribute) else None
    module, _, entry = (site.name(node.func) or "").partition(".")
    if not isinstance(owner, cst.Name) or not _is_entry(entry) or not _EXTENSION.fullmatch(module):
        return None
    if _KERNEL_MODULE.fullmatch(module) or not brings(site.file.tree, (module,)):
        return None
    if not site.file.imports("torch") or not is_first_use(site, _entries(owner.value, site)):
        return None
    return Report(
        f"{module} is a compiled CUDA kernel, which does not load on an NPU machine: "
        f"{PORT}.{used_by([owner.value], site)}",
        kernels=(module,),
    )


def _is_entry(name: str) -> bool:
    return bool(_ENTRY.fullmatch(name)) and not _MOVES.fullmatch(name)


def _entries(module: str, site: Site) -> set[str]:
    """The functions of a compiled module that the file calls."""
    attributes = (n for n in ast.walk(site.file.tree) if isinstance(n, ast.Attribute))
    return {n.attr for n in attributes if last_name(n.value) == module and _is_entry(n.attr)}

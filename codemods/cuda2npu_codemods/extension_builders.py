"""Code that is about building or loading compiled CUDA code, by what it is called."""

from __future__ import annotations

import ast
import re
from pathlib import PurePath

from cuda2npu.rule import Site

_OWNER = re.compile(
    r"_*\w*(cuda|triton|nvrtc)\w*(ext|extension|builder|kernel|kernelloader)s?"
    r"|(build|load|compile)_(\w+_)?(cuda|triton|nvrtc)_(\w+_)?(ext|extension|op|kernel|lib)s?",
    re.IGNORECASE,
)
"""``_CudaExtension``, ``TritonKernelLoader``, ``build_cuda_ops``."""
_FOLDERS = frozenset("extension extensions op_builder op_builders csrc".split())
_COMPILER = re.compile(r"\bnvcc\b|TORCH_CUDA_ARCH_LIST|cpp_extension")

_COMPILERS = ("pynvrtc", "cuda.nvrtc", "cuda.bindings.nvrtc", "pycuda.compiler")
"""Packages that compile CUDA code when the program runs."""


def compiles_at_run_time(site: Site) -> bool:
    """Whether the function around the statement brings a compiler of CUDA code."""
    function = next((s for s in site.enclosing if not isinstance(s, ast.ClassDef)), None)
    return function is not None and any(
        f"{name}.".startswith(tuple(f"{compiler}." for compiler in _COMPILERS))
        for node in ast.walk(function)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in (getattr(node, "module", None) or "", *(alias.name for alias in node.names))
    )


def builds_extension(site: Site) -> bool:
    """Whether a class or function around the statement, or its file, is about such code."""
    owners = [s for s in site.enclosing if _OWNER.fullmatch(getattr(s, "name", ""))]
    if owners:
        asks = isinstance(site.statement, (ast.Assign, ast.Return, ast.If))
        return asks and not any(map(_computes_with_torch, owners))
    path = PurePath(site.file.path)
    within = _OWNER.fullmatch(path.stem) or not _FOLDERS.isdisjoint(path.parent.parts)
    if any(map(site.file.imports, _COMPILERS)):
        return isinstance(site.statement, (ast.Assign, ast.Return, ast.If))
    asks = isinstance(site.statement, (ast.Assign, ast.Return))
    return asks and bool(within) and bool(_COMPILER.search(site.file.text))


def _computes_with_torch(owner: ast.AST) -> bool:
    """``FlashAttentionSdpaCudaExtension`` calls what torch itself offers, and so an NPU too."""
    return any(
        isinstance(node, ast.Attribute)
        and (node.attr == "functional" or ast.unparse(node.value) == "F")
        for node in ast.walk(owner)
    )

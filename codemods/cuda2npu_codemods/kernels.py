"""What in a file is a CUDA kernel, or a flag that says whether a library with kernels is there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

_KERNEL = re.compile(
    r"\w*(_cuda_ext|cuda_kernel|cuda_lib|_cuda_c)\w*|\w+_cuda|cuda_(ext|op|ops|impl|module)"
    r"|\w*(triton|flash_attn|xformers|cupy|pycuda|cudnn_rnn)\w*|_C|_ext|\w+_ext|apex|amp_C"
    r"|load_inline|CUDAExtension|custom_kernel|fused_\w*kernel"
    r"|\w+_cuda_(fn|obj|func|op|impl|forward|backward)"
    r"|multi_tensor_(applier|l2norm|scale|axpby|adam|lamb|sgd)"
)
_MOVES = re.compile(
    r"(\w+_)?(to|is|use|no|has|move_to|with|on|from|copy_to|test|init|set|get|enable|seed)_cuda"
)
"""Helpers and flags that only move tensors or ask."""

_PACKAGES = frozenset(
    "cupy cupyx cudf cuml cugraph cucim kvikio pynvml pycuda torch_scatter torch_sparse".split()
)
"""Packages that run on CUDA only, or whose kernels do."""
_EXTENSION_CLASS = re.compile(r"(\w*\.)*_\w+\.Cuda[A-Z]\w*")
"""``torchrl._torchrl.CudaSumSegmentTree``: a class of a compiled module."""
_COMPILED_MODULE = re.compile(r"fused_\w+|(?!torch|numpy)(.*\.)?(\w+_C(\..+)?|_C\..+)")
"""``colossal_C`` and ``fused_adam``, and what ``from package._C import`` brings."""
_BUILDS = ("CUDAExtension", "load_inline")
_LOADER = re.compile(r"(.*\.)?(kernel_loader|op_builder|kernels?)\.(.*\.)?\w+(Loader|Builder)")
"""What builds or loads a kernel: ``kernel_loader.FusedOptimizerLoader``."""
_OTHER_RUNTIMES = (
    "onnxruntime-gpu",
    "paddlepaddle-gpu",
    "tensorflow-gpu",
    "faiss-gpu",
    "cupy-cuda",
    "CUDAExecutionProvider",
    "TensorrtExecutionProvider",
)
"""Packages and settings of other runtimes that need a GPU of NVIDIA."""


def uses_kernel(nodes: Iterable[ast.AST], tree: ast.Module) -> bool:
    """Whether any of the nodes uses or imports a compiled CUDA kernel, by name or by import."""
    inner = [part for node in nodes for part in ast.walk(node)]
    names = [part for part in inner if isinstance(part, ast.Name)]
    stored = {n.id for n in names if isinstance(n.ctx, ast.Store) and n.id.endswith("_cuda")}
    return any(
        (_is_kernel(part) and getattr(part, "id", None) not in stored)  # used_cuda = memory()
        or _is_packaged(part, tree)
        or _is_wrapper(part, tree)
        for part in inner
    )


def wraps_kernel(nodes: Iterable[ast.AST], tree: ast.Module) -> bool:
    """Whether any of the nodes calls a function of the file that tests the device for a kernel."""
    return any(_is_wrapper(inner, tree) for node in nodes for inner in ast.walk(node))


def _is_wrapper(node: ast.AST, tree: ast.Module) -> bool:
    """An autograd function of the file around a kernel, or ``rnnt.loss_gpu`` of an import."""
    if isinstance(node, ast.Attribute) and _last(node.value) == "self":
        return f"self.{node.attr}" in _autograd_kernels(tree)
    if isinstance(node, ast.Attribute):
        return _is_gpu_function(node, tree)
    return isinstance(node, ast.Name) and node.id in _autograd_kernels(tree)


def _is_gpu_function(node: ast.AST, tree: ast.Module) -> bool:
    if not isinstance(node, ast.Attribute) or not node.attr.endswith("_gpu"):
        return False
    owner = imported(tree).get(getattr(node.value, "id", ""), "torch")
    foreign = owner.partition(".")[0] != "torch"
    return foreign and named(node.attr.removesuffix("gpu") + "cuda")


@lru_cache(maxsize=4)
def defines_numba_kernel(tree: ast.Module) -> bool:
    """``@cuda.jit``: what the file asks about devices, it asks for kernels that need CUDA."""
    brought = any(name.startswith("numba") for name in imported(tree).values())
    return brought and any(
        ast.unparse(decorator).startswith(("cuda.jit", "numba.cuda.jit"))
        and any(_is_packaged(part, tree) for part in ast.walk(decorator))
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        for decorator in node.decorator_list
    )


def uses_package(nodes: Iterable[ast.AST], tree: ast.Module) -> bool:
    """The narrower question: a package for CUDA only, CUDA sources, or the build of a kernel."""
    return any(_is_packaged(inner, tree) for node in nodes for inner in ast.walk(node))


def _is_kernel(node: ast.AST) -> bool:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return any(named(part) for name in _imported_names(node) for part in name.split("."))
    if isinstance(node, ast.Attribute):
        return named(node.attr)
    return isinstance(node, ast.Name) and named(node.id)


def _is_packaged(node: ast.AST, tree: ast.Module) -> bool:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return any(_in_package(name) for name in _imported_names(node))
    if isinstance(node, ast.Constant):
        text = node.value if isinstance(node.value, str) else ""
        return text.endswith(".cu") or text.startswith(_OTHER_RUNTIMES)
    if isinstance(node, ast.Attribute):
        owner = imported(tree).get(getattr(node.value, "id", ""), "")
        named = node.attr in (*_BUILDS, "enable_use_gpu")  # of a configuration of paddle
        return named or (owner == "numba" and node.attr == "cuda") or _is_loaded(node, tree)
    if not isinstance(node, ast.Name):
        return False
    return node.id in _BUILDS or _in_package(imported(tree).get(node.id, ""))


def _is_loaded(node: ast.Attribute, tree: ast.Module) -> bool:
    """``FusedOptimizerLoader().load``."""
    if node.attr not in ("load", "build", "jit_load") or not isinstance(node.value, ast.Call):
        return False
    return bool(_LOADER.fullmatch(imported(tree).get(_last(node.value.func), "")))


def _imported_names(node: ast.Import | ast.ImportFrom) -> list[str]:
    module = getattr(node, "module", None)
    names = [alias.name for alias in node.names]
    return [f"{module}.{name}" for name in names] if module else names


def _in_package(dotted: str) -> bool:
    if dotted.partition(".")[0] in ("torch_scatter", "torch_sparse"):
        return not dotted.rpartition(".")[2][:1].isupper()  # SparseTensor moves like a tensor
    if _EXTENSION_CLASS.fullmatch(dotted) or _COMPILED_MODULE.fullmatch(dotted):
        return True
    return dotted.partition(".")[0] in _PACKAGES or f"{dotted}.".startswith("numba.cuda.")


def named(identifier: str) -> bool:
    """Whether an identifier is one of a kernel or of a module with kernels."""
    return bool(_KERNEL.fullmatch(identifier)) and not _MOVES.fullmatch(identifier)


@lru_cache(maxsize=4)
def imported(tree: ast.Module) -> dict[str, str]:
    """What imports bind: ``cp`` to ``cupy``, also by ``cp, has_cp = optional_import("cupy")``."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                local = alias.asname or alias.name.partition(".")[0]
                found[local] = alias.name if alias.asname else local
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module or ''}.{alias.name}"
        elif isinstance(node, ast.Assign):
            module = _loaded(node.value)
            targets = getattr(node.targets[0], "elts", node.targets)
            if module and isinstance(targets[0], ast.Name):
                found[targets[0].id] = module
    return found


def _loaded(value: ast.expr) -> str | None:
    """The module that ``optional_import("cupy")`` or ``import_module("cupy")`` loads."""
    if not isinstance(value, ast.Call) or not value.args:
        return None
    callee = getattr(value.func, "attr", getattr(value.func, "id", ""))
    first = getattr(value.args[0], "value", None)
    return first if "import" in callee and isinstance(first, str) else None


@lru_cache(maxsize=4)
def _autograd_kernels(tree: ast.Module) -> frozenset[str]:
    """Autograd functions of the file whose forward calls a kernel, and names for their apply."""

    def is_kernel(node: ast.AST) -> bool:
        return _is_kernel(node) or _is_packaged(node, tree) or _is_gpu_function(node, tree)

    found = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and any(_last(base).endswith("Function") for base in node.bases)
        and any(is_kernel(inner) for member in _forward(node) for inner in ast.walk(member))
    }
    for node in ast.walk(tree) if found else ():
        value = node.value if isinstance(node, ast.Assign) else None
        applies = isinstance(value, ast.Attribute) and value.attr == "apply"
        if applies and _last(getattr(value, "value", node)) in found:
            found.update(ast.unparse(target) for target in getattr(node, "targets", ()))
    return frozenset(found)


def _forward(node: ast.ClassDef) -> Iterator[ast.stmt]:
    return (member for member in node.body if getattr(member, "name", "") == "forward")


def _last(node: ast.AST) -> str:
    return str(getattr(node, "attr", getattr(node, "id", "")))


_FLAG = re.compile(
    r"_*(?:has|have|with)_(?P<a>\w+?)(?:_(?:available|installed|imported))?"
    r"|_*(?:is_)?(?P<b>\w+?)_(?:available|installed|imported|is_available)",
    re.IGNORECASE,
)
_NOT_KERNELS = frozenset(
    "gpu gpus cuda amp half grad dist distributed nccl npu xpu mps hpu mlu tpu xla device devices "
    "bf16 fp16 fp8 tf32 cpu rocm hip accelerator rank backend".split()
)
_NEUTRAL = re.compile(
    r"(py)?torch|(torch|pt|pytorch)_?\d\w*|torchvision|torchaudio|numpy|scipy|accelerate|deepspeed"
    r"|peft|transformers|diffusers|datasets|wandb|tensorboard\w*|lightning|tqdm|psutil|tensorflow"
    r"|tf|jax|flax|sklearn|matplotlib|ray|horovod|hvd|fairscale|torchrun|parallel|onnx|cv2|monai"
)
"""Libraries whose presence says nothing of a CUDA kernel."""


def is_library_flag(node: ast.expr, tree: ast.Module) -> bool:
    """``HAS_TRITON``, ``typing.WITH_SCATTER``, ``is_x_available()``, ``ext is not None``."""
    if isinstance(node, ast.Compare):
        known = imported(tree).get(getattr(node.left, "id", ""))
        absent = getattr(node.comparators[0], "value", ...) is None
        if not absent or not isinstance(node.ops[0], (ast.IsNot, ast.Is)):
            return False
        top = known.strip(".").partition(".")[0] if known else ""
        kernel = known is not None and not _NEUTRAL.fullmatch(top) and _speaks_of_library(known)
        return kernel or named(_last(node.left))
    name = _last(node.func if isinstance(node, ast.Call) and not node.args else node)
    match = _FLAG.fullmatch(name)
    if match is None:
        return False
    head: ast.AST = node
    while isinstance(head, (ast.Attribute, ast.Call)):
        head = head.func if isinstance(head, ast.Call) else head.value
    known_head = getattr(head, "id", "") in _module_names(tree)
    return known_head and _speaks_of_library(match["a"] or match["b"])


def _speaks_of_library(name: str) -> bool:
    last = name.lower().rpartition(".")[2]
    if _NEUTRAL.fullmatch(last):
        return False
    parts = set(last.split("_"))
    return not parts & _NOT_KERNELS or bool(parts & {"ext", "extension", "kernel", "hash", "ops"})


@lru_cache(maxsize=4)
def _module_names(tree: ast.Module) -> frozenset[str]:
    """Names that imports or statements of the module itself bind, and not its functions."""
    found = set(imported(tree))
    blocks: list[ast.AST] = [*tree.body]
    while blocks:
        node = blocks.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found.update(n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name))
        elif isinstance(node, (ast.If, ast.Try, ast.ExceptHandler, ast.With)):
            blocks.extend(ast.iter_child_nodes(node))
    return frozenset(found)

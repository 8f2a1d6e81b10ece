"""Whether a device test guards a CUDA kernel.

``if x.is_cuda: x = x.half()`` is about placement and must hold on the NPU as well;
``if x.is_cuda: return ext_cuda.forward(x)`` keeps the portable branch for everything that has
no CUDA kernel, and must stay false on the NPU.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from cuda2npu.rule import Site

_KERNEL = re.compile(
    r"\w*(_cuda_ext|cuda_kernel|cuda_lib|_cuda_c)\w*|\w+_cuda|cuda_(ext|op|ops|impl|module)"
    r"|\w*(triton|flash_attn|xformers|cupy|pycuda|cudnn_rnn)\w*|_C|_ext|\w+_ext|apex|amp_C"
    r"|load_inline|CUDAExtension|custom_kernel|fused_\w*kernel"
    r"|\w+_cuda_(fn|obj|func|op|impl|forward|backward)"
)
_MOVES = re.compile(
    r"(\w+_)?(to|is|use|no|has|move_to|with|on|from|copy_to|test|init|set|get|enable|seed)_cuda"
)
"""Helpers and flags that only move tensors or ask."""


def guards_kernel(site: Site, negated: bool = False) -> bool:
    """Whether the code that runs when the statement's device test holds uses a CUDA kernel.

    ``negated`` says that the test is for anything but CUDA, so that the code after the
    statement (when its body leaves) and its ``else`` are what runs on CUDA.
    """
    statement = site.statement
    if isinstance(statement, ast.Assert):
        return uses_kernel(site.following)
    if isinstance(statement, ast.If):
        if not negated:
            return _asks_for_kernel(statement.test) or uses_kernel(statement.body)
        leaves = isinstance(statement.body[-1], (ast.Return, ast.Raise, ast.Continue))
        return uses_kernel(statement.orelse) or (leaves and uses_kernel(site.following))
    if isinstance(statement, (ast.Return, ast.Assign, ast.Expr)) and statement.value is not None:
        return any(uses_kernel([arm]) for arm in _arms(statement.value, negated))
    return False


_KERNEL_FLAG = re.compile(r"(\w+_)?(fused|kernel|triton|flash|custom_op)(_\w+)?")


def _asks_for_kernel(test: ast.expr) -> bool:
    """The same test asks for an implementation: ``impl == "cuda" and …``, ``self.fused and …``."""
    if not isinstance(test, ast.BoolOp):
        return False
    for part in test.values:
        if isinstance(part, ast.Compare) and _names_implementation(part):
            return True
        name = getattr(part, "attr", None) or getattr(part, "id", None)
        if name is not None and _KERNEL_FLAG.fullmatch(name):
            return True
    return False


def _names_implementation(comparison: ast.Compare) -> bool:
    sides = [comparison.left, *comparison.comparators]
    names = [getattr(side, "attr", None) or getattr(side, "id", None) for side in sides]
    literal = any(isinstance(side, ast.Constant) and side.value == "cuda" for side in sides)
    return literal and any(name in ("impl", "implementation", "kernel", "method") for name in names)


def guards_kernel_import(site: Site) -> bool:
    """``if torch.cuda.is_available(): import ext_cuda``, ``… and has_fused_norm``."""
    statement = site.statement
    if not isinstance(statement, ast.If):
        return False
    imports = [node for node in statement.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    assigned = [node.value for node in statement.body if isinstance(node, ast.Assign)]
    builds = any(getattr(value, "id", None) == "CUDAExtension" for value in assigned)
    return builds or uses_kernel(imports) or _asks_for_kernel(statement.test)


def _arms(value: ast.AST, negated: bool) -> Iterable[ast.AST]:
    """The conditional expressions' arms that a true device test selects."""
    for node in ast.walk(value):
        if isinstance(node, ast.IfExp):
            yield node.orelse if negated else node.body


def uses_kernel(nodes: Iterable[ast.AST]) -> bool:
    """Whether any of the nodes uses or imports a compiled CUDA kernel, by its name."""
    return any(_is_kernel(inner) for node in nodes for inner in ast.walk(node))


def _is_kernel(node: ast.AST) -> bool:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        module = getattr(node, "module", None) or ""
        names = [alias.name for alias in node.names] + [module]
        return any(_named(part) for name in names for part in name.split("."))
    if isinstance(node, ast.Attribute):
        return _named(node.attr)
    return isinstance(node, ast.Name) and _named(node.id)


def _named(identifier: str) -> bool:
    return bool(_KERNEL.fullmatch(identifier)) and not _MOVES.fullmatch(identifier)

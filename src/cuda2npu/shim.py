"""``--target shim``: load torch_npu's run-time patch in scripts, and change nothing else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from cuda2npu.facts import FileFacts
from cuda2npu.file_rules import SHIM_MISSING
from cuda2npu.imports import Insertion, behind, module_anchor
from cuda2npu.model import Finding, Options
from cuda2npu.packs import selected_rules
from cuda2npu.ported import Ported
from cuda2npu.statements import Unit

_LINES = (
    "import torch_npu  # noqa: F401",
    "from torch_npu.contrib import transfer_to_npu  # noqa: F401",
)
_CUDA = re.compile(r"cuda|nccl", re.I)


@dataclass(frozen=True, slots=True)
class Shim:
    """The two imports of a script, and the finding that says so."""

    insertion: Insertion
    finding: Finding


def shim_of(facts: FileFacts, ported: Ported, options: Options) -> Shim | None:
    """What a file needs; None when it is no script, uses no CUDA, or has the shim already."""
    if SHIM_MISSING not in selected_rules(options):
        return None
    if not wants_shim(facts, ported) or not is_script(facts, named=options.named):
        return None
    own = _import_of_torch_npu(facts)
    node = own or module_anchor(facts)
    if node is None:
        return None
    lines = _LINES[1:] if own else _LINES
    return Shim(behind(facts.source, node, list(lines)), _finding(facts, node))


def wants_shim(facts: FileFacts, ported: Ported) -> bool:
    """Whether the file would need the shim if it is a script."""
    if ported.uses_transfer or ported.is_shim:
        return False
    units = facts.statements.units
    if any(map(ported.covers, units)):
        return False  # code that chooses between devices must not see a second CUDA
    return any(_speaks_of_cuda(facts, unit) for unit in units)


def is_module(facts: FileFacts, ported: Ported) -> bool:
    """Whether a file that the user named goes without the shim only for being no script."""
    return wants_shim(facts, ported) and not is_script(facts, named=True)


def is_script(facts: FileFacts, *, named: bool) -> bool:
    """Whether the file is run rather than imported, and does more than build a package.

    Of a file that the user ``named``, CUDA calls at the top level say so too.
    """
    if facts.path.endswith(".ipynb"):
        return True
    if facts.imports("setuptools") or facts.imports("distutils"):
        return False
    if facts.source.utf8.startswith(b"#!"):
        return True
    tests = [ast.unparse(node.test) for node in facts.tree.body if isinstance(node, ast.If)]
    if any(test in _MAIN for test in tests):
        return True
    calls = [node for node in _at_top(facts.tree) if isinstance(node, ast.Call)]
    return any(map(_works, calls)) or (named and any(map(_runs_cuda, calls)))


_MAIN = ("__name__ == '__main__'", "'__main__' == __name__")
_WORK = frozenset({"parse_args", "parse_known_args", "backward", "init_process_group"})
"""Methods that nobody calls while a module is imported."""


def _at_top(node: ast.AST) -> Iterator[ast.AST]:
    """Everything that runs when the file does: no bodies of functions and classes."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            yield child
            yield from _at_top(child)


def _works(node: ast.Call) -> bool:
    return getattr(node.func, "attr", "") in _WORK


_ON_CUDA = re.compile(r"(.*\.)?cuda\.(?!is_available|device_count)\w.*|.*\.(cuda|to)", re.S)
_DEVICE = re.compile(r"cuda(:\d+)?|nccl")


def _runs_cuda(node: ast.Call) -> bool:
    """Whether a call puts something on the device; to ask for it or to name it does not."""
    function = ast.unparse(node.func)
    if _ON_CUDA.fullmatch(function):
        return True
    if function.rpartition(".")[2] == "device":
        return False
    if any(keyword.arg in ("device", "map_location") for keyword in node.keywords):
        return True
    constants = [node.value for node in node.args if isinstance(node, ast.Constant)]
    return any(isinstance(value, str) and _DEVICE.fullmatch(value) for value in constants)


NOT_A_SCRIPT = (
    "not a script: no main guard, no #! line, and nothing at its top level runs CUDA code; "
    "the program that imports it has to load the shim"
)


def _speaks_of_cuda(facts: FileFacts, unit: Unit) -> bool:
    return _CUDA.search(facts.source.slice(unit.start, unit.end)) is not None


def _import_of_torch_npu(facts: FileFacts) -> ast.Import | None:
    for node, scope, _ in facts.statements.imports:
        if scope.kind != "module" or not isinstance(node, ast.Import):
            continue
        if any(alias.name == "torch_npu" for alias in node.names):
            return node
    return None


def _finding(facts: FileFacts, node: ast.Import | ast.ImportFrom) -> Finding:
    source = facts.source
    start = source.position(source.offset(node.lineno, node.col_offset))
    end = source.position(source.offset(node.end_lineno or 0, node.end_col_offset or 0))
    place = (facts.path, *start, *end)
    rule = SHIM_MISSING
    return Finding(*place, rule.code, rule.name, rule.why, rule.fix, rule.quiet, applied=True)

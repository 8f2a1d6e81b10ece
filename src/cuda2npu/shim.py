"""``--target shim``: load torch_npu's run-time patch in programs, and change nothing else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from cuda2npu.facts import FileFacts
from cuda2npu.file_rules import SHIM_MISSING
from cuda2npu.imports import Insertion, before, behind, module_anchor
from cuda2npu.knowledge import SINKS, Knowledge, Reach
from cuda2npu.model import Finding, FixLevel, Options
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
    """The two imports of a program, None where a person has to decide, and the finding about it."""

    insertion: Insertion | None
    finding: Finding


def shim_of(facts: FileFacts, ported: Ported, options: Options) -> Shim | str | None:
    """What a file needs; a note for the user when that is not known from the file.

    None when it needs no shim, because it uses no CUDA, has the shim already, or is imported by
    others that are looked at themselves.
    """
    if SHIM_MISSING not in selected_rules(options) or not wants_shim(facts, ported):
        return None
    own = _import_of_torch_npu(facts)
    node = own or module_anchor(facts) or _first_import(facts)
    if node is None:
        return None
    reach, here = facts.project.reach or Reach(), facts.project.here
    alone = options.named or (facts.project.reach is not None and here not in reach.imported)
    if not is_script(facts, alone=alone):
        if here not in reach.imported or not _moves_at_import(facts):
            return NOT_A_SCRIPT if alone and _has_cuda(facts) else None
        if here in reach.ported:
            return Shim(None, _finding(facts, node, _left(reach.ported[here]), applied=False))
    lines = list(_LINES[1:] if own else _LINES)
    message = "" if _has_cuda(facts) else _leads(reach.leading[here])
    # A name that is taken out of torch before the patch stays CUDA's.
    place = before if isinstance(node, ast.ImportFrom) else behind
    return Shim(place(facts.source, node, lines), _finding(facts, node, message))


def wants_shim(facts: FileFacts, ported: Ported) -> bool:
    """Whether the file would need the shim if it is a program."""
    if ported.uses_transfer or ported.is_shim:
        return False
    if any(map(ported.covers, facts.statements.units)):
        return False  # code that chooses between devices must not see a second CUDA
    return _has_cuda(facts) or (leads_to_cuda(facts.project) and not ported.mentions_npu)


def leads_to_cuda(project: Knowledge) -> bool:
    """Whether a file that no other imports itself imports one that speaks of CUDA."""
    found = project.reach
    return found is not None and project.here in found.leading.keys() - found.imported


def is_script(facts: FileFacts, *, alone: bool) -> bool:
    """Whether the file is run rather than imported, and does more than build a package.

    Of a file that stands ``alone``, because the user named it or no other imports it, calls at
    the top level say so too.
    """
    if facts.path.endswith(".ipynb"):
        return True
    if facts.imports("setuptools") or facts.imports("distutils"):
        return False
    if facts.source.utf8.startswith(b"#!") and _has_cuda(facts):
        return True  # modules that only import others have the line, too
    tests = [ast.unparse(node.test) for node in facts.tree.body if isinstance(node, ast.If)]
    if any(test in _MAIN for test in tests):
        return True
    calls = _calls(facts)
    if any(map(_works, calls)):
        return True
    return alone and (any(map(_runs_cuda, calls)) or _runs_a_function(facts))


_MAIN = ("__name__ == '__main__'", "'__main__' == __name__")
_WORK = frozenset({"parse_args", "parse_known_args", "backward", "init_process_group"})
"""Methods that nobody calls while a module is imported."""


def _at_top(node: ast.AST) -> Iterator[ast.AST]:
    """Everything that runs when the file does: no bodies of functions and classes."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            yield child
            yield from _at_top(child)


def _calls(facts: FileFacts) -> list[ast.Call]:
    return [node for node in _at_top(facts.tree) if isinstance(node, ast.Call)]


def _runs_a_function(facts: FileFacts) -> bool:
    """Whether a statement at the top calls a function that the file defines or imports by name."""
    names = {node.name for node in facts.tree.body if isinstance(node, ast.FunctionDef)}
    for node in facts.tree.body:
        if isinstance(node, ast.ImportFrom):
            names.update(alias.asname or alias.name for alias in node.names)
    called = (node.value for node in facts.tree.body if isinstance(node, ast.Expr))
    return any(getattr(getattr(call, "func", None), "id", "") in names for call in called)


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


def _moves_at_import(facts: FileFacts) -> bool:
    """Whether something that torch takes to a device is at the top level of a module."""
    return any(_ON_CUDA.fullmatch(ast.unparse(c.func)) or _gives_device(c) for c in _calls(facts))


def _gives_device(node: ast.Call) -> bool:
    """Whether a call gives CUDA's device or backend to a function of torch that takes one."""
    callee = ast.unparse(node.func).rpartition(".")[2]
    given = [(f"{callee}/{place}", value) for place, value in enumerate(node.args)]
    given += [(f"{callee}/{each.arg}=", each.value) for each in node.keywords]
    return callee != "device" and any(
        (place in SINKS or place.endswith("/device="))
        and isinstance(value, ast.Constant)
        and _DEVICE.fullmatch(str(value.value))
        for place, value in given
    )


NOT_A_SCRIPT = (
    "not a script: no main guard, no #! line, and nothing at its top level runs CUDA code; "
    "the program that imports it has to load the shim"
)


def _leads(imported: str) -> str:
    return (
        f"this script imports {imported}, which speaks of CUDA: transfer_to_npu turns torch.cuda "
        "calls into torch.npu ones while a program runs"
    )


def _left(importer: str) -> str:
    return (
        f"this module runs CUDA code when it is imported, and {importer}, which imports it, "
        "speaks of NPUs itself: the shim would have it see a CUDA that is not there. Move the "
        "call into a function, or convert both with --target npu"
    )


def _has_cuda(facts: FileFacts) -> bool:
    return any(_speaks_of_cuda(facts, unit) for unit in facts.statements.units)


def _speaks_of_cuda(facts: FileFacts, unit: Unit) -> bool:
    return _CUDA.search(facts.source.slice(unit.start, unit.end)) is not None


def _import_of_torch_npu(facts: FileFacts) -> ast.Import | None:
    for node, scope, _ in facts.statements.imports:
        if scope.kind != "module" or not isinstance(node, ast.Import):
            continue
        if any(alias.name == "torch_npu" for alias in node.names):
            return node
    return None


def _first_import(facts: FileFacts) -> ast.Import | ast.ImportFrom | None:
    """What the shim stands behind in a program that leaves torch to the modules it imports."""
    for node, scope, blocks in facts.statements.imports:
        future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        if scope.kind == "module" and not blocks and not future:
            return node
    return None


def _finding(
    facts: FileFacts, node: ast.Import | ast.ImportFrom, message: str, *, applied: bool = True
) -> Finding:
    source, rule = facts.source, SHIM_MISSING
    start = source.position(source.offset(node.lineno, node.col_offset))
    end = source.position(source.offset(node.end_lineno or 0, node.end_col_offset or 0))
    place = (facts.path, *start, *end)
    level = rule.fix if applied else FixLevel.NONE
    return Finding(
        *place, rule.code, rule.name, message or rule.why, level, rule.quiet, applied=applied
    )

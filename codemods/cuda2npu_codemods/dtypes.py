"""Whether a place that takes a dtype or a tensor type makes a tensor of it, or only asks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

import libcst as cst

from cuda2npu.rule import Site
from cuda2npu_codemods.exact import (
    follows_dtype,
    keeps_double,
    makes_index_later,
    only_asks,
    only_on_cpu,
)
from cuda2npu_codemods.expressions import outward, string, terminal
from cuda2npu_codemods.numerics import in_cpu_branch, is_array_call

SET_DEFAULT = ("torch.set_default_dtype", "torch.set_default_tensor_type")
_QUESTIONS = frozenset(
    "finfo iinfo view can_cast promote_types result_type isinstance issubclass astype "
    "assert_close assertEqual".split()
)
"""Callees whose dtype argument asks, or means something else than a cast."""
_BYTES = frozenset("from_filename from_file frombuffer from_buffer memmap".split())
"""Callees that read bytes which are in double precision already."""
_NAMES_DTYPE = re.compile(r"dtype|data_?type|(float|tensor|torch)_?type|^type$", re.IGNORECASE)


def needs_double(site: Site) -> bool:
    """``gradcheck`` compares with finite differences, which need double precision."""
    return "gradcheck" in site.file.text


def is_spelled(node: cst.Attribute | cst.Name, site: Site) -> bool:
    """Whether the node itself names the thing, and no variable that holds it."""
    return isinstance(node, cst.Attribute) or site.binding(node.value) is None


def is_asked_by_name(scopes: Iterable[ast.AST]) -> bool:
    """``def double(self)`` and ``class DoubleStorage`` must do what they are called."""
    names = (str(getattr(scope, "name", "")).lower() for scope in scopes)
    return any("double" in name or "float64" in name for name in names)


def casts(node: cst.BaseExpression, site: Site) -> bool:
    """Whether the place that takes a dtype or tensor type makes a tensor of it."""
    child, parent = outward(node, site)
    if follows_dtype(node, site) or is_asked_by_name(site.enclosing) or in_cpu_branch(site):
        return False
    if isinstance(parent, cst.Arg):
        call = site.parent(parent)
        return isinstance(call, cst.Call) and _argument_casts(parent, call, site)
    if isinstance(parent, cst.Param):
        name = parent.name.value
        given = child is parent.default and _names_dtype(name)
        return given and not only_on_cpu(site.statement, name)
    if isinstance(parent, cst.DictElement):
        return child is parent.value and _names_dtype(string(parent.key) or "")
    if isinstance(parent, cst.Return):
        function = next(iter(site.enclosing), None)
        named = _names_dtype(getattr(function, "name", ""))
        return named and not _answers_for_double(site, function)
    return not makes_index_later(site, parent) and any(
        _target_casts(target, site) for target in targets(parent)
    )


def _names_dtype(identifier: str) -> bool:
    return bool(_NAMES_DTYPE.search(identifier))


def _argument_casts(arg: cst.Arg, call: cst.Call, site: Site) -> bool:
    callee = terminal(call.func)
    if callee in _QUESTIONS or _is_file(callee, site, call) or is_array_call(site, call):
        return False
    if arg.keyword is not None:
        return _names_dtype(arg.keyword.value) and not keeps_double(site, call)
    position = call.args.index(arg)
    if site.name(call.func) in SET_DEFAULT:
        return position == 0
    if callee in ("to", "type") and isinstance(call.func, cst.Attribute):
        return not keeps_double(site, call)
    return any(
        position < len(names)
        and _names_dtype(names[position])
        and not only_asks(function, names[position])
        for function, names in _parameters(callee or "", site)
    )


def _is_file(callee: str | None, site: Site, call: cst.Call) -> bool:
    return callee in _BYTES or site.argument(call, "filename") is not None


def _answers_for_double(site: Site, function: ast.AST | None) -> bool:
    """``if isinstance(plugin, DoublePrecision): return torch.double``: an entry of a table."""
    tests = [node for node in ast.walk(function) if isinstance(node, ast.If)] if function else []
    return any(
        re.search(r"double|float64|fp64", ast.unparse(node.test), re.IGNORECASE)
        and any(inner is site.statement for part in node.body for inner in ast.walk(part))
        for node in tests
    )


def _parameters(
    callee: str, site: Site
) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, list[str]]]:
    """The file's own functions of this name with their positional parameters."""
    for function in site.file.functions(callee):
        names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
        yield function, names[1:] if names[:1] in (["self"], ["cls"]) else names


def targets(parent: cst.CSTNode | None) -> list[cst.BaseExpression]:
    if isinstance(parent, cst.Assign):
        return [target.target for target in parent.targets]
    if isinstance(parent, (cst.AnnAssign, cst.NamedExpr)):
        return [parent.target]
    return []


def _target_casts(target: cst.BaseExpression, site: Site) -> bool:
    if isinstance(target, cst.Subscript):
        index = target.slice[0].slice
        return _names_dtype(string(index.value) or "") if isinstance(index, cst.Index) else False
    name = terminal(target) or ""
    if _names_dtype(name):
        return True
    places = ("*/dtype=", "to/0", "type/0", "set_default_dtype/0", "set_default_tensor_type/0")
    return any(place in site.file.flows(name) for place in places)

"""Tests of the device that stay, because what they guard stays.

``torch.cuda.get_device_capability()[0] if torch.cuda.is_available() else 0``: once the test holds
on the NPU, the question behind it is asked there, and raises. In one expression the test and
what it guards move together or not at all.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import libcst as cst

from cuda2npu.rule import FixLevel, Site
from cuda2npu_codemods.expressions import string, terminal, walk
from cuda2npu_codemods.guards import flagged, function_around, selected
from cuda2npu_codemods.probes import only_probes, staying_level, uses
from cuda2npu_codemods.words import DEVICE

_TESTS = ("torch.cuda.is_available", "torch.cuda.device_count")
_EQUAL = (cst.Equal, cst.Is, cst.In)
_UNEQUAL = (cst.NotEqual, cst.IsNot, cst.NotIn)
_MORE = (cst.GreaterThan, cst.GreaterThanEqual)
_LESS = (cst.LessThan, cst.LessThanEqual)


def kept_level(node: cst.CSTNode, site: Site) -> FixLevel | None:
    """The level at which a device test, or a name behind one, moves; None when nothing keeps it."""
    levels = {
        level
        for test in walk([*site.ancestors(node)][-1])
        if _is_test(test, site)
        for member, level in _group(test, site)
        if member is node
    }
    return FixLevel.NONE if FixLevel.NONE in levels else next(iter(levels), None)


def _is_test(node: cst.CSTNode, site: Site) -> bool:
    """``torch.cuda.is_available``, ``x.is_cuda``, the literal in ``x.device.type == "cuda"``."""
    if isinstance(node, cst.Attribute):
        return node.attr.value == "is_cuda" or site.name(node) in _TESTS
    if not isinstance(node, cst.SimpleString) or not DEVICE.fullmatch(string(node) or ""):
        return False
    parent = site.parent(node)
    call = site.parent(parent) if isinstance(parent, cst.Arg) else None
    starts = isinstance(call, cst.Call) and terminal(call.func) == "startswith"
    return starts or isinstance(parent, (cst.Comparison, cst.ComparisonTarget))


def _group(test: cst.CSTNode, site: Site) -> Iterator[tuple[cst.CSTNode, FixLevel]]:
    """The test and the names of torch.cuda in what it guards, when something there stays."""
    child, holds = test, True
    for parent in site.ancestors(test):
        guarded = _guarded(child, parent, holds)
        if guarded is not None:
            level = staying_level(uses([_tree(guarded, site)], site, *_holder(parent, site)))
            if level is not None:
                yield from ((node, level) for node in (test, *walk(guarded)))
        if isinstance(parent, cst.If) and child is parent.test:
            level = _level_of_branch(site, holds)
            if level is not None:
                yield test, level
        if isinstance(parent, cst.Assign) and (level := _level_of_flag(site)) is not None:
            yield test, level
        outcome = _outcome(child, parent, holds, site)
        if outcome is None:
            return
        child, holds = parent, outcome


def _guarded(child: cst.CSTNode, parent: cst.CSTNode, holds: bool) -> cst.BaseExpression | None:
    """What is evaluated only if ``child`` comes out so that there is a device."""
    if isinstance(parent, cst.BooleanOperation) and child is parent.left:
        return parent.right if isinstance(parent.operator, cst.And) is holds else None
    if isinstance(parent, cst.IfExp) and child is parent.test:
        return parent.body if holds else parent.orelse
    return None


def _tree(node: cst.BaseExpression, site: Site) -> ast.expr:
    return ast.parse(f"({site.code(node)}\n)", mode="eval").body


def _holder(node: cst.CSTNode, site: Site) -> tuple[ast.AST, ...]:
    return (_tree(node, site),) if isinstance(node, cst.IfExp) else ()


def _outcome(child: cst.CSTNode, parent: cst.CSTNode, holds: bool, site: Site) -> bool | None:
    """Whether ``parent`` shows a device by being true (True) or false (False); None: neither."""
    if isinstance(parent, cst.UnaryOperation):
        return not holds if isinstance(parent.operator, cst.Not) else None
    if isinstance(parent, cst.BooleanOperation):
        return holds if isinstance(parent.operator, cst.And) is holds else None
    if isinstance(parent, cst.Comparison):
        return _compared(child, parent, holds, site)
    if isinstance(parent, cst.Call):
        passes = child is parent.func or terminal(parent.func) in ("bool", "startswith")
        return holds if passes else None
    passed = (cst.ComparisonTarget, cst.Arg, cst.NamedExpr)
    return holds if isinstance(parent, passed) else None


def _compared(child: cst.CSTNode, node: cst.Comparison, holds: bool, site: Site) -> bool | None:
    """``… is False``, ``… == "cuda"``, ``torch.cuda.device_count() > 0``."""
    operator, other = node.comparisons[0].operator, site.code(node.comparisons[0].comparator)
    turned = child is not node.left and isinstance(operator, (*_MORE, *_LESS))
    if turned or len(node.comparisons) != 1:
        return None
    if other == "False" or (other == "0" and not isinstance(operator, (*_MORE, *_LESS))):
        holds = not holds
    if isinstance(operator, (*_EQUAL, *_MORE)):
        return holds
    return not holds if isinstance(operator, (*_UNEQUAL, *_LESS)) else None


def _level_of_branch(site: Site, holds: bool) -> FixLevel | None:
    """The level of what an ``if`` guards, when it asks about the device and places nothing.

    Behind a test that leaves the function this is the rest of it.
    """
    statement = site.statement
    if not isinstance(statement, ast.If):
        return None
    branch = selected(statement, site.following, negated=not holds)
    found = [*uses(branch, site)]
    level = staying_level(found)
    if level is None or any(use.places for use in found):
        return None
    if any(use.raises for use in uses(_always(branch), site)):
        return level
    return level if holds and all(use.stays for use in found) and only_probes(branch) else None


def _level_of_flag(site: Site) -> FixLevel | None:
    """The same for a function's variable that only selects what asks about the device."""
    statement, function = site.statement, function_around(site)
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    if not isinstance(target, ast.Name) or isinstance(function, ast.Module):
        return None
    inner = [*ast.walk(function)]
    reads = [node for node in inner if isinstance(node, ast.Name) and node.id == target.id]
    branches = [*flagged(site)]
    if len(branches) != sum(isinstance(node.ctx, ast.Load) for node in reads):
        return None
    choices = [node for node in inner if isinstance(node, ast.IfExp)]
    found = [
        use
        for branch in branches
        for use in uses(branch, site, *(c for c in choices if branch[0] in (c.body, c.orelse)))
    ]
    raises = any(use.raises for use in found) and not any(use.places for use in found)
    return staying_level(found) if raises else None


def _always(branch: list[ast.stmt]) -> Iterator[ast.AST]:
    """What runs of a block whatever else is asked there, and is not caught when it raises."""
    for statement in branch:
        if isinstance(statement, ast.If):
            yield statement.test
        elif isinstance(statement, ast.With):
            yield from _always(statement.body)
        elif not isinstance(statement, (ast.Try, ast.FunctionDef, ast.ClassDef)):
            yield statement

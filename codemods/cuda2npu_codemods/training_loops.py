"""Where a file trains: its loops, the loaders that they run over, what they move to a device."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache

from cuda2npu.rule import Site, names_device
from cuda2npu_codemods.expressions import denotes, last_name

Loop = ast.For | ast.AsyncFor | ast.While
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_THROUGH = frozenset("enumerate tqdm iter islice cycle track log_every prefetch".split())
"""Calls that hand on the items of their first argument."""
_ACCELERATOR = re.compile(r"cuda(?!2npu)|\bnpu\b|torch_npu|accelerat|\.to\((\w+\.)*device")
_RANKS = frozenset("rank local_rank gpu gpu_id device_id".split())
"""Names of a device's number, which ``.to`` and ``.cuda`` take."""


def inside(node: ast.AST) -> Iterator[ast.AST]:
    """What stands below a node, without functions and classes that it defines."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _FUNCTIONS):
            yield child
            yield from inside(child)


def calls(node: ast.AST) -> Iterator[ast.Call]:
    return (inner for inner in inside(node) if isinstance(inner, ast.Call))


def root(node: ast.AST | None) -> str | None:
    """The name that an expression begins with: ``batch`` in ``batch["x"].float()``."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def trains(node: ast.AST) -> bool:
    """Whether gradients are computed right there."""
    return any(last_name(call.func) == "backward" for call in calls(node))


@lru_cache(maxsize=1)
def file_trains(tree: ast.Module) -> bool:
    """Whether a loop of the file computes gradients."""
    return any(isinstance(node, Loop) and trains(node) for node in walk(tree))


@lru_cache(maxsize=1)
def walk(tree: ast.Module) -> tuple[ast.AST, ...]:
    """Every node of a file; rules ask many times."""
    return tuple(ast.walk(tree))


def uses_device(site: Site) -> bool:
    """Whether the file speaks of an accelerator."""
    return _ACCELERATOR.search(site.file.text) is not None


def names_accelerator(node: ast.AST) -> bool:
    """Whether a piece of code speaks of one, or of a device."""
    text = ast.unparse(node)
    return "device" in text or _ACCELERATOR.search(text) is not None


def loops_around(site: Site) -> list[Loop]:
    """The loops of the function that the statement stands in, the innermost first."""
    function = site.enclosing[0] if site.enclosing else site.file.tree
    around = [node for node in inside(function) if isinstance(node, Loop) and holds(node, site)]
    return sorted(around, key=lambda loop: -loop.lineno)


def holds(node: ast.stmt, site: Site) -> bool:
    """Whether the site's statement stands below this one."""
    first, last = lines_of(site.statement)
    return node is not site.statement and node.lineno <= first and last <= (node.end_lineno or 0)


def lines_of(node: ast.AST) -> tuple[int, int]:
    first = getattr(node, "lineno", 0)
    return first, getattr(node, "end_lineno", first) or first


def steps(loop: ast.AST) -> Iterator[ast.stmt]:
    """The simple statements that each turn of a loop runs, whatever happens."""
    for statement in getattr(loop, "body", ()):
        if isinstance(statement, (ast.With, ast.AsyncWith, ast.Try)):
            yield from steps(statement)
        elif not hasattr(statement, "body"):
            yield statement


def gradients(loop: Loop) -> list[ast.Call]:
    """The calls of ``backward`` in a loop itself, not in one inside."""
    inner = {id(call) for other in inside(loop) if isinstance(other, Loop) for call in calls(other)}
    return [c for c in calls(loop) if last_name(c.func) == "backward" and id(c) not in inner]


def moves(call: ast.Call) -> bool:
    """Whether a call moves what it is called on to an accelerator."""
    if not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr in ("cuda", "npu"):
        return True
    if call.func.attr != "to":
        return False
    given = [kw.value for kw in call.keywords if kw.arg == "device"] or call.args[:1]
    return bool(given) and is_accelerator(given[0])


def is_accelerator(node: ast.expr) -> bool:
    """Whether an argument of ``.to`` is a device, and not the host."""
    if isinstance(node, ast.JoinedStr) and node.values:
        node = node.values[0]
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int) or str(node.value).startswith(("cuda", "npu"))
    name = last_name(node) or ""
    return name in _RANKS or (not name.startswith("cpu") and denotes(node, names_device))


def iterated(loop: Loop) -> ast.expr | None:
    """What a loop runs over: a name, an attribute or a ``DataLoader`` made there.

    It is looked for through ``enumerate`` and the like.
    """
    node: ast.expr | None = getattr(loop, "iter", None)
    while isinstance(node, (ast.Call, ast.Subscript)):
        if isinstance(node, ast.Subscript):
            node = node.value
        elif last_name(node.func) == "DataLoader":
            break
        elif last_name(node.func) in _THROUGH and node.args:
            node = node.args[0]
        else:
            return None
    return node


@lru_cache(maxsize=1)
def loaders(tree: ast.Module) -> dict[str, tuple[ast.Call, ...]]:
    """The ``DataLoader`` calls of a file, by the variables and attributes that hold them."""
    found: dict[str, tuple[ast.Call, ...]] = {}
    for node in walk(tree):
        if isinstance(node, ast.Assign):
            made = tuple(call for call in calls(node) if last_name(call.func) == "DataLoader")
            for name in filter(None, map(_held_by, node.targets)) if made else ():
                found[name] = found.get(name, ()) + made
    return found


def _held_by(target: ast.expr) -> str | None:
    return last_name(target.value if isinstance(target, ast.Subscript) else target)


def loaders_of(loop: Loop, tree: ast.Module) -> tuple[ast.Call, ...]:
    """The ``DataLoader`` calls that a loop may run over; none where the file does not tell.

    The loop makes it, names the variable, or a parameter to which callers in the file give it.
    """
    over = iterated(loop)
    if isinstance(over, ast.Call):
        return (over,)
    name = last_name(over)
    if name is None:
        return ()
    known = loaders(tree)
    function = _function_around(loop, tree)
    position = _position(function, name) if function is not None else None
    if function is None or position is None:
        return known.get(name, ())
    found: tuple[ast.Call, ...] = ()
    for call in walk(tree):
        if isinstance(call, ast.Call) and last_name(call.func) == function.name:
            found += known.get(_given(call, name, position, function) or "", ())
    return found


def _function_around(loop: Loop, tree: ast.Module) -> ast.FunctionDef | None:
    around = [
        node
        for node in walk(tree)
        if isinstance(node, ast.FunctionDef) and node.lineno < loop.lineno <= lines_of(node)[1]
    ]
    return max(around, key=lambda node: node.lineno, default=None)


def _position(function: ast.FunctionDef, name: str) -> int | None:
    names = [parameter.arg for parameter in (*function.args.posonlyargs, *function.args.args)]
    return names.index(name) if name in names else None


def _given(call: ast.Call, name: str, position: int, function: ast.FunctionDef) -> str | None:
    """The name of what a call hands to a parameter."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return last_name(keyword.value)
    is_method = function.args.args[:1] and function.args.args[0].arg in ("self", "cls")
    index = position - bool(is_method and isinstance(call.func, ast.Attribute))
    given = call.args[index] if 0 <= index < len(call.args) else None
    return _held_by(given) if given is not None else None


def batch_names(loop: Loop) -> set[str]:
    """The loop's variables, and what is taken out of them without a computation."""
    names = _names(getattr(loop, "target", None))
    for node in inside(loop):
        if isinstance(node, ast.Assign) and _is_part(node.value, names):
            names = names.union(*map(_names, node.targets))
    return names


def _is_part(value: ast.expr, names: set[str]) -> bool:
    if isinstance(value, ast.Tuple):
        return any(root(element) in names for element in value.elts)
    return root(value) in names


def _names(target: ast.expr | None) -> set[str]:
    if isinstance(target, ast.Name):
        return {target.id}
    return set().union(*map(_names, getattr(target, "elts", ())))


def moves_batches(loop: Loop) -> bool:
    """Whether the loop moves what it is given to an accelerator."""
    names = batch_names(loop)
    for node in inside(loop):
        if isinstance(node, ast.comprehension) and root(node.iter) in names:
            names = names | _names(node.target)
    return any(moves(call) and root(call.func) in names for call in calls(loop))

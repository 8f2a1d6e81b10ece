"""Questions about LibCST expressions that several packs ask."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

import libcst as cst

from cuda2npu.rule import BACKEND, DEVICE, FOREIGN_PACKAGES, Site
from cuda2npu_codemods.passed_on import kinds_of
from cuda2npu_codemods.words import (
    HOST_DEVICES,
    OTHER_ACCELERATORS,
    names_backend,
    names_device,
)

Names = Callable[[str], bool]

FOREIGN_HEADS = FOREIGN_PACKAGES | frozenset({"cp", "tf", "jnp", "mx", "trt", "ort", "xgb", "lgb"})
"""With the names that such packages go by where a star import or notebook brought them."""
FOREIGN_METHODS = frozenset(
    "bind_input bind_output bind_ortvalue_input bind_ortvalue_output "
    "ortvalue_from_numpy ortvalue_from_shape_and_type set_providers".split()
)
"""Methods of onnxruntime, whose ``device_type="cuda"`` is not PyTorch's."""


def terminal(node: cst.CSTNode | None) -> str | None:
    """The last identifier of a name, attribute, call or subscript: ``b`` in ``a.b(c)[0]``."""
    while isinstance(node, (cst.Call, cst.Subscript)):
        node = node.func if isinstance(node, cst.Call) else node.value
    if isinstance(node, cst.Attribute):
        return node.attr.value
    return node.value if isinstance(node, cst.Name) else None


def walk(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The node and every node inside it."""
    yield node
    for child in node.children:
        yield from walk(child)


def outward(node: cst.BaseExpression, site: Site) -> tuple[cst.CSTNode, cst.CSTNode | None]:
    """The expression whose value the node may be, and what takes it."""
    child: cst.CSTNode = node
    parent = site.parent(child)
    while (isinstance(parent, cst.IfExp) and child is not parent.test) or isinstance(
        parent, cst.BooleanOperation
    ):
        child, parent = parent, site.parent(parent)
    return child, parent


def string(node: cst.CSTNode | None) -> str | None:
    """The value of a plain string literal."""
    if not isinstance(node, cst.SimpleString):
        return None
    value = node.evaluated_value
    return value if isinstance(value, str) else None


def with_value(node: cst.SimpleString, old: str, new: str) -> cst.SimpleString:
    """The literal with its text changed and its quotes and prefix kept."""
    return node.with_changes(value=node.value.replace(old, new))


def strings(node: cst.CSTNode) -> list[str]:
    """The literal, or the literals of a tuple, list or set."""
    elements = getattr(node, "elements", None)
    nodes = [element.value for element in elements] if elements else [node]
    return [text for text in map(string, nodes) if text]


def defines_option(call: cst.Call) -> bool:
    """Whether a call tells a parser of an option; ``add`` of configargparse by its flag alone."""
    callee = terminal(call.func)
    if callee == "add":
        return bool(call.args) and (string(call.args[0].value) or "").startswith("-")
    return callee in ("add_argument", "add_option", "option")


def matched(call: cst.Call) -> tuple[cst.BaseExpression, ...]:
    """The pattern or prefix that a call looks for, and what it looks in."""
    callee, args = terminal(call.func), [arg.value for arg in call.args]
    if callee in ("search", "match", "findall", "compile") and len(args) == 2:
        return args[0], args[1]
    looks = callee in ("startswith", "endswith", "find", "count")
    if looks and args and isinstance(call.func, cst.Attribute):
        return args[0], call.func.value
    return ()


def is_device(site: Site, node: cst.CSTNode | None) -> bool:
    """Whether an expression denotes a device, a device type or a device string."""
    return _denotes(site, node, names_device)


def is_backend(site: Site, node: cst.CSTNode | None) -> bool:
    """Whether an expression denotes a process-group backend."""
    return _denotes(site, node, names_backend)


def _denotes(site: Site, node: cst.CSTNode | None, names: Names) -> bool:
    if isinstance(node, cst.Call):
        return _call_denotes(site, node, names)
    if isinstance(node, cst.Subscript):
        key = _key(node)
        return names(key) if key is not None else _denotes(site, node.value, names)
    if isinstance(node, cst.Attribute):
        if node.attr.value == "type" and names is names_device:
            # Nothing else that is compared with a device's name is called x.type.
            return terminal(node.value) not in ("self", "args", "cfg", "config", "opt")
        if node.attr.value in ("value", "lower", "strip"):
            return _denotes(site, node.value, names)
        return names(node.attr.value)
    if isinstance(node, cst.Name):
        if names(node.value) or _binding_denotes(site, node.value, names):
            return True
        if _is_passed_on(site, node.value, names):
            return True
        subject = _captured(site, node)
        return subject is not None and _denotes(site, subject, names)
    if isinstance(node, cst.BooleanOperation):
        return any(_denotes(site, side, names) for side in (node.left, node.right))
    return False


def _is_passed_on(site: Site, name: str, names: Names) -> bool:
    """A variable that its function hands on to torch as a device or a backend."""
    function = next((n for n in site.enclosing if not isinstance(n, ast.ClassDef)), None)
    kind = DEVICE if names is names_device else BACKEND
    return function is not None and kinds_of(function, name, site.meaning) == {kind}


def _captured(site: Site, node: cst.Name) -> cst.BaseExpression | None:
    """What ``s`` stands for in ``match device: case str() as s if s.startswith(…)``."""
    case = next((a for a in site.ancestors(node) if isinstance(a, cst.MatchCase)), None)
    pattern, match = case and case.pattern, case and site.parent(case)
    if not isinstance(pattern, cst.MatchAs) or not isinstance(match, cst.Match):
        return None
    whole = pattern.pattern is None or isinstance(pattern.pattern, cst.MatchClass)
    named = pattern.name is not None and pattern.name.value == node.value
    return match.subject if whole and named else None


def _call_denotes(site: Site, call: cst.Call, names: Names) -> bool:
    """``str(device)``, ``device.lower()``, ``args.get("device")``, ``get_device(…)``."""
    callee = terminal(call.func)
    first = call.args[0].value if call.args else None
    if callee in ("str", "repr", "device"):
        return callee == "device" or _denotes(site, first, names)
    if callee in ("get", "pop", "getattr", "getenv", "setdefault"):
        keys = (string(arg.value) for arg in call.args[:2])
        return any(key is not None and names(key) for key in keys)
    text_methods = ("lower", "strip", "split", "partition", "replace", "format", "removeprefix")
    if isinstance(call.func, cst.Attribute) and callee in text_methods:
        return _denotes(site, call.func.value, names)
    if callee is None or (callee == "get_device" and isinstance(call.func, cst.Attribute)):
        return False  # Tensor.get_device() is an index
    return names(callee)


def _key(node: cst.Subscript) -> str | None:
    element = node.slice[0].slice
    return string(element.value) if isinstance(element, cst.Index) else None


def _binding_denotes(site: Site, name: str, names: Names) -> bool:
    """A variable whose one assignment reads a device: ``kind = x.device.type``."""
    value = site.binding(name)
    if isinstance(value, ast.Attribute):
        if value.attr == "type" and isinstance(value.value, (ast.Attribute, ast.Name)):
            inner = value.value
            return names(inner.attr if isinstance(inner, ast.Attribute) else inner.id)
        return names(value.attr)
    return False


def denotes(node: ast.AST | None, names: Names) -> bool:
    """The same question about an expression elsewhere in the file: by its names alone."""
    if isinstance(node, ast.Name):
        return names(node.id)
    if isinstance(node, ast.Attribute):
        if node.attr in ("type", "value"):
            return denotes(node.value, names)
        return names(node.attr)
    if isinstance(node, ast.Subscript):
        key = getattr(node.slice, "value", None)
        return names(key) if isinstance(key, str) else denotes(node.value, names)
    if not isinstance(node, ast.Call):
        return False
    callee, first = last_name(node.func), node.args[0] if node.args else None
    if callee in ("str", "repr"):
        return denotes(first, names)
    if callee in ("lower", "strip", "split", "partition") and isinstance(node.func, ast.Attribute):
        return denotes(node.func.value, names)
    return callee == "device" and names is names_device


def last_name(node: ast.AST | None) -> str | None:
    """The last identifier of a name or attribute."""
    name = getattr(node, "attr", getattr(node, "id", None))
    return name if isinstance(name, str) else None


def meaning_of(node: ast.AST, site: Site) -> str | None:
    """What a name or attribute chain means where the statement stands; see ``Site.name``."""
    if isinstance(node, ast.Attribute):
        head = meaning_of(node.value, site)
        return f"{head}.{node.attr}" if head else None
    return site.meaning(node.id) if isinstance(node, ast.Name) else None


def is_foreign_call(site: Site, call: cst.Call) -> bool:
    """Whether a call goes to a package whose device names are its own."""
    callee = terminal(call.func)
    if callee in FOREIGN_METHODS:
        return True
    name = site.name(call.func)
    return name is not None and name.partition(".")[0] in FOREIGN_HEADS


def in_cuda_row(site: Site, node: cst.CSTNode) -> bool:
    """Whether the node is part of the entry ``"cuda": …`` of a table by device."""
    return any(
        isinstance(ancestor, cst.DictElement)
        and string(ancestor.key) == "cuda"
        and is_table_by_device(site.parent(ancestor))
        for ancestor in site.ancestors(node)
    )


def is_table_by_device(node: cst.CSTNode | None) -> bool:
    """``{"cuda": …, "cpu": …}``; a record with a field called cuda is none.

    Neither is one of generator states, which are taken where it is built.
    """
    devices = HOST_DEVICES | OTHER_ACCELERATORS | {"npu"}
    entries = _entries(node)
    is_record = any(_is_state(value) for value in entries.values())
    return "cuda" in entries and bool(devices & set(entries)) and not is_record


def _is_state(node: cst.BaseExpression) -> bool:
    if isinstance(node, cst.IfExp):
        return _is_state(node.body)
    taken = isinstance(node, cst.Call) and terminal(node)
    return taken in ("get_rng_state", "get_rng_state_all")


def _entries(node: cst.CSTNode | None) -> dict[str, cst.BaseExpression]:
    elements = node.elements if isinstance(node, cst.Dict) else ()
    return {string(e.key) or "": e.value for e in elements if isinstance(e, cst.DictElement)}

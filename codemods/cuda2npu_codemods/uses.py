"""What a string literal is used as: a device, a process-group backend, or neither.

From the literal the walk goes outward, through conditional expressions, formatting and
containers, to the place that takes the value: an argument, an assignment, a comparison, a
default. Only that place decides; the letters alone never do.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Callable
from enum import Enum

import libcst as cst

from cuda2npu.rule import Site
from cuda2npu_codemods.expressions import (
    is_backend,
    is_device,
    is_foreign_call,
    string,
    terminal,
)
from cuda2npu_codemods.words import (
    HOST_DEVICES,
    OTHER_ACCELERATORS,
    OTHER_BACKENDS,
    names_backend,
    names_device,
)


class Use(Enum):
    """What takes the value."""

    DEVICE = "device"
    BACKEND = "backend"
    KEY = "key"
    """A dictionary key or subscript: it names an entry, whatever it says."""
    TEXT = "text"
    """A message, log line or other text for people."""
    FOREIGN = "foreign"
    UNKNOWN_ARGUMENT = "argument"
    """A positional argument of a function the file does not define."""


_DEVICE_ARGUMENTS = {
    "torch.device": 0,
    "torch.autocast": 0,
    "torch.amp.autocast": 0,
    "torch.amp.GradScaler": 0,
    "torch.amp.autocast_mode.autocast": 0,
    "torch.amp.custom_fwd": 0,
    "torch.amp.custom_bwd": 0,
    "torch.amp.is_autocast_available": 0,
    "torch.is_autocast_enabled": 0,
    "torch.get_autocast_dtype": 0,
    "torch.set_autocast_dtype": 0,
    "torch.set_autocast_enabled": 0,
    "torch.Generator": 0,
    "torch.Stream": 0,
    "torch.Event": 0,
    "torch.set_default_device": 0,
    "torch.get_device_module": 0,
    "torch.utils.set_module": 0,
    "torch.distributed.device_mesh.init_device_mesh": 0,
    "torch.distributed.init_device_mesh": 0,
    "torch.distributed.DeviceMesh": 0,
    "torch.distributed.device_mesh.DeviceMesh": 0,
    "torch.load": 1,
    "torch.jit.load": 1,
    "torch.hub.load_state_dict_from_url": 2,
}
"""Functions with the position of the argument that is a device or device type."""
_BACKEND_ARGUMENTS = {
    "torch.distributed.init_process_group": 0,
    "torch.distributed.new_group": 2,
    "torch.distributed.is_backend_available": 0,
    "torch.distributed.Backend": 0,
    "deepspeed.init_distributed": 0,
    "deepspeed.comm.init_distributed": 0,
}
_BACKEND_METHODS = {"init_process_group": 0, "new_group": 2}
_OTHER_COLLECTIVES = ("horovod", "ray.util.collective", "ray.experimental", "chainermn")
"""Packages whose ``backend="nccl"`` is no process group of torch."""
_DEVICE_METHODS = frozenset({"to", "to_empty", "set_default_device", "init_device_mesh"})
_STRING_METHODS = frozenset(
    "startswith endswith removeprefix removesuffix replace split rsplit partition "
    "strip lstrip count index find".split()
)
_TEXT_FUNCTIONS = frozenset(
    "print warn warning info debug error exception critical log log_message write echo".split()
)
_READERS = frozenset("get pop getattr getenv setdefault get_value".split())
_OPTION_FUNCTIONS = frozenset("add_argument add_option option argument Option Argument".split())
_OPTION_KEYWORDS = frozenset(["default", "choices", "const"])
_DEFAULT_KEYWORDS = frozenset(["default", "default_factory", "factory", "value"])

_STANDARD = frozenset(sys.stdlib_module_names) | frozenset(dir(builtins))

Step = Callable[[Site, cst.CSTNode, cst.CSTNode], "Use | cst.CSTNode | None"]


def use_of(site: Site, node: cst.CSTNode) -> Use | None:
    """What takes the value of a literal; None when nothing shows it."""
    child, parent = node, site.parent(node)
    while parent is not None:
        step = _STEPS.get(type(parent))
        if step is None:
            return None
        result = step(site, child, parent)
        if not isinstance(result, cst.CSTNode):
            return result
        child, parent = result, site.parent(result)
    return None


def _out(site: Site, child: cst.CSTNode, parent: cst.CSTNode) -> cst.CSTNode:
    """The value passes through."""
    return parent


def _condition(site: Site, child: cst.CSTNode, parent: cst.CSTNode) -> Use | cst.CSTNode | None:
    assert isinstance(parent, cst.IfExp)
    if child is parent.test:
        return None
    other = string(parent.orelse if child is parent.body else parent.body)
    test = site.code(parent.test)
    outward = use_of(site, parent)
    if outward in (Use.DEVICE, Use.BACKEND, Use.KEY, Use.FOREIGN):
        return outward
    if other in HOST_DEVICES | OTHER_ACCELERATORS and _asks_for_gpu(test):
        return Use.DEVICE
    if other in OTHER_BACKENDS:
        return Use.BACKEND
    return outward


def _asks_for_gpu(test: str) -> bool:
    lower = test.lower()
    return any(word in lower for word in ("is_available", "cuda", "gpu", "device"))


def _or(site: Site, child: cst.CSTNode, parent: cst.CSTNode) -> Use | cst.CSTNode | None:
    """``device or "cuda"``."""
    assert isinstance(parent, cst.BooleanOperation)
    other = parent.left if child is parent.right else parent.right
    if is_device(site, other):
        return Use.DEVICE
    return Use.BACKEND if is_backend(site, other) else parent


def _binary(site: Site, child: cst.CSTNode, parent: cst.CSTNode) -> Use | cst.CSTNode | None:
    assert isinstance(parent, cst.BinaryOperation)
    if isinstance(parent.operator, cst.Modulo) and child is parent.right:
        return Use.TEXT
    return parent


def _method_of_string(
    site: Site, child: cst.CSTNode, parent: cst.CSTNode
) -> Use | cst.CSTNode | None:
    """``"cuda:{}".format(i)``, ``"cuda".lower()``: the call's value goes on."""
    call = site.parent(parent)
    if isinstance(call, cst.Call) and call.func is parent:
        return call
    return None


def _argument(site: Site, child: cst.CSTNode, parent: cst.CSTNode) -> Use | cst.CSTNode | None:
    assert isinstance(parent, cst.Arg)
    call = site.parent(parent)
    if isinstance(call, cst.ClassDef):
        return None
    assert isinstance(call, cst.Call)
    if is_foreign_call(site, call):
        return Use.FOREIGN
    if parent.keyword is not None:
        return _keyword(site, parent.keyword.value, call)
    return _positional(site, call.args.index(parent), call)


def _keyword(site: Site, keyword: str, call: cst.Call) -> Use | cst.CSTNode | None:
    if names_backend(keyword) and (site.name(call.func) or "").startswith(_OTHER_COLLECTIVES):
        return Use.FOREIGN
    if names_device(keyword):
        return Use.DEVICE
    if names_backend(keyword):
        return Use.BACKEND
    if keyword in _OPTION_KEYWORDS and terminal(call.func) in _OPTION_FUNCTIONS:
        return _option(site, call)
    return call if keyword in _DEFAULT_KEYWORDS else None


def _option(site: Site, call: cst.Call) -> Use | cst.CSTNode | None:
    """The default or the choices of a command-line option, by the option's own name."""
    flags = [string(arg.value) or "" for arg in call.args if arg.keyword is None]
    dest = site.argument(call, "dest")
    flags += [string(dest.value) or ""] if dest else []
    if any(map(names_device, flags)):
        return Use.DEVICE
    if any(map(names_backend, flags)):
        return Use.BACKEND
    return None if flags else call


def _positional(site: Site, position: int, call: cst.Call) -> Use | cst.CSTNode | None:
    name, callee = site.name(call.func), terminal(call.func)
    if name in _DEVICE_ARGUMENTS:
        return Use.DEVICE if _DEVICE_ARGUMENTS[name] == position else None
    if name in _BACKEND_ARGUMENTS:
        return Use.BACKEND if _BACKEND_ARGUMENTS[name] == position else None
    if isinstance(call.func, cst.Attribute):
        use = _method(site, call.func, position, call)
        if use is not None:
            return use
    if callee in _OPTION_FUNCTIONS or _is_exception(callee):
        return Use.TEXT
    if callee in ("str", "tuple", "list", "set", "frozenset", "field", "cast"):
        return call
    if callee in _READERS:
        return _read_default(call) if position else Use.KEY
    if callee == "parametrize" and position == 1:
        return _parametrized(call)
    if position == 0 and callee in ("isinstance", "hasattr", "len", "int", "import_module"):
        return None
    own = _own_function(site, callee, position)
    if own is not None or name is None:
        return own or Use.UNKNOWN_ARGUMENT
    return Use.TEXT if name.partition(".")[0] in _STANDARD else Use.UNKNOWN_ARGUMENT


def _method(
    site: Site, func: cst.Attribute, position: int, call: cst.Call
) -> Use | cst.CSTNode | None:
    method = func.attr.value
    if method in _DEVICE_METHODS and position == 0:
        return Use.DEVICE
    if _BACKEND_METHODS.get(method) == position:
        return Use.BACKEND
    if method in _STRING_METHODS or method in ("append", "add", "extend", "insert", "remove"):
        return _by_operand(site, func.value)
    if method in _TEXT_FUNCTIONS:
        return Use.TEXT
    return None


def _by_operand(site: Site, node: cst.CSTNode) -> Use | None:
    if is_device(site, node):
        return Use.DEVICE
    if is_backend(site, node):
        return Use.BACKEND
    return Use.TEXT


def _is_exception(callee: str | None) -> bool:
    return callee in _TEXT_FUNCTIONS or (callee or "").endswith(("Error", "Exception", "Warning"))


def _read_default(call: cst.Call) -> Use | None:
    """``args.get("device", "cuda")`` and ``getattr(args, "device", "cuda")``."""
    keys = [string(arg.value) or "" for arg in call.args[:2]]
    if any(map(names_device, keys)):
        return Use.DEVICE
    return Use.BACKEND if any(map(names_backend, keys)) else None


def _parametrized(call: cst.Call) -> Use | None:
    names = (string(call.args[0].value) or "").replace(" ", "").split(",")
    if len(names) == 1 and names_device(names[0]):
        return Use.DEVICE
    return Use.BACKEND if len(names) == 1 and names_backend(names[0]) else None


def _own_function(site: Site, callee: str | None, position: int) -> Use | None:
    """By the parameter's name, when the file defines the function or class that is called."""
    for name in (callee or "", "__init__") if _is_class(site, callee) else (callee or "",):
        for function in site.file.functions(name):
            arguments = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
            if arguments[:1] in (["self"], ["cls"]):
                arguments = arguments[1:]
            if position < len(arguments):
                return _by_name(arguments[position]) or Use.TEXT
    return None


def _is_class(site: Site, name: str | None) -> bool:
    return any(isinstance(n, ast.ClassDef) and n.name == name for n in site.file.tree.body)


def _by_name(identifier: str) -> Use | None:
    if names_device(identifier):
        return Use.DEVICE
    return Use.BACKEND if names_backend(identifier) else None


def _compared(site: Site, child: cst.CSTNode, parent: cst.CSTNode) -> Use | cst.CSTNode | None:
    """The other side of the comparison decides."""
    comparison = parent if isinstance(parent, cst.Comparison) else site.parent(parent)
    assert isinstance(comparison, cst.Comparison)
    sides = [comparison.left, *(target.comparator for target in comparison.comparisons)]
    for side in sides:
        if side is not child:
            use = _by_operand(site, side)
            if use is not Use.TEXT:
                return use
    return Use.TEXT


def _dict_element(site: Site, child: cst.CSTNode, parent: cst.CSTNode) -> Use | cst.CSTNode | None:
    assert isinstance(parent, cst.DictElement)
    if child is parent.key:
        return Use.KEY
    key = string(parent.key)
    if key == "cuda" or _has_npu_entry(site.parent(parent)):
        return Use.KEY  # a table by device: CUDA's own row, or one beside the NPU's
    if key and _by_name(key):
        return _by_name(key)
    outward = use_of(site, site.parent(parent) or parent)
    return outward if outward in (Use.DEVICE, Use.BACKEND) else None


def _has_npu_entry(node: cst.CSTNode | None) -> bool:
    elements = node.elements if isinstance(node, cst.Dict) else ()
    return any(isinstance(e, cst.DictElement) and string(e.key) == "npu" for e in elements)


def _assigned(site: Site, child: cst.CSTNode, parent: cst.CSTNode) -> Use | cst.CSTNode | None:
    if isinstance(parent, cst.Assign):
        targets: list[cst.CSTNode] = [target.target for target in parent.targets]
    else:
        assert isinstance(parent, (cst.AnnAssign, cst.NamedExpr, cst.AugAssign))
        targets = [parent.target]
    for target in targets:
        use = _target(site, target)
        if use is not None:
            return use
    return None


def _target(site: Site, target: cst.CSTNode) -> Use | None:
    if isinstance(target, cst.Subscript):
        key = target.slice[0].slice
        name = string(key.value) if isinstance(key, cst.Index) else None
        return _by_name(name) if name else _target(site, target.value)
    name = terminal(target)
    if name is None:
        return None
    return _by_name(name) or _by_flow(site, name)


def _by_flow(site: Site, name: str) -> Use | None:
    """Where the variable's value is passed on in this file."""
    for place in site.file.flows(name):
        callee, _, slot = place.partition("/")
        if slot.endswith("=") and _by_name(slot[:-1]):
            return _by_name(slot[:-1])
        if slot == "0" and callee in ("to", "device", "autocast", "set_default_device"):
            return Use.DEVICE
        if slot == "0" and callee == "init_process_group":
            return Use.BACKEND
    return None


def _default(site: Site, child: cst.CSTNode, parent: cst.CSTNode) -> Use | cst.CSTNode | None:
    assert isinstance(parent, cst.Param)
    return _by_name(parent.name.value)


def _returned(site: Site, child: cst.CSTNode, parent: cst.CSTNode) -> Use | cst.CSTNode | None:
    """By the function's name, or by the other devices that it returns."""
    function = next(iter(site.enclosing), None)
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return None
    use = _by_name(function.name)
    if use is not None:
        return use
    returned = {
        node.value.value
        for node in ast.walk(function)
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Constant)
    }
    if returned & (HOST_DEVICES | OTHER_ACCELERATORS):
        return Use.DEVICE
    return Use.BACKEND if returned & OTHER_BACKENDS else None


def _loop(site: Site, child: cst.CSTNode, parent: cst.CSTNode) -> Use | cst.CSTNode | None:
    assert isinstance(parent, (cst.For, cst.CompFor))
    return _target(site, parent.target)


def _key(site: Site, child: cst.CSTNode, parent: cst.CSTNode) -> Use:
    return Use.KEY


def _text(site: Site, child: cst.CSTNode, parent: cst.CSTNode) -> Use:
    return Use.TEXT


def _case(site: Site, child: cst.CSTNode, parent: cst.CSTNode) -> Use | cst.CSTNode | None:
    match = next((a for a in site.ancestors(parent) if isinstance(a, cst.Match)), None)
    return _by_operand(site, match.subject) if match else None


_STEPS: dict[type[cst.CSTNode], Step] = {
    cst.IfExp: _condition,
    cst.BooleanOperation: _or,
    cst.BinaryOperation: _binary,
    cst.ConcatenatedString: _out,
    cst.Attribute: _method_of_string,
    cst.Call: _out,
    cst.Arg: _argument,
    cst.Comparison: _compared,
    cst.ComparisonTarget: _compared,
    cst.Element: _out,
    cst.List: _out,
    cst.Tuple: _out,
    cst.Set: _out,
    cst.Dict: _out,
    cst.DictElement: _dict_element,
    cst.Lambda: _out,
    cst.Assign: _assigned,
    cst.AnnAssign: _assigned,
    cst.AugAssign: _assigned,
    cst.NamedExpr: _assigned,
    cst.Param: _default,
    cst.Return: _returned,
    cst.For: _loop,
    cst.CompFor: _loop,
    cst.Index: _key,
    cst.FormattedStringExpression: _text,
    cst.Raise: _text,
    cst.MatchValue: _case,
}

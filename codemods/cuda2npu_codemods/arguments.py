"""What a function or method takes an argument as: a device, a backend, or something else."""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterator
from enum import Enum

import libcst as cst

from cuda2npu.rule import BACKEND, DEVICE, FOREIGN, Site
from cuda2npu_codemods.device_lists import holds_devices
from cuda2npu_codemods.expressions import (
    defines_option,
    is_backend,
    is_device,
    string,
    terminal,
)
from cuda2npu_codemods.passed_on import kinds_of
from cuda2npu_codemods.project_values import (
    attribute_keys,
    is_backend_elsewhere,
    is_device_elsewhere,
    is_shared,
    kinds,
    option_keys,
)
from cuda2npu_codemods.words import names_backend, names_device


class Use(Enum):
    """What takes the value."""

    DEVICE = "device"
    BACKEND = "backend"
    KEY = "key"
    """A dictionary key or subscript: it names an entry, whatever it says."""
    TEXT = "text"
    """A message, log line or other text for people."""
    FOREIGN = "foreign"
    SHARED = "shared"
    """A value that torch and somebody else read: neither's name fits both."""
    COMMAND = "command"
    """An option of a command that the project is not known to take."""
    UNKNOWN_ARGUMENT = "argument"
    """A positional argument of a function the file does not define."""


_DEVICE_ARGUMENTS = {
    "torch.device": 0,
    "torch.autocast": 0,
    "torch.amp.autocast": 0,
    "torch.amp.GradScaler": 0,
    "torch.amp.grad_scaler.GradScaler": 0,
    "torch.GradScaler": 0,
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
_OTHER_COLLECTIVES = ("horovod", "ray.util.collective", "ray.experimental", "chainermn", "vllm")
"""Packages whose ``backend="nccl"`` is no process group of torch."""
_DEVICE_METHODS = frozenset({"to", "cuda", "to_empty", "set_default_device", "init_device_mesh"})
_STRING_METHODS = frozenset(
    "startswith endswith removeprefix removesuffix replace split rsplit partition "
    "strip lstrip count index find".split()
)
_LIST_METHODS = frozenset("append add extend insert remove discard".split())
_TEXT_FUNCTIONS = frozenset(
    "print warn warning info debug error exception critical log log_message write echo".split()
)
_READERS = frozenset("get pop getattr getenv setdefault get_value".split())
_ATTRIBUTE_SETTERS = frozenset(["setattr", "delattr", "object"])
"""With ``mock.patch.object``: they take an attribute's name."""
_OPTION_FUNCTIONS = frozenset("argument Option Argument".split())
_OPTION_KEYWORDS = frozenset(["default", "choices", "const"])
_DEFAULT_KEYWORDS = frozenset(["default", "default_factory", "factory", "value"])

_QUESTIONS = frozenset("isinstance hasattr len int import_module".split())

_STANDARD = frozenset(sys.stdlib_module_names) | frozenset(dir(builtins)) | {"torch"}
"""Packages whose functions are known: a string they take by position is no device."""


def keyword_use(site: Site, keyword: str, call: cst.Call) -> Use | cst.CSTNode | None:
    if names_backend(keyword) and is_other_collective(site, call):
        return Use.FOREIGN
    if (terminal(call.func) or "").startswith("register"):
        return None  # a registry of implementations by device: CUDA's stays CUDA's
    if names_device(keyword) or (keyword == "type" and site.name(call.func) == "torch.device"):
        return Use.DEVICE if _may_be_torch(site, call) else Use.UNKNOWN_ARGUMENT
    if names_backend(keyword):
        return Use.BACKEND
    if (terminal(call.func) or "")[:1].isupper():  # Config(accel="cuda"): a field of the class
        elsewhere = use_elsewhere(site, attribute_keys(site, keyword))
        if elsewhere is not None:
            return elsewhere
    if keyword in (*_OPTION_KEYWORDS, "type") and _takes_option(call):
        return _option(site, call)
    if keyword in _DEFAULT_KEYWORDS:
        return call
    own = site.file.functions(terminal(call.func) or "")
    return next((passed_on(site, each, keyword) for each in own), None)


def use_elsewhere(site: Site, keys: Iterator[str]) -> Use | None:
    """What other files of the project take the value of these keys for."""
    found = kinds(site, keys)
    if FOREIGN in found:
        return Use.SHARED
    if DEVICE in found:
        return Use.DEVICE
    return Use.BACKEND if BACKEND in found else None


def _may_be_torch(site: Site, call: cst.Call) -> bool:
    """False for a package of others in a file without torch: its device may be of any kind."""
    if site.file.imports("torch"):
        return True
    name = site.name(call.func)
    if name is None or "." not in name:
        return True
    head = name.partition(".")[0]
    return head in _STANDARD or head in ("", "typer", "click") or head.startswith("torch")


def is_other_collective(site: Site, call: cst.Call) -> bool:
    """Whether a call goes to a package with collectives of its own."""
    return (site.name(call.func) or "").startswith(_OTHER_COLLECTIVES)


def _option(site: Site, call: cst.Call) -> Use | cst.CSTNode | None:
    """The default or the choices of a command-line option, by the option's own name."""
    flags = [string(arg.value) or "" for arg in call.args if arg.keyword is None]
    dest = site.argument(call, "dest")
    flags += [string(dest.value) or ""] if dest else []
    elsewhere = use_elsewhere(site, option_keys(site, call))
    if elsewhere is Use.SHARED:
        return elsewhere
    if any(map(names_device, flags)):
        return Use.DEVICE
    if any(map(names_backend, flags)):
        return Use.BACKEND
    return elsewhere or (None if flags else call)


def _by_table(name: str | None, position: int) -> Use | None:
    """What a function of torch, known by name, takes at a position."""
    if name in _DEVICE_ARGUMENTS:
        return Use.DEVICE if _DEVICE_ARGUMENTS[name] == position else Use.TEXT
    if name in _BACKEND_ARGUMENTS:
        return Use.BACKEND if _BACKEND_ARGUMENTS[name] == position else Use.TEXT
    return Use.DEVICE if name is not None and name.startswith("torch.cuda.") else None


def _takes_option(call: cst.Call) -> bool:
    return defines_option(call) or terminal(call.func) in _OPTION_FUNCTIONS


def _is_definition(callee: str | None) -> bool:
    return (callee or "").startswith("DEFINE_")


def _option_value(callee: str, position: int, call: cst.Call) -> Use | cst.CSTNode | None:
    """The default that a command-line option takes by position, or its choices; else a text."""
    if _is_definition(callee) and position:  # absl: name, default, choices
        return by_name(string(call.args[0].value) or "") or Use.TEXT
    if callee in ("Option", "Argument") and position == 0:  # typer: default, flags
        flags = [string(arg.value) or "" for arg in call.args[1:] if arg.keyword is None]
        return Use.DEVICE if any(map(names_device, flags)) else call
    return Use.TEXT


def positional_use(site: Site, position: int, call: cst.Call) -> Use | cst.CSTNode | None:
    name, callee = site.name(call.func), terminal(call.func)
    known = _by_table(name, position)
    if known is not None:
        return known
    if isinstance(call.func, cst.Attribute):
        use = _method(site, call.func, position, call)
        if use is not None:
            return use
    if _takes_option(call) or _is_definition(callee) or _is_exception(callee):
        return _option_value(callee or "", position, call)
    if callee in ("str", "tuple", "list", "set", "frozenset", "field", "cast", "Choice", "Field"):
        return call
    if is_other_collective(site, call):
        return Use.FOREIGN
    if callee in _READERS and not (isinstance(call.func, cst.Name) and site.file.functions(callee)):
        return _read(site, position, call)
    if callee == "parametrize" and position == 1:
        return _parametrized(call)
    if callee in _ATTRIBUTE_SETTERS and position == 1:
        return Use.KEY
    if position == 0 and callee in _QUESTIONS:
        return _length(site, call) if callee == "len" else None
    own = _own_function(site, callee, position)
    if own is not None or name is None:
        return own or Use.UNKNOWN_ARGUMENT
    return Use.TEXT if name.partition(".")[0] in _STANDARD else Use.UNKNOWN_ARGUMENT


def _read(site: Site, position: int, call: cst.Call) -> Use | None:
    """The key or the default of ``table.get(…)``, ``getattr(…)`` and the like."""
    if position:
        return _read_default(call) or _own_function(site, terminal(call.func), position)
    table = call.func.value if isinstance(call.func, cst.Attribute) else None
    return Use.DEVICE if table is not None and holds_devices(site, table) else Use.KEY


def _length(site: Site, call: cst.Call) -> Use | None:
    """``device[len("cuda:"):]`` counts the letters of a device's name."""
    cut = site.parent(call)
    element = site.parent(cut) if isinstance(cut, cst.Slice) else None
    subscript = site.parent(element) if element is not None else None
    return by_operand(site, subscript.value) if isinstance(subscript, cst.Subscript) else None


def _method(
    site: Site, func: cst.Attribute, position: int, call: cst.Call
) -> Use | cst.CSTNode | None:
    method = func.attr.value
    if method in _DEVICE_METHODS and position == 0:
        return Use.DEVICE
    if _BACKEND_METHODS.get(method) == position:
        return Use.BACKEND
    if method in _STRING_METHODS or method in _LIST_METHODS:
        return by_operand(site, func.value)
    if method in _TEXT_FUNCTIONS:
        return Use.TEXT
    return None


def by_operand(site: Site, node: cst.CSTNode) -> Use | None:
    if is_shared(site, node):
        return Use.SHARED
    if is_device(site, node) or is_device_elsewhere(site, node) or holds_devices(site, node):
        return Use.DEVICE
    if is_backend(site, node) or is_backend_elsewhere(site, node):
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
                taken = arguments[position]
                return by_name(taken) or passed_on(site, function, taken) or Use.TEXT
    return None


def passed_on(site: Site, function: ast.AST, name: str) -> Use | None:
    """By what the function hands the variable on to."""
    found = kinds_of(function, name, site.meaning)
    if found == {BACKEND}:
        return Use.BACKEND
    if DEVICE in found:
        return Use.DEVICE if found == {DEVICE} else Use.UNKNOWN_ARGUMENT
    return None


def started_use(site: Site, index: int, call: cst.Call) -> Use | None:
    """``mp.spawn(main, args=(…))`` and ``Process(target=main, args=(…))``: an item of ``args``."""
    started = site.argument(call, "target") or site.argument(call, "fn", 0)
    if started is None:
        return None
    shift = 1 if terminal(call.func) in ("spawn", "start_processes") else 0  # the rank comes first
    return _own_function(site, terminal(started.value), index + shift)


def _is_class(site: Site, name: str | None) -> bool:
    return any(isinstance(n, ast.ClassDef) and n.name == name for n in site.file.tree.body)


def by_name(identifier: str) -> Use | None:
    if names_device(identifier):
        return Use.DEVICE
    return Use.BACKEND if names_backend(identifier) else None

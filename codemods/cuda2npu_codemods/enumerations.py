"""Enumerations of devices and backends: ``class Kind(Enum): CUDA = "cuda"``."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import libcst as cst

from cuda2npu.rule import Fix, FixLevel, Report, Site, leave, report, rewrite, rule
from cuda2npu_codemods.expressions import denotes, last_name, string, with_value
from cuda2npu_codemods.words import (
    HOST_DEVICES,
    OTHER_ACCELERATORS,
    OTHER_BACKENDS,
    names_backend,
    names_device,
)

_NEW = {"cuda": "npu", "nccl": "hccl"}
_DEVICE_TAKERS = frozenset("to device autocast set_default_device init_device_mesh".split())
_BACKEND_TAKERS = frozenset(["init_process_group"])
_DEVICE_KEYWORDS = ("device", "device_type", "map_location")


@rule(
    "NPU170",
    "device-member",
    on=cst.SimpleString,
    words=("cuda", "nccl"),
    fix=FixLevel.SAFE,
    why="an enumeration names the device or backend that this file uses: on an NPU it is npu, "
    "and hccl",
    examples=(
        rewrite(
            'class Kind(str, Enum):\n    CPU = "cpu"\n    CUDA = "cuda"\nx.to(Kind.CUDA.value)',
            'class Kind(str, Enum):\n    CPU = "cpu"\n    CUDA = "npu"\nx.to(Kind.CUDA.value)',
        ),
        rewrite(
            'class Kind(Enum):\n    CPU = "cpu"\n    CUDA = "cuda"\nk = Kind(x.device.type)',
            'class Kind(Enum):\n    CPU = "cpu"\n    CUDA = "npu"\nk = Kind(x.device.type)',
        ),
        rewrite(
            'class Lib(Enum):\n    GLOO = "gloo"\n    NCCL = "nccl"\n'
            "def start(lib: Lib):\n    dist.init_process_group(lib.value)",
            'class Lib(Enum):\n    GLOO = "gloo"\n    NCCL = "hccl"\n'
            "def start(lib: Lib):\n    dist.init_process_group(lib.value)",
        ),
        leave(
            'class Kind(Enum):\n    CPU = "cpu"\n    CUDA = "cuda"\n    NPU = "npu"\nk = Kind(dev)'
        ),
        leave('class Impl(Enum):\n    REF = "ref"\n    CUDA = "cuda"\nx.to(Impl.CUDA.value)'),
        leave('class Kind(Enum):\n    CPU = "cpu"\n    CUDA = "cuda"'),
        leave('class Kind:\n    CPU = "cpu"\n    CUDA = "cuda"\nx.to(Kind.CUDA)'),
    ),
)
def device_member(node: cst.SimpleString, site: Site) -> Fix | None:
    holder = _enumeration(node, site)
    if holder is None or not _feeds(holder.name, string(node) or "", site.file.tree):
        return None
    old = string(node) or ""
    return Fix({node: with_value(node, old, _NEW[old])})


@rule(
    "NPU171",
    "device-member-unproven",
    on=cst.SimpleString,
    words=("cuda", "nccl"),
    fix=FixLevel.NONE,
    quiet=True,
    why="an enumeration of devices or backends has a member for CUDA and none for the NPU; nothing "
    "in this file shows where it goes: add a member for npu, or hccl",
    examples=(
        report('class DeviceType(Enum):\n    CPU = "cpu"\n    CUDA = "cuda"'),
        leave('class DeviceType(Enum):\n    CPU = "cpu"\n    CUDA = "cuda"\n    NPU = "npu"'),
        leave('class Kernel(Enum):\n    CPU = "cpu"\n    CUDA = "cuda"'),
    ),
)
def device_member_unproven(node: cst.SimpleString, site: Site) -> Report | None:
    holder = _enumeration(node, site)
    if holder is None or _feeds(holder.name, string(node) or "", site.file.tree):
        return None
    names = names_device if string(node) == "cuda" else names_backend
    return Report() if names(holder.name) else None


def _enumeration(node: cst.SimpleString, site: Site) -> ast.ClassDef | None:
    """The enumeration that has the literal as a member, among others of its kind, none an NPU's."""
    holder, value = next(iter(site.enclosing), None), string(node)
    if value not in _NEW or not isinstance(site.parent(node), cst.Assign):
        return None
    if not isinstance(holder, ast.ClassDef):
        return None
    if not any((last_name(base) or "").endswith("Enum") for base in holder.bases):
        return None
    others = {
        member.value.value
        for member in holder.body
        if isinstance(member, ast.Assign) and isinstance(member.value, ast.Constant)
    }
    known = HOST_DEVICES | OTHER_ACCELERATORS if value == "cuda" else OTHER_BACKENDS
    return holder if others & known and _NEW[value] not in others else None


def _feeds(enumeration: str, value: str, tree: ast.Module) -> bool:
    """Whether members of the enumeration are taken as devices (or backends), or read from them."""
    names = names_device if value == "cuda" else names_backend
    holders = set(_annotated(enumeration, tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if last_name(node.func) == enumeration and node.args:
                if denotes(node.args[0], names) and not isinstance(node.args[0], ast.Name):
                    return True
            elif any(_is_member(v, enumeration, holders) for v in _taken(node, value)):
                return True
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            told = any(_is_told(side, value) for side in sides)
            if told and any(_is_member(side, enumeration, set()) for side in sides):
                return True
    return False


def _is_told(node: ast.expr, value: str) -> bool:
    """``x.device.type`` and ``dist.get_backend()``: what torch itself says."""
    if value == "cuda":
        text = ast.unparse(node)
        return text.endswith("device.type") or text.startswith("str(")
    return isinstance(node, ast.Call) and last_name(node.func) == "get_backend"


def _taken(call: ast.Call, value: str) -> Iterator[ast.expr]:
    """The arguments of a call of torch that are a device or a backend."""
    callee = last_name(call.func)
    if callee in (_DEVICE_TAKERS if value == "cuda" else _BACKEND_TAKERS):
        yield from call.args[:1]
        keywords = _DEVICE_KEYWORDS if value == "cuda" else ("backend",)
        yield from (k.value for k in call.keywords if k.arg in keywords)


def _is_member(node: ast.expr, enumeration: str, holders: set[str]) -> bool:
    """``Kind.CUDA``, ``Kind.CUDA.value``, or ``kind.value`` of a ``kind: Kind``."""
    if isinstance(node, ast.Attribute) and node.attr == "value":
        if last_name(node.value) in holders:
            return True
        node = node.value
    return isinstance(node, ast.Attribute) and last_name(node.value) == enumeration


def _annotated(enumeration: str, tree: ast.Module) -> Iterator[str]:
    """Parameters and fields that hold a member."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and last_name(node.annotation) == enumeration:
            yield node.arg
        elif isinstance(node, ast.AnnAssign) and last_name(node.annotation) == enumeration:
            yield last_name(node.target) or ""

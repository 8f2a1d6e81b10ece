"""What code asks of CUDA, and which of these uses stay as they are.

A question about the hardware, such as its compute capability, has no answer on an NPU: it raises
or gives None. Code that asks it behind a test of the device is not reached without a GPU.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cuda2npu.rule import FixLevel, Site
from cuda2npu_codemods.counterparts import counterpart
from cuda2npu_codemods.expressions import last_name, meaning_of
from cuda2npu_codemods.kernels import imported
from cuda2npu_codemods.words import DEVICE, DEVICE_TEMPLATE

_ASKS = frozenset(
    "is_available device_count current_device get_device_name get_device_properties "
    "is_bf16_supported is_initialized mem_get_info memory_allocated max_memory_allocated "
    "memory_reserved max_memory_reserved memory_summary memory_stats".split()
)
"""Functions of torch.cuda that tell of the device and put nothing on it."""
_NEUTRAL = frozenset({"get_arch_list", "get_gencode_flags"})
"""Those without counterpart that give an empty answer on a torch built without CUDA."""
_NVML = frozenset({"pynvml", "py3nvml", "nvidia_smi"})
_SHOWS = frozenset(
    "print info debug warning warn log write echo append add_row format join str int float get "
    "split strip replace update version get_arch_list get_gencode_flags".split()
)


@dataclass(frozen=True, slots=True)
class CudaUse:
    """A place in the code that speaks of CUDA."""

    level: FixLevel
    """The level at which it moves to the NPU; NONE when it never does."""
    places: bool = False
    """Whether it puts something on the device, rather than asking about it."""
    raises: bool = False
    """Whether it raises on an NPU machine as long as it stays."""

    @property
    def stays(self) -> bool:
        return self.level is not FixLevel.SAFE


_ASKED = CudaUse(FixLevel.SAFE)
_PLACED = CudaUse(FixLevel.SAFE, places=True)


def uses(nodes: Iterable[ast.AST], site: Site, *around: ast.AST) -> Iterator[CudaUse]:
    """Every use of CUDA in the nodes, with the nodes around them from the inside out."""
    for node in nodes:
        use = _use(node, around, site)
        if use is not None:
            yield use
        if use is None or not isinstance(node, ast.Attribute):
            yield from uses(ast.iter_child_nodes(node), site, node, *around)


def staying_level(found: Iterable[CudaUse]) -> FixLevel | None:
    """The lowest level among the uses that stay, at which all of them move; None without one."""
    levels = {use.level for use in found if use.stays}
    if not levels:
        return None
    return FixLevel.NONE if FixLevel.NONE in levels else FixLevel.UNSAFE


def only_probes(nodes: Iterable[ast.AST]) -> bool:
    """Whether the code does nothing but show or keep what it asks for."""
    inner = (part for node in nodes for part in ast.walk(node))
    return all(last_name(part.func) in _SHOWS for part in inner if isinstance(part, ast.Call))


def _use(node: ast.AST, around: tuple[ast.AST, ...], site: Site) -> CudaUse | None:
    if isinstance(node, ast.Attribute):
        return _of_attribute(node, around, site)
    if isinstance(node, ast.Name):
        return _of_name(node, around, site)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        if node.value.startswith("nvidia-smi"):
            return CudaUse(FixLevel.NONE, raises=True)
        named = DEVICE.fullmatch(node.value) or DEVICE_TEMPLATE.fullmatch(node.value)
        return _PLACED if named or node.value == "nccl" else None
    return _PLACED if isinstance(node, ast.keyword) and node.arg == "device" else None


def _of_attribute(node: ast.Attribute, around: tuple[ast.AST, ...], site: Site) -> CudaUse | None:
    name, parent = meaning_of(node, site) or "", next(iter(around), None)
    if name.startswith("torch.cuda."):
        return _of_torch_cuda(name, around, site)
    if name == "torch.version.cuda":
        return CudaUse(FixLevel.NONE, raises=_is_taken_apart(node, parent))
    if name == "torch.backends.cudnn.version":
        return CudaUse(FixLevel.NONE, raises=not isinstance(parent, ast.Call))
    if name.startswith(("torch._C._cuda_", "torch._C._Cuda")):
        return CudaUse(FixLevel.NONE, raises=True)
    if node.attr in ("major", "minor") and _are_properties(node.value, site):
        return CudaUse(FixLevel.NONE, raises=isinstance(parent, (ast.Compare, ast.BinOp)))
    if node.attr == "cuda_stream":
        return CudaUse(FixLevel.NONE, raises=True)
    if node.attr == "is_cuda":
        return _ASKED
    called = isinstance(parent, ast.Call) and parent.func is node
    return _PLACED if called and node.attr in ("cuda", "to", "set_device") else None


def _of_name(node: ast.Name, around: tuple[ast.AST, ...], site: Site) -> CudaUse | None:
    name = site.meaning(node.id) or ""
    if name.startswith("torch.cuda."):
        return _of_torch_cuda(name, around, site)
    origin = imported(site.file.tree).get(node.id, "")
    return CudaUse(FixLevel.NONE, raises=True) if origin.partition(".")[0] in _NVML else None


def _of_torch_cuda(name: str, around: tuple[ast.AST, ...], site: Site) -> CudaUse:
    last = name.rpartition(".")[2]
    called = bool(around) and isinstance(around[0], ast.Call)
    if last == "get_device_capability":
        return _ASKED if _may_be_none(around) else CudaUse(FixLevel.UNSAFE, raises=True)
    if counterpart(name, site.options.torch_npu) is None:
        return CudaUse(FixLevel.NONE, raises=called and last not in _NEUTRAL)
    return _ASKED if last in _ASKS else _PLACED


def _may_be_none(around: tuple[ast.AST, ...]) -> bool:
    """Whether what takes the answer is a text, or is given None elsewhere: NPU130 edits it."""
    holder = around[1] if len(around) > 1 else None
    if isinstance(holder, ast.IfExp):
        arms = (holder.body, holder.orelse)
        return any(isinstance(arm, ast.Constant) and arm.value is None for arm in arms)
    return isinstance(holder, ast.FormattedValue)


def _is_taken_apart(node: ast.AST, parent: ast.AST | None) -> bool:
    """``torch.version.cuda.split(".")``, ``float(torch.version.cuda)``."""
    if isinstance(parent, ast.Call):
        return last_name(parent.func) in ("int", "float", "parse", "Version", "LooseVersion")
    ordered = isinstance(parent, ast.Compare) and isinstance(
        parent.ops[0], (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
    )
    return ordered or isinstance(parent, (ast.Attribute, ast.Subscript))


def _are_properties(node: ast.AST, site: Site) -> bool:
    """``torch.cuda.get_device_properties(0)``, or a variable that is bound to it."""
    value = site.binding(node.id) if isinstance(node, ast.Name) else node
    return isinstance(value, ast.Call) and (
        meaning_of(value.func, site) == "torch.cuda.get_device_properties"
    )

"""``torch.cuda.X`` in expressions, and the statements that import it."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from cuda2npu.rule import Fix, FixLevel, Report, Site, leave, report, rewrite, rule
from cuda2npu_codemods.counterparts import advice, counterpart
from cuda2npu_codemods.default_types import sets_default_type
from cuda2npu_codemods.expressions import in_cuda_row, string, terminal
from cuda2npu_codemods.guards import guards_kernel_import
from cuda2npu_codemods.kept import kept_level
from cuda2npu_codemods.triggers import ALIAS_WORDS

_REPORTED_ELSEWHERE = ("torch.cuda.get_device_capability",)


def in_cuda(dotted: str | None) -> bool:
    return dotted is not None and (dotted == "torch.cuda" or dotted.startswith("torch.cuda."))


def _is_whole_chain(node: cst.Attribute, site: Site) -> bool:
    parent = site.parent(node)
    return not (isinstance(parent, cst.Attribute) and parent.value is node)


def _inner(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """The chain ``a.b.c`` from the outside in: ``a.b.c``, ``a.b``, ``a``."""
    while isinstance(node, cst.Attribute):
        yield node
        node = node.value
    yield node


@rule(
    "NPU120",
    "torch-cuda-name",
    on=cst.Attribute,
    words=("cuda", *ALIAS_WORDS),
    fix=FixLevel.SAFE,
    why="torch.cuda speaks to NVIDIA GPUs only; torch.npu has the same function",
    examples=(
        rewrite("torch.cuda.synchronize()", "torch.npu.synchronize()"),
        rewrite("if torch.cuda.is_available(): pass", "if torch.npu.is_available(): pass"),
        rewrite(
            "s = {'cpu': torch.get_rng_state(), 'cuda': torch.cuda.get_rng_state_all()}",
            "s = {'cpu': torch.get_rng_state(), 'cuda': torch.npu.get_rng_state_all()}",
        ),
        rewrite(
            "import torch as th\nth.cuda.empty_cache()",
            "import torch as th\nimport torch_npu  # noqa: F401\nth.npu.empty_cache()",
        ),
        rewrite(
            "T = torch.cuda.FloatTensor if cuda else torch.FloatTensor",
            "T = torch.npu.FloatTensor if cuda else torch.FloatTensor",
        ),
        rewrite("g = torch.cuda.CUDAGraph()", "g = torch.npu.NPUGraph()"),
        rewrite(
            "with torch.cuda.amp.autocast(enabled=ok): pass",
            "with torch.npu.amp.autocast(enabled=ok): pass",
        ),
        rewrite(
            "ok = hasattr(torch.cuda, 'memory_summary')",
            "ok = hasattr(torch.npu, 'memory_summary')",
        ),
        rewrite("with torch.cuda.nvtx.range('x'): pass", "with torch.npu.mstx.annotate('x'): pass"),
        rewrite(
            "@torch.cuda.nvtx.range('x')\ndef f(): pass",
            "@torch.npu.mstx.mstx_range('x')\ndef f(): pass",
        ),
        rewrite("torch.cuda.nvtx.range_push('x')", "torch.npu.mstx.range_push('x')"),
        leave("torch.load(f, map_location=None if torch.cuda.is_available() else 'cpu')"),
        leave("p = torch.cuda.current_stream().cuda_stream"),
        leave("torch.cuda.nccl.version()"),
        leave("import cupy\ncupy.cuda.Device(0)"),
        leave("from numba import cuda\ncuda.synchronize()"),
        leave("cuda = object()\ncuda.synchronize()"),
    ),
)
def torch_cuda_name(node: cst.Attribute, site: Site) -> Fix | None:
    fix = renaming(node, site)
    return fix if fix is not None and kept_level(node, site) is None else None


def renaming(node: cst.Attribute, site: Site) -> Fix | None:
    """The edit of a torch.cuda name, whatever it guards or is guarded by."""
    name = site.name(node)
    if name is None or not in_cuda(name) or not _is_whole_chain(node, site):
        return None
    new = None if _is_left(node, site) else _counterpart(name, node, site)
    edits = _edits(node, name, new, site) if new else {}
    if not edits:
        return None
    message = f"{name} speaks to NVIDIA GPUs only; on an NPU it is {new}"
    return Fix(edits, message, quiet=_is_quiet(name))


def _is_left(node: cst.Attribute, site: Site) -> bool:
    if site.name(node) in _REPORTED_ELSEWHERE or in_cuda_row(site, node):
        return True
    if sets_default_type(site, node):
        return True  # NPU118
    if _is_stream_pointer(node, site):
        return True  # NPU121
    if site.name(node) != "torch.cuda.is_available":
        return False
    return guards_kernel_import(site) or _chooses_no_map_location(node, site)


def _chooses_no_map_location(node: cst.Attribute, site: Site) -> bool:
    """``map_location=None if torch.cuda.is_available() else "cpu"``: False loads on the CPU."""
    for ancestor in site.ancestors(node):
        if isinstance(ancestor, cst.IfExp):
            arms = (ancestor.body, ancestor.orelse)
            return any(isinstance(arm, cst.Name) and arm.value == "None" for arm in arms) and any(
                string(arm) == "cpu" or terminal(arm) == "device" for arm in arms
            )
    return False


def _is_stream_pointer(node: cst.BaseExpression, site: Site) -> bool:
    """``torch.cuda.current_stream().cuda_stream``: a pointer that only CUDA's libraries take."""
    call = site.parent(node)
    outer = site.parent(call) if isinstance(call, cst.Call) else None
    return isinstance(outer, cst.Attribute) and outer.attr.value == "cuda_stream"


def _counterpart(name: str, node: cst.BaseExpression, site: Site) -> str | None:
    if name == "torch.cuda.nvtx.range" and not isinstance(_use(node, site), cst.Decorator):
        # mstx_range is a decorator only; annotate is the context manager.
        new = "torch.npu.mstx.annotate"
        return new if site.exists(new) else None
    return counterpart(name, site.options.torch_npu)


def _use(node: cst.BaseExpression, site: Site) -> cst.CSTNode | None:
    parent = site.parent(node)
    return site.parent(parent) if isinstance(parent, cst.Call) else parent


def _edits(
    part: cst.BaseExpression, name: str, new: str, site: Site
) -> dict[cst.CSTNode, cst.CSTNode]:
    """Rename what is spelled in ``part``; a head that an import renames stays as it is."""
    assert isinstance(part, cst.Attribute)
    for inner in _inner(part):
        inner_name = site.name(inner)
        if inner_name == "torch.cuda" and isinstance(inner, cst.Attribute):
            if new == name.replace("torch.cuda", "torch.npu", 1):
                return {inner.attr: cst.Name("npu")}
        elif isinstance(inner, cst.Name) and in_cuda(inner_name):
            head = counterpart(inner_name or "", site.options.torch_npu)
            if head is None:
                return {}
            if new == head + name[len(inner_name or "") :]:
                return {}
            if new.startswith(head + "."):
                return {part: _below(inner, new[len(head) + 1 :])}
    return {part: site.spell(new)}


def _below(head: cst.BaseExpression, rest: str) -> cst.BaseExpression:
    for name in rest.split("."):
        head = cst.Attribute(head, cst.Name(name))
    return head


_QUIET = frozenset(
    "is_available manual_seed manual_seed_all empty_cache memory_allocated "
    "max_memory_allocated is_bf16_supported device_count amp memory_reserved "
    "max_memory_reserved is_initialized".split()
)
"""What only warns or returns a neutral value on a torch built without CUDA (torch 2.13)."""


def _is_quiet(name: str) -> bool:
    return name == "torch.cuda" or name.split(".")[2] in _QUIET


@rule(
    "NPU121",
    "torch-cuda-no-counterpart",
    on=(cst.Attribute, cst.Name),
    words=("cuda", *ALIAS_WORDS),
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="torch.npu has no counterpart for this name",
    examples=(
        report("torch.cuda.nccl.version()"),
        report("torch.cuda.cudart().cudaProfilerStart()"),
        report("p = torch.cuda.current_stream().cuda_stream"),
        report("torch.cuda.nvtx.range_push('x')", release="2.6.0"),
        leave("torch.cuda.synchronize()"),
        leave("hasattr(torch.cuda, 'nccl')"),
        leave("torch.cuda.default_stream.cuda()"),
    ),
)
def torch_cuda_no_counterpart(node: cst.Attribute | cst.Name, site: Site) -> Report | None:
    if isinstance(node, cst.Name) and not isinstance(site.parent(node), cst.Call):
        return None
    if isinstance(node, cst.Attribute) and not _is_whole_chain(node, site):
        return None
    name = site.name(node)
    if name is None or not in_cuda(name) or name in _REPORTED_ELSEWHERE:
        return None
    if name.endswith(".cuda") and isinstance(site.parent(node), cst.Call):
        return None  # NPU101
    if _is_stream_pointer(node, site):
        return Report("cuda_stream is a pointer for CUDA libraries; an NPU stream has npu_stream")
    if _counterpart(name, node, site) is not None:
        return None
    return Report(f"torch.npu has no counterpart for {name}: {advice(name)}")

"""Mixed precision: what changes beside the names, which ``names.py`` renames."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import libcst as cst

from cuda2npu.releases import RELEASES, parameters
from cuda2npu.rule import Fix, FixLevel, Report, Site, leave, report, rewrite, rule
from cuda2npu_codemods.counterparts import counterpart

_SCALER = ("init_scale", "growth_factor", "backoff_factor", "growth_interval", "enabled")
_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "torch.cuda.amp.GradScaler": _SCALER,
    "torch.cuda.amp.grad_scaler.GradScaler": _SCALER,
    "torch.cuda.graph": ("cuda_graph", "pool", "stream", "capture_error_mode"),
    "torch.cuda.CUDAGraph": ("keep_graph",),
    "torch.cuda.Event": ("enable_timing", "blocking", "interprocess", "external"),
    "torch.cuda.MemPool": ("allocator", "use_on_oom", "no_split"),
    "torch.cuda.StreamContext": ("stream",),
    "torch.cuda.can_device_access_peer": ("device", "peer_device"),
    "torch.cuda.get_device_name": ("device",),
    "torch.cuda.get_device_properties": ("device",),
    "torch.cuda.is_bf16_supported": ("including_emulation",),
    "torch.cuda.memory_snapshot": ("mempool_id", "include_traces"),
    "torch.cuda.nvtx.mark": ("msg",),
    "torch.cuda.nvtx.range": ("msg",),
    "torch.cuda.nvtx.range_push": ("msg",),
    "torch.cuda.nvtx.range_start": ("msg",),
}
"""Parameters of torch 2.13's callables whose counterpart has others, or another order."""

_RENAMED: Mapping[str, tuple[str, ...]] = {
    "cuda_graph": ("npu_graph",),
    "device": ("device", "device_name", "device_id"),
    "peer_device": ("peer_device", "peer_device_id"),
    "msg": ("message",),
    "stream": ("stream", "stream_ctx"),
}
"""What the counterpart may call a parameter. Every other one keeps its name."""

_PRECISION = ("torch.cuda.amp.", "torch.cuda.graph")
"""Callables for which an argument in the wrong place is taken without an error."""


@rule(
    "NPU201",
    "gpu-parameter-order",
    on=cst.Call,
    words=("cuda", "GradScaler", "nvtx"),
    fix=FixLevel.SAFE,
    missed_by_shim=True,
    why="the counterpart in torch.npu takes its parameters in another order or by other names",
    examples=(
        rewrite(
            "s = torch.cuda.amp.GradScaler(2.0**12, 2.0, 0.5, 1000, ok)",
            "s = torch.npu.amp.GradScaler(2.0**12, 2.0, 0.5, 1000, enabled=ok)",
        ),
        rewrite(
            "from torch.cuda.amp import GradScaler as S\ns = S(1.0, 2.0, 0.5, 100, x.is_cuda)",
            "from torch_npu.npu.amp import GradScaler as S\nimport torch_npu  # noqa: F401\n"
            "s = S(1.0, 2.0, 0.5, 100, enabled=x.is_npu)",
        ),
        rewrite(
            "with torch.cuda.graph(cuda_graph=g, pool=p): pass",
            "with torch.npu.graph(npu_graph=g, pool=p): pass",
        ),
        rewrite(
            "with torch.cuda.graphs.graph(cuda_graph=g): pass",
            "with torch.npu.graphs.graph(npu_graph=g): pass",
        ),
        rewrite(
            'with torch.cuda.graph(g, None, s, "relaxed"): pass',
            'with torch.npu.graph(g, None, s, capture_error_mode="relaxed"): pass',
        ),
        rewrite(
            "n = torch.cuda.get_device_name(device=0)",
            "n = torch.npu.get_device_name(device_name=0)",
        ),
        rewrite('torch.cuda.nvtx.mark(msg="a")', 'torch.npu.mstx.mark(message="a")'),
        leave("s = torch.cuda.amp.GradScaler(2.0**12, enabled=ok)"),
        leave("s = torch.cuda.amp.GradScaler(*args)"),
        leave("with torch.cuda.graph(g, pool, s): pass"),
        leave("p = torch.cuda.get_device_properties(0)"),
        leave("from apex import GradScaler\ns = GradScaler(1, 2, 3, 4, True)"),
    ),
)
def gpu_parameter_order(node: cst.Call, site: Site) -> Fix | None:
    name = site.name(node.func) or ""
    edits: dict[cst.CSTNode, cst.CSTNode] = {}
    changes = []
    for arg, old, new, is_placed in _moved(node, name, site):
        if new is None:
            return None
        if is_placed:
            changes.append(f"the argument for {old} is given as {new}=")
            edits[arg] = arg.with_changes(keyword=cst.Name(new), equal=_TIGHT)
        elif arg.keyword is not None and new != old:
            changes.append(f"{old}= is called {new}= there")
            edits[arg.keyword] = cst.Name(new)
    if not edits:
        return None
    there = (counterpart(name, site.options.torch_npu) or "").replace("torch.", "torch_npu.", 1)
    message = f"{there} has other parameters than {name}: {', '.join(changes)}"
    return Fix(edits, message, quiet=name.startswith(_PRECISION))


_TIGHT = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))


def _moved(
    call: cst.Call, name: str, site: Site
) -> Iterator[tuple[cst.Arg, str, str | None, bool]]:
    """Each argument with its old and new parameter, and whether it must be given by keyword."""
    name = name.replace("torch.cuda.graphs.", "torch.cuda.")
    old = _PARAMETERS.get(name)
    there = counterpart(name, site.options.torch_npu) if old else None
    new = parameters(there, site.options.torch_npu) if there else None
    if old is None or new is None:
        return
    is_moved = False
    for position, arg in enumerate(call.args):
        if arg.star or (arg.keyword is None and position >= len(old)):
            return
        own = arg.keyword.value if arg.keyword else old[position]
        own_new = next((n for n in _RENAMED.get(own, (own,)) if n in new), None)
        if arg.keyword is None and not is_moved:
            is_moved = new[position : position + 1] != (own_new,)
        if own in old:
            yield arg, own, own_new, is_moved and arg.keyword is None


@rule(
    "NPU202",
    "gpu-parameter-missing",
    on=cst.Call,
    words=("cuda", "torch.npu"),
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="the counterpart in torch.npu has no such parameter, so that the call raises TypeError",
    examples=(
        report("g = torch.cuda.CUDAGraph(keep_graph=True)"),
        report("e = torch.cuda.Event(external=True)"),
        report("ok = torch.cuda.is_bf16_supported(including_emulation=False)", release="2.8.0"),
        report("g = torch.npu.NPUGraph(keep_graph=True)"),
        leave("e = torch.cuda.Event(enable_timing=True)"),
        leave("ok = torch.cuda.is_bf16_supported(including_emulation=False)"),
    ),
)
def gpu_parameter_missing(node: cst.Call, site: Site) -> Report | None:
    name = _of_cuda(site.name(node.func) or "", site)
    lost = [old for _, old, new, _ in _moved(node, name, site) if new is None]
    if not lost:
        return None
    there = counterpart(name, site.options.torch_npu)
    return Report(
        f"{there} of torch_npu {site.options.torch_npu} has no parameter {', '.join(lost)} and "
        "raises TypeError: drop the argument, or keep this call where only CUDA runs"
    )


def _of_cuda(name: str, site: Site) -> str:
    """The callable of torch.cuda whose counterpart this is, or the name itself."""
    release = site.options.torch_npu
    there = name.replace("torch_npu.", "torch.", 1)
    return next((old for old in _PARAMETERS if counterpart(old, release) == there), name)


_NEUTRAL_SCALERS = frozenset(
    {"torch.amp.GradScaler", "torch.GradScaler", "torch.amp.grad_scaler.GradScaler"}
)
_NPU = cst.Arg(cst.SimpleString('"npu"'))


@rule(
    "NPU203",
    "grad-scaler-without-device",
    on=cst.Call,
    words=("GradScaler",),
    fix=FixLevel.SAFE,
    why="torch.amp.GradScaler takes cuda when no device is given, and without CUDA it warns once "
    'and does nothing, so that fp16 gradients underflow: the device is "npu" here',
    quiet=True,
    source="torch 2.13, torch/amp/grad_scaler.py",
    examples=(
        rewrite("s = torch.amp.GradScaler()", 's = torch.amp.GradScaler("npu")'),
        rewrite(
            "s = torch.amp.GradScaler(enabled=amp)", 's = torch.amp.GradScaler("npu", enabled=amp)'
        ),
        rewrite(
            "from torch.amp import GradScaler\ns = GradScaler(\n    enabled=amp,\n)",
            "from torch.amp import GradScaler\nimport torch_npu  # noqa: F401\n"
            's = GradScaler(\n    "npu", enabled=amp,\n)',
        ),
        leave('s = torch.amp.GradScaler("cpu", enabled=amp)'),
        leave("s = torch.amp.GradScaler(device=d, enabled=amp)"),
        leave("s = torch.amp.GradScaler(d)"),
        leave("s = torch.amp.GradScaler(*args)"),
        leave("from torch.distributed.fsdp import GradScaler\ns = GradScaler()"),
    ),
)
def grad_scaler_without_device(node: cst.Call, site: Site) -> Fix | None:
    if site.name(node.func) not in _NEUTRAL_SCALERS:
        return None
    if not node.args:
        return Fix({node: node.with_changes(args=[_NPU])})
    first = node.args[0]
    if site.argument(node, "device") or (first.keyword is None and first.star != "**"):
        return None
    fix: dict[cst.CSTNode, tuple[cst.CSTNode, ...]] = {
        first: (_NPU.with_changes(comma=_COMMA), first)
    }
    if any(arg.star for arg in node.args):
        return Fix(
            fix,
            "torch.amp.GradScaler takes cuda when no device is given: if the ** argument gives "
            'none, "npu" must be the first argument; check, or run with --unsafe',
            level=FixLevel.UNSAFE,
        )
    return Fix(fix)


_COMMA = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))

_AUTOCAST: Mapping[str, str] = {
    "torch.is_autocast_enabled": "is_autocast_enabled",
    "torch.set_autocast_enabled": "set_autocast_enabled",
    "torch.get_autocast_gpu_dtype": "get_autocast_dtype",
    "torch.set_autocast_gpu_dtype": "set_autocast_dtype",
}
"""Functions that mean CUDA when no device is given, with the ones that take a device."""
_WITH_DEVICE = RELEASES.index("2.4.0")
"""From torch 2.4 on these functions of torch take a device type first."""


@rule(
    "NPU204",
    "autocast-state-of-gpu",
    on=cst.Call,
    words=("is_autocast_enabled", "set_autocast_enabled", "autocast_gpu_dtype"),
    fix=FixLevel.SAFE,
    why="without a device this function asks for the autocast state of CUDA, which is never "
    'enabled on the NPU, so that the wrong dtype is taken: ask for "npu"',
    quiet=True,
    source="torch 2.13, torch/_C/__init__.pyi; torch_npu 2.1.0, npu/autocast_utils.py",
    examples=(
        rewrite("ok = torch.is_autocast_enabled()", 'ok = torch.is_autocast_enabled("npu")'),
        rewrite("d = torch.get_autocast_gpu_dtype()", 'd = torch.get_autocast_dtype("npu")'),
        rewrite("torch.set_autocast_enabled(ok)", 'torch.set_autocast_enabled("npu", ok)'),
        rewrite(
            "torch.set_autocast_gpu_dtype(torch.half)",
            'torch.set_autocast_dtype("npu", torch.half)',
        ),
        rewrite(
            "d = torch.get_autocast_gpu_dtype()",
            "d = torch.npu.get_autocast_dtype()",
            release="2.3.1",
        ),
        rewrite(
            "d = torch.get_autocast_dtype(t) if hasattr(torch, 'get_autocast_dtype')"
            " else torch.get_autocast_gpu_dtype()",
            "d = torch.get_autocast_dtype(t) if hasattr(torch, 'get_autocast_dtype')"
            " else torch.npu.get_autocast_dtype()",
        ),
        leave("ok = torch.is_autocast_enabled(device_type)"),
        leave("ok = torch.is_autocast_cpu_enabled()"),
        leave('torch.set_autocast_enabled("cpu", ok)'),
        leave("ok = self.is_autocast_enabled()"),
    ),
)
def autocast_state_of_gpu(node: cst.Call, site: Site) -> Fix | None:
    new = _AUTOCAST.get(site.name(node.func) or "")
    if new is None or len(node.args) != (1 if new.startswith("set") else 0):
        return None
    if any(arg.star or arg.keyword for arg in node.args):
        return None
    if not _takes_device(node, new, site):
        return Fix({node.func: site.spell(f"torch.npu.{new}")})
    func = node.func
    if isinstance(func, cst.Attribute):
        func = func.with_changes(attr=cst.Name(new))
    elif new not in (site.name(func) or ""):
        func = site.spell(f"torch.{new}")
    args = [_NPU.with_changes(comma=_COMMA), *node.args] if node.args else [_NPU]
    return Fix({node: node.with_changes(func=func, args=args)})


def _takes_device(call: cst.Call, new: str, site: Site) -> bool:
    """Whether the target's torch has the functions with a device, and the place may use them.

    A function that also calls ``torch.get_autocast_dtype(device)`` keeps the call without a
    device for a torch that has no such function.
    """
    if RELEASES.index(site.options.torch_npu) < _WITH_DEVICE:
        return False
    around = next((n for n in site.enclosing if not isinstance(n, ast.ClassDef)), site.statement)
    return not any(
        isinstance(n, ast.Call)
        and n.args
        and not isinstance(n.args[0], ast.Constant)
        and getattr(n.func, "attr", None) == new
        for n in (() if new.startswith("set") else ast.walk(around))
    )


@rule(
    "NPU205",
    "autocast-gpu-dtype-reference",
    on=cst.Attribute,
    words=("autocast_gpu_dtype",),
    fix=FixLevel.SAFE,
    why="this function, handed on without a call, speaks of CUDA's autocast dtype; torch.npu has "
    "one with the same parameters",
    quiet=True,
    examples=(
        rewrite(
            "state = (torch.set_autocast_gpu_dtype, torch.get_autocast_gpu_dtype())",
            'state = (torch.npu.set_autocast_dtype, torch.get_autocast_dtype("npu"))',
        ),
        leave("torch.set_autocast_gpu_dtype(torch.half)"),
        leave("torch.dml.set_autocast_gpu_dtype"),
    ),
)
def autocast_gpu_dtype_reference(node: cst.Attribute, site: Site) -> Fix | None:
    if not node.attr.value.endswith("autocast_gpu_dtype"):
        return None
    parent = site.parent(node)
    new = _AUTOCAST.get(site.name(node) or "")
    if new is None or (isinstance(parent, cst.Call) and parent.func is node):
        return None
    return Fix({node: site.spell(f"torch.npu.{new}")})


@rule(
    "NPU206",
    "grad-scaler-of-either",
    on=cst.Call,
    words=("GradScaler",),
    fix=FixLevel.NONE,
    why="this GradScaler is torch.amp's or torch.cuda.amp's, whichever can be imported, and takes "
    "cuda when no device is given, so that it quietly does nothing on the NPU: import "
    'torch.amp.GradScaler alone and write GradScaler("npu", …)',
    quiet=True,
    examples=(
        report(
            "try:\n    from torch.amp import GradScaler\nexcept ImportError:\n"
            "    from torch.cuda.amp import GradScaler\ns = GradScaler(enabled=amp)"
        ),
        report(
            "try:\n    from torch.amp import GradScaler\nexcept ImportError:\n"
            "    from torch_npu.npu.amp import GradScaler\ns = GradScaler(enabled=amp)"
        ),
        leave("from torch.amp import GradScaler\ns = GradScaler(enabled=amp)"),
        leave("s = GradScaler(enabled=amp)"),
    ),
)
def grad_scaler_of_either(node: cst.Call, site: Site) -> Report | None:
    if not isinstance(node.func, cst.Name) or site.name(node.func) is not None:
        return None
    if node.args and node.args[0].keyword is None and not node.args[0].star:
        return None
    both = site.file.imports("torch.amp.GradScaler") and any(
        site.file.imports(f"{module}.{name}")
        for module in ("torch.cuda.amp", "torch_npu.npu.amp")
        for name in ("GradScaler", "grad_scaler.GradScaler")
    )
    return Report() if both and node.func.value == "GradScaler" else None

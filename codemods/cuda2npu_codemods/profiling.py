"""Profilers and markers: torch.profiler, the autograd profiler, NVIDIA's nvtx package."""

from __future__ import annotations

import ast

import libcst as cst

from cuda2npu.releases import parameters
from cuda2npu.rule import FileView, Fix, FixLevel, Report, Site, leave, report, rewrite, rule
from cuda2npu_codemods.expressions import last_name
from cuda2npu_codemods.torch_imports import dotted

_OWN = ("torch.profiler.profiler.", "torch.profiler.")
_NAMES = frozenset(
    "profile schedule tensorboard_trace_handler supported_activities ProfilerActivity "
    "ProfilerAction".split()
)
"""What torch_npu.profiler has in place of torch.profiler's; record_function stays torch's."""
_ACTIVITY = "torch.profiler.ProfilerActivity."
_SHARED = (_ACTIVITY + "CPU", _ACTIVITY + "CUDA")


def _converts(file: FileView) -> bool:
    """Whether the file profiles CUDA: then all names change together, since a profile of
    torch with a schedule or an activity of torch_npu fails."""
    return _profiles(file, "CUDA")


def _profiles(file: FileView, activity: str) -> bool:
    if "ProfilerActivity" not in file.text or activity not in file.text:
        return False
    aliases = {"ProfilerActivity"}
    owners: set[str] = set()
    # Every name below `import torch.profiler as p` would have to be found: see NPU516.
    for node in ast.walk(file.tree):
        if isinstance(node, ast.alias) and node.asname:
            if _is_hidden(node.name, node.asname):
                return False
            if node.name == "ProfilerActivity":
                aliases.add(node.asname)
        elif isinstance(node, ast.Attribute) and node.attr == activity:
            owners.add(str(getattr(node.value, "attr", getattr(node.value, "id", ""))))
    return bool(aliases & owners)


def _is_hidden(name: str, asname: str) -> bool:
    """``import torch.profiler as p``: the uses do not say profiler."""
    return name in ("profiler", "torch.profiler") and "rofiler" not in asname


def _counterpart(name: str | None, site: Site) -> str | None:
    """The torch_npu name of a name of torch.profiler, without members below it."""
    for module in _OWN:
        if name is not None and name.startswith(module):
            last = name[len(module) :]
            new = f"torch_npu.profiler.{last}"
            return new if last in _NAMES and site.exists(new) else None
    return None


@rule(
    "NPU510",
    "torch-profiler",
    on=cst.Attribute,
    words=("rofiler", "CUDA"),
    fix=FixLevel.SAFE,
    quiet=True,
    why="torch.profiler records nothing of the NPU; torch_npu.profiler has the same names, and "
    "all of a file change together",
    examples=(
        rewrite(
            "import torch\n"
            "with torch.profiler.profile(\n"
            "    activities=[torch.profiler.ProfilerActivity.CUDA],\n"
            "    schedule=torch.profiler.schedule(wait=1, warmup=1, active=1),\n"
            "    on_trace_ready=torch.profiler.tensorboard_trace_handler('log'),\n"
            ") as p:\n"
            "    with torch.profiler.record_function('x'): pass",
            "import torch\nimport torch_npu\n"
            "with torch_npu.profiler.profile(\n"
            "    activities=[torch_npu.profiler.ProfilerActivity.NPU],\n"
            "    schedule=torch_npu.profiler.schedule(wait=1, warmup=1, active=1),\n"
            "    on_trace_ready=torch_npu.profiler.tensorboard_trace_handler('log'),\n"
            ") as p:\n"
            "    with torch.profiler.record_function('x'): pass",
        ),
        rewrite(
            "from torch import profiler\na = profiler.ProfilerActivity.CUDA",
            "from torch import profiler\nimport torch_npu\n"
            "a = torch_npu.profiler.ProfilerActivity.NPU",
        ),
        leave("import torch.profiler as tp\na = tp.ProfilerActivity.CUDA"),
        leave("with torch.profiler.profile(with_flops=True) as p: pass"),
        leave("class ProfilerActivity: CUDA = 1\nx = ProfilerActivity.CUDA"),
        leave("a = [torch.profiler.ProfilerActivity.XPU]"),
    ),
    source="torch_npu/profiler/__init__.py of 2.1.0, 2.7.1 and 2.14.0",
)
def torch_profiler(node: cst.Attribute, site: Site) -> Fix | None:
    name = site.name(node) or ""
    if not name.startswith("torch.profiler.") or not _converts(site.file):
        return None
    edits: dict[cst.CSTNode, cst.CSTNode] = {}
    if name == _ACTIVITY + "CUDA":
        edits[node.attr] = cst.Name("NPU")
    new = _counterpart(name, site)
    outer = site.parent(node)
    member = site.name(outer) if isinstance(outer, cst.Attribute) and new else None
    foreign = (member or "").startswith(_ACTIVITY) and member not in _SHARED
    if new and not foreign:
        edits[node] = site.spell(new)
    return Fix(edits) if edits else None


@rule(
    "NPU511",
    "torch-profiler-import",
    on=cst.ImportFrom,
    words=("rofiler",),
    fix=FixLevel.SAFE,
    quiet=True,
    why="torch.profiler records nothing of the NPU; torch_npu.profiler has the same names, and "
    "all of a file change together",
    examples=(
        rewrite(
            "from torch.profiler import profile, record_function, ProfilerActivity as A\n"
            "a = [A.CPU, A.CUDA]",
            "from torch.profiler import record_function\n"
            "from torch_npu.profiler import profile, ProfilerActivity as A\n"
            "import torch_npu  # noqa: F401\n"
            "a = [A.CPU, A.NPU]",
        ),
        rewrite(
            "from torch.profiler import ProfilerActivity, profile\nx = ProfilerActivity.CUDA",
            "from torch_npu.profiler import ProfilerActivity, profile\n"
            "import torch_npu  # noqa: F401\nx = ProfilerActivity.NPU",
        ),
        rewrite(
            "import torch\nfrom torch.profiler.profiler import ProfilerAction as Action\n"
            "a = torch.profiler.ProfilerActivity.CUDA",
            "import torch\nimport torch_npu\n"
            "from torch_npu.profiler import ProfilerAction as Action\n"
            "a = torch_npu.profiler.ProfilerActivity.NPU",
        ),
        leave("from torch.profiler import profile\nwith profile() as p: pass"),
        leave("from torch.profiler import record_function"),
    ),
)
def torch_profiler_import(node: cst.ImportFrom, site: Site) -> Fix | None:
    module = dotted(node.module)
    if node.relative or isinstance(node.names, cst.ImportStar) or f"{module}." not in _OWN:
        return None
    if not _converts(site.file):
        return None
    moved = [a for a in node.names if _counterpart(f"{module}.{dotted(a.name)}", site)]
    kept = [a for a in node.names if a not in moved]
    target = cst.Attribute(cst.Name("torch_npu"), cst.Name("profiler"))
    if not moved:
        return None
    if not kept:
        return Fix({node.module or node: target})
    old = node.with_changes(names=_plain(kept), lpar=None, rpar=None)
    new = cst.ImportFrom(module=target, names=_plain(moved))
    return Fix({node: (old, new)})


def _plain(aliases: list[cst.ImportAlias]) -> list[cst.ImportAlias]:
    return [alias.with_changes(comma=cst.MaybeSentinel.DEFAULT) for alias in aliases]


@rule(
    "NPU512",
    "profiler-table",
    on=cst.Call,
    words=("key_averages",),
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="torch_npu's profile has no key_averages(): export a trace with "
    "tensorboard_trace_handler or export_chrome_trace and read its operator tables, or open it in "
    "MindStudio Insight",
    examples=(
        report(
            "from torch.profiler import profile, ProfilerActivity\n"
            "with profile(activities=[ProfilerActivity.CUDA]) as p: pass\n"
            "print(p.key_averages().table(sort_by='cuda_time_total'))"
        ),
        report(
            "from torch_npu.profiler import profile, ProfilerActivity\n"
            "with profile(activities=[ProfilerActivity.NPU]) as p: pass\n"
            "print(p.key_averages())"
        ),
        leave("with torch.profiler.profile() as p: pass\np.key_averages()"),
        leave(
            "from torch.profiler import ProfilerActivity as A\na = A.CUDA\n"
            "with torch.autograd.profiler_legacy.profile() as old: pass\nold.key_averages()"
        ),
    ),
)
def profiler_table(node: cst.Call, site: Site) -> Report | None:
    func = node.func
    if not isinstance(func, cst.Attribute) or func.attr.value != "key_averages":
        return None
    profiles = _converts(site.file) or _profiles(site.file, "NPU")
    if not profiles or _is_of_autograd(func.value, site):
        return None
    return Report()


def _is_of_autograd(profile: cst.BaseExpression, site: Site) -> bool:
    """Whether a variable holds a profile of torch.autograd wherever the scope binds it."""
    if not isinstance(profile, cst.Name):
        return False
    functions = (s for s in site.enclosing if not isinstance(s, ast.ClassDef))
    scope = next(functions, site.file.tree)
    makers = []
    for node in ast.walk(scope):
        if isinstance(node, ast.withitem):
            if last_name(node.optional_vars) == profile.value:
                makers.append(node.context_expr)
        elif isinstance(node, ast.Assign) and profile.value in map(last_name, node.targets):
            makers.append(node.value)
    called = [maker.func for maker in makers if isinstance(maker, ast.Call)]
    names = [site.name(cst.parse_expression(ast.unparse(func))) or "" for func in called]
    return (
        bool(makers)
        and len(names) == len(makers)
        and all(name.startswith("torch.autograd.profiler") for name in names)
    )


@rule(
    "NPU513",
    "profiler-argument",
    on=cst.Call,
    words=("rofiler", "trace_handler", "skip_first"),
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="torch_npu's profiler does not take this argument",
    examples=(
        report(
            "from torch.profiler import ProfilerActivity, tensorboard_trace_handler\n"
            "a = ProfilerActivity.CUDA\nh = tensorboard_trace_handler('log', use_gzip=True)"
        ),
        report(
            "from torch_npu.profiler import tensorboard_trace_handler\n"
            "h = tensorboard_trace_handler('log', use_gzip=True)"
        ),
        report(
            "a = torch.profiler.ProfilerActivity.CUDA\n"
            "s = torch.profiler.schedule(wait=1, active=1, skip_first_wait=1)",
            release="2.1.0",
        ),
        leave(
            "a = torch.profiler.ProfilerActivity.CUDA\n"
            "s = torch.profiler.schedule(wait=1, warmup=1, active=1)"
        ),
    ),
)
def profiler_argument(node: cst.Call, site: Site) -> Report | None:
    name = site.name(node.func) or ""
    is_moved = name.startswith("torch_npu.profiler.")
    new = name if is_moved else _counterpart(name, site)
    taken = parameters(new, site.options.torch_npu) if new else None
    if taken is None or not (is_moved or _converts(site.file)):
        return None
    lost = [a.keyword.value for a in node.args if a.keyword and a.keyword.value not in taken]
    if not lost:
        return None
    return Report(f"{new} takes no {' and no '.join(lost)} in this release: drop it")


@rule(
    "NPU514",
    "autograd-profiler",
    on=cst.Call,
    words=("use_cuda", "emit_nvtx"),
    fix=FixLevel.NONE,
    missed_by_shim=True,
    quiet=True,
    why="the autograd profiler records nothing of the NPU: use torch_npu.profiler.profile with "
    "activities=[ProfilerActivity.CPU, ProfilerActivity.NPU]",
    examples=(
        report("with torch.autograd.profiler.profile(use_cuda=True) as p: pass"),
        report("with torch.profiler.profile(use_cuda=True) as p: pass"),
        report("with torch.autograd.profiler.emit_nvtx(): pass"),
        leave("with torch.autograd.profiler.profile(use_cuda=False) as p: pass"),
        leave("with torch.autograd.profiler.profile() as p: pass"),
        leave("with torch.autograd.profiler.profile(use_device=kind) as p: pass"),
        leave("with torch.autograd.profiler.profile(use_device='npu') as p: pass"),
        leave("train(use_cuda=True)"),
    ),
)
def autograd_profiler(node: cst.Call, site: Site) -> Report | None:
    name = site.name(node.func)
    if name == "torch.autograd.profiler.emit_nvtx":
        return Report(
            "emit_nvtx needs NVTX, which an NPU machine has not: drop it, or use "
            "torch_npu.profiler with mstx marks",
            quiet=False,
        )
    if name not in ("torch.autograd.profiler.profile", "torch.profiler.profile"):
        return None
    flag = site.argument(node, "use_cuda")
    wanted = flag is not None and site.code(flag.value) not in ("False", "None")
    return Report() if wanted else None


@rule(
    "NPU515",
    "nvtx-package",
    on=(cst.Import, cst.ImportFrom),
    words=("nvtx",),
    fix=FixLevel.NONE,
    missed_by_shim=True,
    quiet=True,
    why="the nvtx package marks ranges for NVIDIA's tools and does nothing on an NPU: use "
    "torch_npu.npu.mstx.annotate, or mstx.range_start and range_end on older releases",
    examples=(
        report("import torch\nimport nvtx\n@nvtx.annotate('f')\ndef f(): pass"),
        report("import torch\nfrom nvtx import annotate"),
        leave("import torch\nfrom torch.cuda import nvtx"),
        leave("import torch\nfrom .nvtx import annotate"),
    ),
)
def nvtx_package(node: cst.Import | cst.ImportFrom, site: Site) -> Report | None:
    if isinstance(node, cst.ImportFrom):
        names = [] if node.relative else [dotted(node.module)]
    else:
        names = [dotted(alias.name) for alias in node.names]
    found = any(name.partition(".")[0] == "nvtx" for name in names)
    return Report() if found and site.file.imports("torch") else None


@rule(
    "NPU516",
    "profiler-alias",
    on=(cst.Import, cst.ImportFrom),
    words=("rofiler",),
    fix=FixLevel.NONE,
    quiet=True,
    why="torch.profiler goes by another name here, and was left: import it under its own name, so "
    "that it can become torch_npu.profiler, and run again",
    examples=(
        report("import torch.profiler as tp\na = tp.ProfilerActivity.CUDA"),
        leave("import torch.profiler as tp\np = tp.profile()"),
        leave("import torch.profiler\na = torch.profiler.ProfilerActivity.CUDA"),
    ),
)
def profiler_alias(node: cst.Import | cst.ImportFrom, site: Site) -> Report | None:
    if isinstance(node.names, cst.ImportStar) or "ProfilerActivity.CUDA" not in site.file.text:
        return None
    hidden = (
        a.asname is not None and _is_hidden(dotted(a.name), dotted(a.asname.name))
        for a in node.names
    )
    return Report() if any(hidden) else None

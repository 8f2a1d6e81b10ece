"""Questions about NVIDIA hardware."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import libcst as cst

from cuda2npu.rule import Fix, FixLevel, Report, Site, leave, report, rewrite, rule
from cuda2npu_codemods.expressions import matched, strings, terminal
from cuda2npu_codemods.occurrences import (
    looped,
    tests_of,
)
from cuda2npu_codemods.triggers import (
    CAPABILITY_WORDS,
    GPU_NAME_WORDS,
    PEAK_FLOPS,
    PROPERTY_WORDS,
    VERSION_WORDS,
)

_MODULES = ("torch.cuda", "torch.npu", "torch_npu.npu")


def _asks(site: Site, node: cst.CSTNode, function: str) -> bool:
    """Whether an expression is, or a variable is bound to, a call of ``torch.cuda.function``."""
    while isinstance(node, (cst.Attribute, cst.Call, cst.Subscript)):
        inner = node.func if isinstance(node, cst.Call) else node.value
        if isinstance(node, cst.Call):
            name = site.name(node.func)
            if name in [f"{module}.{function}" for module in _MODULES]:
                return True
        node = inner
    value = site.binding(node.value) if isinstance(node, cst.Name) else None
    return value is not None and any(
        isinstance(part, ast.Call)
        and re.fullmatch(rf"(.*\b(cuda|npu)\.)?{function}", ast.unparse(part.func))
        for part in ast.walk(value)
    )


@rule(
    "NPU130",
    "device-capability",
    on=cst.Call,
    words=CAPABILITY_WORDS,
    fix=FixLevel.UNSAFE,
    why="torch.npu.get_device_capability() returns None, unless TORCH_NPU_DEVICE_CAPABILITY=8.0 "
    "is set (from torch_npu 2.6 on), so that unpacking or comparing it raises TypeError. Ask for "
    "what is needed instead, such as torch.npu.is_bf16_supported(), or drop the test; --unsafe "
    "renames the call",
    examples=(
        rewrite(
            "new = torch.cuda.get_device_capability()[0] >= 8",
            "new = torch.npu.get_device_capability()[0] >= 8",
        ),
        rewrite(
            "import torch\nmajor, _ = torch.cuda.get_device_capability(0)",
            "import torch\nimport torch_npu  # noqa: F401\n"
            "major, _ = torch.npu.get_device_capability(0)",
        ),
        rewrite(
            "s = f'compute capability {torch.cuda.get_device_capability()}'",
            "s = f'compute capability {torch.npu.get_device_capability()}'",
        ),
        rewrite(
            "import torch\n"
            "c = torch.cuda.get_device_capability() if torch.cuda.is_available() else None",
            "import torch\nimport torch_npu  # noqa: F401\n"
            "c = torch.npu.get_device_capability() if torch.npu.is_available() else None",
        ),
        leave("def f(self): return self.get_device_capability()"),
    ),
)
def device_capability(node: cst.Call, site: Site) -> Fix | Report | None:
    name = site.name(node.func)
    if name not in [f"{module}.get_device_capability" for module in _MODULES]:
        return None
    if isinstance(node.func, cst.Attribute) and site.name(node.func.value) == "torch.cuda":
        module = node.func.value
        if isinstance(module, cst.Attribute):
            level = FixLevel.SAFE if _may_be_none(node, site) else None
            return Fix({module.attr: cst.Name("npu")}, level=level)
    return None if _may_be_none(node, site) else Report()


def _may_be_none(node: cst.Call, site: Site) -> bool:
    """Whether what takes the value is a text, or is given None elsewhere by the same expression."""
    parent = site.parent(node)
    if isinstance(parent, cst.IfExp):
        return "None" in (site.code(parent.body), site.code(parent.orelse))
    return isinstance(parent, cst.FormattedStringExpression)


_EMPTY_PROPERTIES = re.compile(
    r"major|minor|multi_processor_count|warp_size|gcnArchName|shared_memory_per_\w+"
    r"|max_threads_per_multi_processor|regs_per_multiprocessor"
)


@rule(
    "NPU131",
    "device-property",
    on=cst.Attribute,
    words=PROPERTY_WORDS,
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="get_device_properties() of an NPU fills name, total_memory, L2_cache_size, cube_core_num "
    "and vector_core_num only",
    examples=(
        report("sms = torch.cuda.get_device_properties(0).multi_processor_count"),
        report("p = torch.cuda.get_device_properties(d)\nok = p.major >= 8"),
        leave("p = torch.cuda.get_device_properties(d)\nfree = p.total_memory"),
        leave("p = torch.musa.get_device_properties(0)\nok = p.major > 1"),
        leave("import sys\nok = sys.version_info.major >= 3"),
    ),
)
def device_property(node: cst.Attribute, site: Site) -> Report | None:
    attribute = node.attr.value
    if not _EMPTY_PROPERTIES.fullmatch(attribute):
        return None
    if not _asks(site, node.value, "get_device_properties"):
        return None
    instead = {
        "multi_processor_count": "use vector_core_num or cube_core_num",
        "major": "ask for what is needed, such as torch.npu.is_bf16_supported()",
        "minor": "ask for what is needed, such as torch.npu.is_bf16_supported()",
    }.get(attribute, "drop what depends on it")
    return Report(
        f"{attribute} is empty in an NPU's properties (only name, total_memory, L2_cache_size, "
        f"cube_core_num and vector_core_num are filled): {instead}",
        quiet=any(isinstance(ancestor, cst.FormattedString) for ancestor in site.ancestors(node)),
    )


_GPU_NAME = re.compile(
    r"\b([ABHTVPKL]\d{1,3}0{1,2}[GSX]?|GH200|T4|L4|H20|RTX|GTX|GeForce|Tesla|NVIDIA|Quadro|TITAN)\b",
    re.I,
)


@rule(
    "NPU132",
    "gpu-name",
    on=(cst.Comparison, cst.Call),
    words=GPU_NAME_WORDS,
    fix=FixLevel.NONE,
    missed_by_shim=True,
    quiet=True,
    why="an NPU calls itself Ascend910… or Ascend310…, never by the name of an NVIDIA card: this "
    "test is always the same. Add a branch for the NPU",
    examples=(
        report("fast = 'A100' in torch.cuda.get_device_name(0)"),
        report("name = torch.cuda.get_device_name()\nif 'V100' in name: pass"),
        report("name = torch.cuda.get_device_name()\nok = name.startswith('NVIDIA')"),
        report("import re\nok = re.search('A100|H100', torch.cuda.get_device_name())"),
        report("for s in ['A100']:\n    if s in torch.cuda.get_device_name(): pass"),
        report("fast = any(s in torch.cuda.get_device_name() for s in ('A100', 'H100'))"),
        report("FAST = ['A100']\nfast = any(s in torch.cuda.get_device_name() for s in FAST)"),
        leave("for s in names:\n    if s in torch.cuda.get_device_name(): pass"),
        leave("if 'A100' in title: pass"),
        leave("ok = title.startswith('NVIDIA')"),
    ),
)
def gpu_name(node: cst.Comparison | cst.Call, site: Site) -> Report | None:
    if isinstance(node, cst.Call):
        sides = [*matched(node)]
    else:
        sides = [node.left, *(target.comparator for target in node.comparisons)]
    literals = [part for side in sides for part in (*strings(side), *looped(side, site))]
    if not any(_GPU_NAME.search(text) for text in literals):
        return None
    asked = any(
        _asks(site, side, function)
        for side in sides
        for function in ("get_device_name", "get_device_properties")
    )
    return Report() if asked else None


@rule(
    "NPU133",
    "torch-version-cuda",
    on=cst.Attribute,
    words=VERSION_WORDS,
    fix=FixLevel.NONE,
    missed_by_shim=True,
    quiet=True,
    why="torch.version.cuda and torch.version.hip are None on an NPU machine, and there is no "
    "torch.version.npu: decide by torch.npu.is_available(), or by torch_npu.__version__",
    examples=(
        report("if torch.version.cuda is not None: pass"),
        report("major = int(torch.version.cuda.split('.')[0])"),
        report("cuda = torch.version.hip is None"),
        report("HAS_CUDA = torch.version.cuda\nif HAS_CUDA: pass"),
        report("is_hip = torch.version.hip is not None\nif not is_hip: pass"),
        leave("is_hip = torch.version.hip is not None\nif is_hip: pass"),
        leave("v = torch.version.cuda\nprint(v)"),
        leave("if torch.version.hip: pass"),
        leave("print(torch.version.cuda)"),
        leave("info = {'CUDA': torch.version.cuda}"),
    ),
)
def torch_version_cuda(node: cst.Attribute, site: Site) -> Report | None:
    name = site.name(node)
    if name not in ("torch.version.cuda", "torch.version.hip"):
        return None
    kept = tests_of(_kept_in(node, site), site.file.tree)
    if name == "torch.version.hip":
        # Else rightly false: an NPU machine is no ROCm machine.
        denied = _is_denied(node, site) or any(isinstance(t, ast.UnaryOp) for t in kept)
        return Report() if denied and (kept or _decides(node, site)) else None
    if kept:
        return Report()
    taken_apart = isinstance(site.parent(node), cst.Attribute)
    return Report(quiet=not taken_apart) if _decides(node, site) else None


def _is_denied(node: cst.Attribute, site: Site) -> bool:
    """``not torch.version.hip``: what is no ROCm is taken for CUDA."""
    parent = site.parent(node)
    if isinstance(parent, cst.Comparison):
        return isinstance(parent.comparisons[0].operator, (cst.Is, cst.Equal))
    return isinstance(parent, cst.UnaryOperation)


def _kept_in(node: cst.Attribute, site: Site) -> str | None:
    """The variable that the answer is assigned to."""
    outer = site.parent(node)
    while isinstance(outer, (cst.Comparison, cst.Arg, cst.Call)):
        if isinstance(outer, cst.Call) and terminal(outer.func) != "bool":
            return None
        outer = site.parent(outer)
    return terminal(outer.targets[0].target) if isinstance(outer, cst.Assign) else None


_VERSION_READERS = ("parse", "Version", "LooseVersion", "StrictVersion", "int", "float", "bool")
_TESTS = (cst.Comparison, cst.BooleanOperation, cst.UnaryOperation, cst.If, cst.While, cst.Assert)


def _decides(node: cst.CSTNode, site: Site) -> bool:
    """Whether the value selects what runs, or is taken apart, rather than shown."""
    child = node
    for ancestor in site.ancestors(node):
        if isinstance(ancestor, _TESTS):
            return True
        if isinstance(ancestor, cst.IfExp):
            return child is ancestor.test
        if isinstance(ancestor, cst.Attribute):
            return not any(isinstance(a, cst.FormattedString) for a in site.ancestors(ancestor))
        if isinstance(ancestor, cst.Arg):
            call = site.parent(ancestor)
            return isinstance(call, cst.Call) and terminal(call.func) in _VERSION_READERS
        if isinstance(ancestor, (cst.FormattedString, cst.Dict, cst.Import, cst.ImportFrom)):
            return False
        child = ancestor
    return False


@rule(
    "NPU134",
    "peak-flops",
    on=cst.Float,
    words=PEAK_FLOPS,
    fix=FixLevel.NONE,
    missed_by_shim=True,
    quiet=True,
    why="this is the peak of an NVIDIA card: the utilisation computed from it is wrong on an "
    "NPU. Write the peak of the chip in use, from its data sheet, or add it to the table",
    examples=(
        report("def estimate_mfu(n, dt):\n    return n / dt / 312e12"),
        report("FLOPS_PROMISED = 989e12"),
        leave("x = 312e12"),
    ),
    source="NVIDIA data sheets, T4 to H100",
)
def peak_flops(node: cst.Float, site: Site) -> Report | None:
    if node.value not in PEAK_FLOPS:
        return None
    ancestors = list(site.ancestors(node))
    if next(_peaks(ancestors[-1]), None) is not node:
        return None  # one finding for a table of cards
    around = [getattr(scope, "name", "") for scope in site.enclosing]
    words = " ".join([site.code(ancestors[-1]), *around]).lower()
    return Report() if re.search(r"flop|mfu|peak|utiliz", words) else None


def _peaks(node: cst.CSTNode) -> Iterator[cst.Float]:
    """The numbers of NVIDIA cards in a statement, in order."""
    if isinstance(node, cst.Float) and node.value in PEAK_FLOPS:
        yield node
    for child in node.children:
        yield from _peaks(child)

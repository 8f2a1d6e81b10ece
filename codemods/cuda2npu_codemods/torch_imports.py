"""Import statements that bring CUDA names, rewritten so that the local names stay.

torch_npu is named in imports, since ``from torch.npu.amp import …`` would load a second copy
of the package: only ``torch.npu`` itself is registered with Python's import system.
"""

from __future__ import annotations

import ast
import re

import libcst as cst

from cuda2npu.rule import Fix, FixLevel, Report, Site, leave, report, rewrite, rule
from cuda2npu_codemods.counterparts import advice, counterpart

_WHY = "this import brings names of torch.cuda, which speak to NVIDIA GPUs only"


def dotted(node: cst.CSTNode | None) -> str:
    if isinstance(node, cst.Attribute):
        return f"{dotted(node.value)}.{node.attr.value}"
    return node.value if isinstance(node, cst.Name) else ""


def _expression(name: str) -> cst.Name | cst.Attribute:
    head, *rest = name.split(".")
    expression: cst.Name | cst.Attribute = cst.Name(head)
    for part in rest:
        expression = cst.Attribute(expression, cst.Name(part))
    return expression


def _in_cuda(name: str) -> bool:
    return name == "torch.cuda" or name.startswith("torch.cuda.")


def _importable(name: str, site: Site) -> str | None:
    """The counterpart of a torch.cuda name as an import statement spells it."""
    new = counterpart(name, site.options.torch_npu) if _in_cuda(name) else None
    if new is None or new.startswith("torch.npu.mstx."):
        return None  # torch_npu.npu.mstx is a class: nothing can be imported from it
    return new.replace("torch.npu", "torch_npu.npu", 1)


@rule(
    "NPU001",
    "missing-torch-npu-import",
    on=cst.Attribute,
    words=("torch.npu", ".npu("),
    fix=FixLevel.SAFE,
    why="the file uses the NPU and never imports torch_npu, which adds torch.npu and .npu()",
    examples=(
        rewrite(
            "import torch\ntorch.npu.synchronize()",
            "import torch\nimport torch_npu  # noqa: F401\ntorch.npu.synchronize()",
        ),
        rewrite(
            "import torch\nx = torch.ones(2).npu()\ny = x.npu()",
            "import torch\nimport torch_npu  # noqa: F401\nx = torch.ones(2).npu()\ny = x.npu()",
        ),
        leave("import torch\nimport torch_npu\ntorch.npu.synchronize()"),
        leave("x = x.npu()"),
        leave("import torch\nif is_npu_available():\n    torch.npu.empty_cache()"),
    ),
)
def missing_torch_npu_import(node: cst.Attribute, site: Site) -> Fix | None:
    if node.attr.value != "npu" or site.file.imports("torch_npu"):
        return None
    if not site.file.imports("torch") or _asks_for_npu(site.file.text):
        return None
    first = _first_npu(site.file.tree)
    is_first = first is not None and site.statement is not None and _holds(site.statement, first)
    return Fix({}) if is_first else None


def _asks_for_npu(text: str) -> bool:
    """A file that asks whether there is an NPU leaves it to others to load torch_npu."""
    return re.search(r"npu_available|is_npu|HAS_NPU|npu\.is_available", text) is not None


def _first_npu(tree: ast.Module) -> ast.Attribute | None:
    uses = (n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr == "npu")
    return min(uses, key=lambda use: (use.lineno, use.col_offset), default=None)


def _holds(statement: ast.AST, node: ast.AST) -> bool:
    return any(inner is node for inner in ast.walk(statement))


@rule(
    "NPU010",
    "torch-cuda-from-import",
    on=cst.ImportFrom,
    words=("cuda",),
    fix=FixLevel.SAFE,
    why=_WHY + "; torch_npu.npu has the same ones",
    examples=(
        rewrite(
            "from torch.cuda.amp import autocast as ac, GradScaler",
            "from torch_npu.npu.amp import autocast as ac, GradScaler\n"
            "import torch_npu  # noqa: F401",
        ),
        rewrite(
            "from torch import cuda\ncuda.empty_cache()",
            "from torch_npu import npu as cuda\nimport torch_npu  # noqa: F401\ncuda.empty_cache()",
        ),
        rewrite(
            "from torch.cuda import CUDAGraph, nccl",
            "from torch_npu.npu import NPUGraph as CUDAGraph\nfrom torch.cuda import nccl\n"
            "import torch_npu  # noqa: F401",
        ),
        leave("from numba import cuda"),
        leave("from .cuda import amp"),
    ),
)
def torch_cuda_from_import(node: cst.ImportFrom, site: Site) -> Fix | None:
    module = dotted(node.module)
    if node.relative or isinstance(node.names, cst.ImportStar):
        return None
    groups: dict[str, list[cst.ImportAlias]] = {}
    for alias in node.names:
        name = dotted(alias.name)
        new = _importable(f"{module}.{name}", site)
        new_module, _, new_name = (new or f"{module}.{name}").rpartition(".")
        groups.setdefault(new_module, []).append(_renamed(alias, new_name))
    if set(groups) == {module}:
        return None
    if len(groups) == 1:
        new_module, aliases = groups.popitem()
        edits: dict[cst.CSTNode, cst.CSTNode] = {node.module or node: _expression(new_module)}
        edits.update(
            {old: new for old, new in zip(node.names, aliases, strict=True) if old is not new}
        )
        return Fix(edits)
    return Fix({node: tuple(_from(name, aliases) for name, aliases in groups.items())})


def _renamed(alias: cst.ImportAlias, new_name: str) -> cst.ImportAlias:
    """The alias with another name imported and the same one bound."""
    old_name = dotted(alias.name)
    if new_name == old_name:
        return alias
    asname = alias.asname or cst.AsName(cst.Name(old_name))
    if isinstance(asname.name, cst.Name) and asname.name.value == new_name:
        return alias.with_changes(name=cst.Name(new_name), asname=None)
    return alias.with_changes(name=cst.Name(new_name), asname=asname)


def _from(module: str, aliases: list[cst.ImportAlias]) -> cst.ImportFrom:
    plain = [alias.with_changes(comma=cst.MaybeSentinel.DEFAULT) for alias in aliases]
    return cst.ImportFrom(module=_expression(module), names=plain)


@rule(
    "NPU011",
    "torch-cuda-import",
    on=cst.Import,
    words=("cuda",),
    fix=FixLevel.SAFE,
    why=_WHY + "; torch_npu.npu has the same ones",
    examples=(
        rewrite(
            "import torch.cuda as tc\ntc.synchronize()",
            "import torch_npu.npu as tc\nimport torch_npu  # noqa: F401\ntc.synchronize()",
        ),
        rewrite("import torch.cuda", "import torch\nimport torch_npu  # noqa: F401"),
        rewrite(
            "import torch\nimport torch.cuda\ntorch.cuda.synchronize()",
            "import torch\nimport torch_npu  # noqa: F401\ntorch.npu.synchronize()",
        ),
        leave("import torch.cuda.nccl as nccl"),
        leave("import pycuda.driver as cuda"),
    ),
)
def torch_cuda_import(node: cst.Import, site: Site) -> Fix | None:
    edits: dict[cst.CSTNode, cst.CSTNode | None] = {}
    only = [alias.asname is None and _in_cuda(dotted(alias.name)) for alias in node.names]
    if all(only) and _imports_torch_itself(site):
        return Fix({node: None})
    for alias in node.names:
        new = _importable(dotted(alias.name), site)
        if alias.asname is None and _in_cuda(dotted(alias.name)):
            edits[alias.name] = cst.Name("torch")
        elif new is not None:
            edits[alias.name] = _expression(new)
    return Fix(edits) if edits else None


def _imports_torch_itself(site: Site) -> bool:
    """Whether a plain ``import torch`` stands at the top of the file as well."""
    return any(
        isinstance(node, ast.Import) and any(a.name == "torch" and not a.asname for a in node.names)
        for node in site.file.tree.body
    )


@rule(
    "NPU012",
    "import-without-counterpart",
    on=(cst.ImportFrom, cst.Import),
    words=("cuda",),
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="an import of torch.cuda names that torch.npu has no counterpart for was left",
    examples=(
        report("from torch.cuda import nccl"),
        report("import torch.cuda.nccl as nccl"),
        report("from torch.cuda import *"),
        report("from torch.cuda.nvtx import range_push"),
        leave("from torch.cuda import amp"),
    ),
)
def import_without_counterpart(node: cst.ImportFrom | cst.Import, site: Site) -> Report | None:
    if isinstance(node, cst.Import):
        names = [dotted(alias.name) for alias in node.names if alias.asname]
    elif node.relative or not _in_cuda(dotted(node.module)):
        return None
    elif isinstance(node.names, cst.ImportStar):
        return Report("import the names that are used, one by one, so that they can be rewritten")
    else:
        names = [f"{dotted(node.module)}.{dotted(alias.name)}" for alias in node.names]
    lost = [name for name in names if _in_cuda(name) and _importable(name, site) is None]
    if not lost:
        return None
    return Report("; ".join(_advice(name) for name in lost))


def _advice(name: str) -> str:
    if name.startswith("torch.cuda.nvtx."):
        return f"write `from torch_npu.npu import mstx` and mstx.… for {name[11:]}"
    return f"torch.npu has no {name[6:]}: {advice(name)}"

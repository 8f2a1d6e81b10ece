"""Names of torch.distributed that speak of NCCL, with what torch_npu offers in their place."""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst

from cuda2npu.rule import Fix, FixLevel, Report, Site, leave, report, rewrite, rule
from cuda2npu_codemods.distributed import knows_hccl
from cuda2npu_codemods.expressions import string, terminal, with_value
from cuda2npu_codemods.torch_imports import dotted

_AVAILABLE = "torch_npu.distributed.is_hccl_available"
_GROUP = "torch_npu._C._distributed_c10d.ProcessGroupHCCL"
_MOVED: Mapping[str, str] = {
    "torch.distributed.is_nccl_available": _AVAILABLE,
    "torch.distributed.distributed_c10d.is_nccl_available": _AVAILABLE,
    "torch.distributed.ProcessGroupNCCL": _GROUP,
    "torch.distributed.distributed_c10d.ProcessGroupNCCL": _GROUP,
    "torch._C._distributed_c10d.ProcessGroupNCCL": _GROUP,
}
"""Names of torch.distributed with what torch_npu offers in their place."""


@rule(
    "NPU304",
    "nccl-available",
    on=cst.Attribute,
    words=("is_nccl_available",),
    fix=FixLevel.SAFE,
    why="without CUDA is_nccl_available() is False, so that gloo is taken and collectives run on "
    "the CPU; importing torch_npu adds is_hccl_available()",
    quiet=True,
    examples=(
        rewrite(
            "import torch.distributed as dist\nb = 'nccl' if dist.is_nccl_available() else 'gloo'",
            "import torch.distributed as dist\nimport torch_npu  # noqa: F401\n"
            "b = 'hccl' if dist.is_hccl_available() else 'gloo'",
        ),
        rewrite(
            "ok = torch.distributed.is_nccl_available()",
            "ok = torch.distributed.is_hccl_available()",
        ),
        leave("ok = checks.is_nccl_available()"),
        leave('CHECKS = {"nccl": torch.distributed.is_nccl_available}'),
    ),
)
def nccl_available(node: cst.Attribute, site: Site) -> Fix | None:
    name = site.name(node) or ""
    if node.attr.value != "is_nccl_available" or name not in _MOVED or knows_hccl(site):
        return None
    if any(_is_nccl_row(ancestor) for ancestor in site.ancestors(node)):
        return None
    if name == "torch.distributed.is_nccl_available":
        return Fix({node.attr: cst.Name("is_hccl_available")})
    return Fix({node: site.spell(_MOVED[name])})


def _is_nccl_row(node: cst.CSTNode) -> bool:
    """``"nccl": is_nccl_available``: a table by backend keeps its row."""
    return isinstance(node, cst.DictElement) and string(node.key) == "nccl"


@rule(
    "NPU305",
    "nccl-backend-constant",
    on=cst.Attribute,
    words=("NCCL",),
    fix=FixLevel.SAFE,
    why="on the NPU the backend is Backend.HCCL, which exists once torch_npu is imported; a test "
    "for Backend.NCCL is quietly false",
    quiet=True,
    examples=(
        rewrite(
            "import torch.distributed as dist\nok = b == dist.Backend.NCCL",
            "import torch.distributed as dist\nimport torch_npu  # noqa: F401\n"
            "ok = b == dist.Backend.HCCL",
        ),
        rewrite(
            "from torch.distributed import Backend\nb = Backend.NCCL",
            "from torch.distributed import Backend\nimport torch_npu  # noqa: F401\n"
            "b = Backend.HCCL",
        ),
        leave("class Backend:\n    NCCL = 'nccl'\nb = Backend.NCCL"),
        leave("b = torch.distributed.Backend\nok = x in (b.NCCL, b.HCCL)"),
    ),
)
def nccl_backend_constant(node: cst.Attribute, site: Site) -> Fix | None:
    name = site.name(node) or ""
    if not (name.startswith("torch.distributed.") and name.endswith(".Backend.NCCL")):
        return None
    if knows_hccl(site):
        return None
    return Fix({node.attr: cst.Name("HCCL")})


@rule(
    "NPU306",
    "process-group-nccl",
    on=cst.Attribute,
    words=("ProcessGroupNCCL",),
    fix=FixLevel.SAFE,
    why="torch for CPU and NPU has no ProcessGroupNCCL; torch_npu has ProcessGroupHCCL",
    examples=(
        rewrite(
            "import torch.distributed as dist\no = dist.ProcessGroupNCCL.Options()\ndist.barrier()",
            "import torch.distributed as dist\nimport torch_npu\n"
            "o = torch_npu._C._distributed_c10d.ProcessGroupHCCL.Options()\ndist.barrier()",
        ),
        leave("o = mine.ProcessGroupNCCL.Options()"),
        leave("c = torch.distributed.ProcessGroupNCCL.NCCLConfig()"),
    ),
)
def process_group_nccl(node: cst.Attribute, site: Site) -> Fix | None:
    if node.attr.value != "ProcessGroupNCCL" or site.name(node) not in _MOVED:
        return None
    member = site.parent(node)
    whole = [_GROUP]
    if isinstance(member, cst.Attribute):
        whole.append(f"{_GROUP}.{member.attr.value}")  # else NPU307
    return Fix({node: site.spell(_GROUP)}) if all(map(site.exists, whole)) else None


@rule(
    "NPU307",
    "nccl-name-without-counterpart",
    on=cst.Attribute,
    words=("ProcessGroupNCCL", "nccl"),
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="torch_npu's ProcessGroupHCCL has no such member: remove the setting, or look at "
    "ProcessGroupHCCL.Options().hccl_config, which takes HCCL's own options",
    examples=(
        report("c = torch.distributed.ProcessGroupNCCL.NCCLConfig()"),
        report("t = torch._C._distributed_c10d._dump_nccl_trace()"),
        leave("o = torch.distributed.ProcessGroupNCCL.Options()"),
        leave("ok = torch.distributed.is_nccl_available()"),
        leave("import torch.cuda.nccl\nv = torch.cuda.nccl.version()"),
    ),
)
def nccl_name_without_counterpart(node: cst.Attribute, site: Site) -> Report | None:
    name = site.name(node) or ""
    head, _, last = name.rpartition(".")
    if last.startswith("__"):
        return None
    if _MOVED.get(head) == _GROUP:
        return None if site.exists(f"{_GROUP}.{last}") else Report()
    if name in _MOVED or "nccl" not in last.lower() or last == "NCCL":
        return None
    if not name.startswith(("torch.distributed.", "torch._C._distributed_c10d.")):
        return None
    return Report(
        f"{name} is NCCL's own, and torch_npu has nothing of that name: remove it, or keep it "
        "where only CUDA runs"
    )


@rule(
    "NPU308",
    "nccl-name-string",
    on=cst.SimpleString,
    words=("is_nccl_available",),
    fix=FixLevel.SAFE,
    why="the string names is_nccl_available of torch.distributed; what the code calls on the NPU "
    "is is_hccl_available",
    quiet=True,
    examples=(
        rewrite(
            "@mock.patch('torch.distributed.is_nccl_available')\ndef test(): pass",
            "@mock.patch('torch.distributed.is_hccl_available')\ndef test(): pass",
        ),
        rewrite(
            "ok = hasattr(torch.distributed, 'is_nccl_available')",
            "ok = hasattr(torch.distributed, 'is_hccl_available')",
        ),
        leave("print('torch.distributed.is_nccl_available')"),
        leave("ok = hasattr(checks, 'is_nccl_available')"),
    ),
)
def nccl_name_string(node: cst.SimpleString, site: Site) -> Fix | None:
    arg = site.parent(node)
    call = site.parent(arg) if isinstance(arg, cst.Arg) else None
    if not isinstance(call, cst.Call):
        return None
    value, callee = string(node), terminal(call.func)
    by_path = value == "torch.distributed.is_nccl_available" and callee in ("patch", "setattr")
    by_name = value == "is_nccl_available" and callee in ("hasattr", "getattr", "object", "setattr")
    if by_path or (by_name and site.name(call.args[0].value) == "torch.distributed"):
        return Fix({node: with_value(node, "is_nccl_available", "is_hccl_available")})
    return None


@rule(
    "NPU310",
    "nccl-import",
    on=cst.ImportFrom,
    words=("is_nccl_available", "ProcessGroupNCCL"),
    fix=FixLevel.SAFE,
    why="this import brings a name of NCCL; torch_npu has one for HCCL, which keeps the local name",
    examples=(
        rewrite(
            "from torch.distributed import is_nccl_available",
            "from torch_npu.distributed import is_hccl_available as is_nccl_available\n"
            "import torch_npu  # noqa: F401",
        ),
        rewrite(
            "from torch.distributed import Backend, is_nccl_available as ok",
            "from torch.distributed import Backend\n"
            "from torch_npu.distributed import is_hccl_available as ok\n"
            "import torch_npu  # noqa: F401",
        ),
        rewrite(
            "from torch.distributed import ProcessGroupNCCL",
            "from torch_npu._C._distributed_c10d import ProcessGroupHCCL as ProcessGroupNCCL\n"
            "import torch_npu  # noqa: F401",
        ),
        rewrite(
            "from torch.distributed import (\n    Backend,  # a\n    is_nccl_available,\n"
            "    new_group,\n)",
            "from torch.distributed import (\n    Backend,  # a\n    new_group,\n)\n"
            "from torch_npu.distributed import is_hccl_available as is_nccl_available\n"
            "import torch_npu  # noqa: F401",
        ),
        rewrite(
            "from torch.distributed import Backend, is_nccl_available\nBackend.NCCL",
            "from torch.distributed import Backend\n"
            "from torch_npu.distributed import is_hccl_available as is_nccl_available\n"
            "import torch_npu  # noqa: F401\nBackend.HCCL",
        ),
        leave("from torch.distributed import Backend"),
        leave("from checks import is_nccl_available"),
    ),
)
def nccl_import(node: cst.ImportFrom, site: Site) -> Fix | None:
    if node.relative or isinstance(node.names, cst.ImportStar):
        return None
    module = dotted(node.module)
    moved = [alias for alias in node.names if f"{module}.{dotted(alias.name)}" in _MOVED]
    if not moved:
        return None
    statements: list[cst.ImportFrom] = []
    kept = [alias for alias in node.names if alias not in moved]
    if kept:
        kept[-1] = kept[-1].with_changes(comma=node.names[-1].comma)
        statements.append(node.with_changes(names=kept))
    groups: dict[str, list[cst.ImportAlias]] = {}
    for alias in moved:
        there, _, name = _MOVED[f"{module}.{dotted(alias.name)}"].rpartition(".")
        groups.setdefault(there, []).append(_renamed(alias, name))
    statements += [_import_from(there, aliases) for there, aliases in groups.items()]
    return Fix({node: tuple(statements) if len(statements) > 1 else statements[0]})


def _renamed(alias: cst.ImportAlias, name: str) -> cst.ImportAlias:
    """The alias with another name imported and the same one bound."""
    local = alias.asname or cst.AsName(cst.Name(dotted(alias.name)))
    return cst.ImportAlias(name=cst.Name(name), asname=local)


def _import_from(module: str, aliases: list[cst.ImportAlias]) -> cst.ImportFrom:
    head, *rest = module.split(".")
    expression: cst.Name | cst.Attribute = cst.Name(head)
    for part in rest:
        expression = cst.Attribute(expression, cst.Name(part))
    return cst.ImportFrom(module=expression, names=aliases)

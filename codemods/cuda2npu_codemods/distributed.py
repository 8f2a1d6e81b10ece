"""Process groups: ``nccl`` is ``hccl`` on the NPU, in every place that takes a backend."""

from __future__ import annotations

import ast
import re

import libcst as cst

from cuda2npu.rule import Fix, FixLevel, Report, Site, leave, report, rewrite, rule
from cuda2npu_codemods.arguments import Use, is_other_collective
from cuda2npu_codemods.expressions import outward, string, terminal, with_value
from cuda2npu_codemods.libraries import ADVICE
from cuda2npu_codemods.uses import use_of
from cuda2npu_codemods.words import BACKEND_MAP, OTHER_BACKENDS

_VENDORS = (OTHER_BACKENDS - {"gloo", "mpi", "ucc"}) | {"cncl", "mccl", "rccl", "lccl"}
"""Backends of other vendors; a list with one of them is a list to extend."""


@rule(
    "NPU301",
    "nccl-backend",
    on=cst.SimpleString,
    words=("nccl", "NCCL"),
    fix=FixLevel.SAFE,
    why='the process-group backend of the NPU is "hccl"; torch for CPU and NPU has no nccl, so '
    "that starting a group with it raises",
    examples=(
        rewrite('dist.init_process_group("nccl")', 'dist.init_process_group("hccl")'),
        rewrite(
            "dist.init_process_group(backend='nccl')", "dist.init_process_group(backend='hccl')"
        ),
        rewrite(
            'g = dist.new_group(ranks, None, "nccl")', 'g = dist.new_group(ranks, None, "hccl")'
        ),
        rewrite('dist.init_process_group("NCCL")', 'dist.init_process_group("HCCL")'),
        rewrite('b = "cpu:gloo,cuda:nccl"', 'b = "cpu:gloo,npu:hccl"'),
        rewrite('backend = "nccl" if ok else "gloo"', 'backend = "hccl" if ok else "gloo"'),
        rewrite('ok = dist.get_backend(g) == "nccl"', 'ok = dist.get_backend(g) == "hccl"'),
        rewrite('if args.dist_backend == "nccl": pass', 'if args.dist_backend == "hccl": pass'),
        rewrite(
            'ok = dist.get_backend() in ["nccl", "gloo"]',
            'ok = dist.get_backend() in ["hccl", "gloo"]',
        ),
        rewrite('ok = "nccl" in dist.get_backend()', 'ok = "hccl" in dist.get_backend()'),
        rewrite('cfg = {"dist": {"backend": "nccl"}}', 'cfg = {"dist": {"backend": "hccl"}}'),
        rewrite("dist_params = dict(backend='nccl')", "dist_params = dict(backend='hccl')"),
        rewrite('def run(rank, backend="nccl"): pass', 'def run(rank, backend="hccl"): pass'),
        rewrite('class C:\n    backend: str = "nccl"', 'class C:\n    backend: str = "hccl"'),
        rewrite(
            'class C:\n    backend: str = field(default="nccl")',
            'class C:\n    backend: str = field(default="hccl")',
        ),
        rewrite(
            'p.add_argument("--dist-backend", default="nccl", choices=["nccl", "gloo"])',
            'p.add_argument("--dist-backend", default="hccl", choices=["hccl", "gloo"])',
        ),
        rewrite(
            'deepspeed.init_distributed(dist_backend="nccl")',
            'deepspeed.init_distributed(dist_backend="hccl")',
        ),
        rewrite('deepspeed.init_distributed("nccl")', 'deepspeed.init_distributed("hccl")'),
        rewrite('backends = ["nccl", "xccl"]', 'backends = ["nccl", "hccl", "xccl"]'),
        rewrite('b = os.environ.get("BACKEND", "nccl")', 'b = os.environ.get("BACKEND", "hccl")'),
        rewrite('url, backend = "env://", "nccl"', 'url, backend = "env://", "hccl"'),
        rewrite(
            'def main(rank, world, backend): pass\nmp.spawn(main, args=(4, "nccl"))',
            'def main(rank, world, backend): pass\nmp.spawn(main, args=(4, "hccl"))',
        ),
        rewrite(
            'run(["python", "a.py", "--dist-backend", "nccl"])',
            'run(["python", "a.py", "--dist-backend", "hccl"])',
            beside={
                "a.py": 'p.add_argument("--dist-backend", default="nccl")\n'
                "import torch.distributed as dist\ndist.init_process_group(args.dist_backend)\n"
            },
        ),
        rewrite(
            "class C:\n    backend: str = field(\n"
            '        default="nccl", metadata={"choices": ["nccl", "gloo"]}\n    )',
            "class C:\n    backend: str = field(\n"
            '        default="hccl", metadata={"choices": ["hccl", "gloo"]}\n    )',
        ),
        rewrite(
            'KNOWN = ("nccl", "gloo")\nassert args.backend in KNOWN',
            'KNOWN = ("hccl", "gloo")\nassert args.backend in KNOWN',
        ),
        leave('p.add_argument("--backend", choices=["nccl", "hccl", "gloo"])'),
        leave('state["nccl"] = 1'),
        rewrite(
            'PROTOCOL = "nccl"',
            'PROTOCOL = "hccl"',
            beside={
                "train.py": "from example import PROTOCOL\nimport torch.distributed as dist\n"
                "dist.init_process_group(backend=PROTOCOL, rank=0)"
            },
        ),
        rewrite(
            'if args.protocol == "nccl": pass',
            'if args.protocol == "hccl": pass',
            beside={
                "options.py": 'p.add_argument("--protocol", default="nccl")',
                "train.py": "import torch.distributed as dist\n"
                "def main(args): dist.init_process_group(args.protocol)",
            },
        ),
        rewrite(
            'g.add("--protocol", "-protocol", default="nccl", choices=["nccl", "gloo"])',
            'g.add("--protocol", "-protocol", default="hccl", choices=["hccl", "gloo"])',
            beside={
                "train.py": "import torch.distributed as dist\n"
                "def main(opt): dist.init_process_group(backend=opt.protocol)"
            },
        ),
        rewrite('g.add("--backend", default="nccl")', 'g.add("--backend", default="hccl")'),
        leave('g.add("backend", default="nccl")'),
        leave('libs = ["nccl", "cudart"]'),
        leave('print("nccl")'),
        leave('raise ValueError("nccl")'),
        leave("import horovod.torch as hvd\nhvd.init(backend='nccl')"),
        leave(
            "from vllm.config import WeightTransferConfig\nc = WeightTransferConfig(backend='nccl')"
        ),
        leave('from ray.util import collective\ncollective.init(backend="nccl")'),
        leave('attn_backend = "nccl"'),
        leave("def f(g):\n    a = get_backend(g) == 'nccl'\n    b = get_backend(g) == 'hccl'"),
    ),
)
def nccl_backend(node: cst.SimpleString, site: Site) -> Fix | None:
    value = string(node) or ""
    if BACKEND_MAP.fullmatch(value):
        if use_of(site, node) in (Use.KEY, Use.TEXT, Use.FOREIGN, Use.SHARED, Use.COMMAND):
            return None
        return Fix({node: with_value(node, "cuda:nccl", "npu:hccl")})
    if value not in ("nccl", "NCCL") or use_of(site, node) is not Use.BACKEND:
        return None
    new = with_value(with_value(node, "nccl", "hccl"), "NCCL", "HCCL")
    element = site.parent(node)
    if isinstance(element, cst.Element):
        others = _siblings(element, site)
        if "hccl" in others:
            return None
        if others & _VENDORS:
            return Fix({element: (element, element.with_changes(value=new))}, quiet=True)
    if _only_chooses(node, site) and knows_hccl(site):
        return None
    if isinstance(element, cst.DictElement) and site.file.imports("ray.util.collective"):
        message = (
            "this may be the backend of ray.util.collective, which has no hccl, or of a process "
            "group, which needs it: check, or run with --unsafe"
        )
        return Fix({node: new}, message, level=FixLevel.UNSAFE)
    return Fix({node: new}, _message(node, site), quiet=_only_chooses(node, site))


def knows_hccl(site: Site) -> bool:
    """Whether the function around, or the statement outside of one, asks for hccl already."""
    around = next((n for n in site.enclosing if not isinstance(n, ast.ClassDef)), site.statement)
    return any(
        (isinstance(n, ast.Constant) and n.value == "hccl")
        or getattr(n, "attr", getattr(n, "id", None)) in ("HCCL", "is_hccl_available")
        for n in ast.walk(around)
    )


def _siblings(element: cst.Element, site: Site) -> set[str]:
    elements = getattr(site.parent(element), "elements", ())
    return {(string(e.value) or "").lower() for e in elements if e is not element}


def _only_chooses(node: cst.CSTNode, site: Site) -> bool:
    """Whether the leftover would not raise: a comparison, or one arm beside another backend."""
    for ancestor in site.ancestors(node):
        if isinstance(ancestor, (cst.Comparison, cst.MatchValue)):
            return True
        if isinstance(ancestor, cst.IfExp):
            return bool({string(ancestor.body), string(ancestor.orelse)} & OTHER_BACKENDS)
    return False


def _message(node: cst.CSTNode, site: Site) -> str:
    if not any(isinstance(a, (cst.Comparison, cst.MatchValue)) for a in site.ancestors(node)):
        return ""
    return (
        'on the NPU the backend is called "hccl", so that this test for "nccl" is quietly false '
        "and its branch never runs"
    )


@rule(
    "NPU302",
    "nccl-backend-f-string",
    on=cst.FormattedStringText,
    words=(":nccl",),
    fix=FixLevel.SAFE,
    why="an f-string maps device types to process-group backends; the NPU's is hccl",
    examples=(
        rewrite('b = f"{cpu}:gloo,{dev}:nccl"', 'b = f"{cpu}:gloo,{dev}:hccl"'),
        rewrite('b = f"cuda:nccl,cpu:{other}"', 'b = f"npu:hccl,cpu:{other}"'),
        leave('print(f"{dev}:nccl")'),
        leave('url = f"{host}:nccl-tests"'),
    ),
)
def nccl_backend_f_string(node: cst.FormattedStringText, site: Site) -> Fix | None:
    new = re.sub(r"(\bcuda)?:nccl(?=,|$)", _mapped, node.value)
    whole = site.parent(node)
    if new == node.value or whole is None:
        return None
    if use_of(site, whole) in (Use.KEY, Use.TEXT, Use.FOREIGN, Use.COMMAND):
        return None
    return Fix({node: node.with_changes(value=new)})


def _mapped(match: re.Match[str]) -> str:
    return ("npu" if match[1] else "") + ":hccl"


@rule(
    "NPU303",
    "nccl-backend-unproven",
    on=cst.SimpleString,
    words=("nccl",),
    fix=FixLevel.UNSAFE,
    why='"nccl" goes to a function that this file does not define: if it takes a process-group '
    'backend, write "hccl", or run with --unsafe',
    examples=(
        rewrite('setup(rank, "nccl")', 'setup(rank, "hccl")'),
        leave('print(rank, "nccl")'),
        leave('@engines.register("nccl")\nclass E: pass'),
        leave('def setup(rank, lib): pass\nimport cupy\ncupy.get("a", "nccl")'),
    ),
)
def nccl_backend_unproven(node: cst.SimpleString, site: Site) -> Fix | None:
    if string(node) != "nccl" or use_of(site, node) is not Use.UNKNOWN_ARGUMENT:
        return None
    call = site.parent(site.parent(node) or node)
    if isinstance(call, cst.Call) and (terminal(call.func) or "").startswith("register"):
        return None
    return Fix({node: with_value(node, "nccl", "hccl")})


@rule(
    "NPU312",
    "nccl-of-another-library",
    on=cst.SimpleString,
    words=("nccl", "NCCL"),
    fix=FixLevel.NONE,
    why="this nccl goes to a library whose collectives are not torch's, and which knows no hccl: "
    "use torch.distributed over hccl, or the library's gloo",
    source="ray.util.collective.types.Backend: gloo and nccl",
    examples=(
        report(
            "import ray.util.collective as c\nc.init_collective_group(world, rank, 'nccl', 'g')"
        ),
        report(
            "from ray.util import collective as c\nc.create_collective_group(a, backend='NCCL')"
        ),
        report("import horovod.torch as hvd\nhvd.init(backend='nccl' if gpu else 'mpi')"),
        leave("import ray.util.collective as c\nc.init_collective_group(world, rank, 'gloo')"),
        leave("import torch.distributed as dist\ndist.init_process_group('nccl')"),
    ),
)
def nccl_of_another_library(node: cst.SimpleString, site: Site) -> Report | None:
    if string(node) not in ("nccl", "NCCL"):
        return None
    _, arg = outward(node, site)
    call = site.parent(arg) if isinstance(arg, cst.Arg) else None
    if not isinstance(call, cst.Call) or not is_other_collective(site, call):
        return None
    package = (site.name(call.func) or "").partition(".")[0]
    advice = ADVICE.get(package, "it knows no hccl; use torch.distributed over hccl, or its gloo")
    return Report(f"this nccl goes to {package}, whose collectives are not torch's: {advice}")

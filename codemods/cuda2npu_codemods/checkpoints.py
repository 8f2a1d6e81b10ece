"""Loading checkpoints, feeding data and wrapping models: defaults that assume CUDA."""

from __future__ import annotations

import re

import libcst as cst

from cuda2npu.rule import Fix, FixLevel, Report, Site, leave, report, rewrite, rule
from cuda2npu_codemods.expressions import terminal
from cuda2npu_codemods.occurrences import imported
from cuda2npu_codemods.restoring import only_restores
from cuda2npu_codemods.triggers import LOAD_WORDS, PARALLEL_WORDS, PIN_WORDS


def _keyword(name: str, value: str) -> cst.Arg:
    equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    return cst.Arg(cst.SimpleString(f'"{value}"'), cst.Name(name), equal)


def _with_argument(
    call: cst.Call, after: cst.Arg, name: str, value: str
) -> dict[cst.Arg, tuple[cst.Arg, cst.Arg]]:
    """The edit that puts a keyword argument behind another, on a line of its own like the first."""
    space: cst.BaseParenthesizableWhitespace = call.whitespace_before_args
    if not isinstance(space, cst.ParenthesizedWhitespace):
        space = cst.SimpleWhitespace(" ")
    new = _keyword(name, value).with_changes(comma=after.comma)
    return {after: (after.with_changes(comma=cst.Comma(whitespace_after=space)), new)}


@rule(
    "NPU140",
    "load-without-map-location",
    on=cst.Call,
    words=LOAD_WORDS,
    fix=FixLevel.UNSAFE,
    why="without map_location a checkpoint that was saved on a GPU asks for CUDA and fails on an "
    'NPU machine. Load it on the CPU, map_location="cpu", and move the model afterwards; --unsafe '
    "writes that",
    examples=(
        rewrite(
            "import torch\nstate = torch.load(path)",
            'import torch\nstate = torch.load(path, map_location="cpu")',
        ),
        rewrite(
            "import torch\ns = torch.load(path, weights_only=True)",
            'import torch\ns = torch.load(path, weights_only=True, map_location="cpu")',
        ),
        rewrite(
            "import torch\ns = torch.load(\n    path,\n)",
            'import torch\ns = torch.load(\n    path,\n    map_location="cpu",\n)',
        ),
        rewrite(
            "import torch\nnet.load_state_dict(torch.load(path))\nnet.eval()",
            'import torch\nnet.load_state_dict(torch.load(path, map_location="cpu"))\nnet.eval()',
        ),
        rewrite(
            "import torch\nfrom torch import nn\nclass Net(nn.Module): pass\n"
            "net = Net()\nnet.load_state_dict(torch.load(path))",
            "import torch\nfrom torch import nn\nclass Net(nn.Module): pass\n"
            'net = Net()\nnet.load_state_dict(torch.load(path, map_location="cpu"))',
        ),
        leave("torch.load(path, map_location='cpu')"),
        leave("torch.load(path, device)"),
        leave("torch.load(path, **options)"),
        leave("json.load(file)"),
        leave(
            "import torch\nclass XLAStrategy:\n    def load(self, path): return torch.load(path)"
        ),
    ),
)
def load_without_map_location(node: cst.Call, site: Site) -> Fix | None:
    if site.name(node.func) not in ("torch.load", "torch.jit.load") or not node.args:
        return None
    if any(re.search("XLA|xla", getattr(scope, "name", "")) for scope in site.enclosing):
        return None  # what a TPU's strategy saves and loads is no CUDA's
    positional = [arg for arg in node.args if arg.keyword is None]
    if any(arg.star for arg in node.args) or len(positional) > 1:
        return None
    if site.argument(node, "map_location") is not None:
        return None
    edits = _with_argument(node, node.args[-1], "map_location", "cpu")
    if site.name(node.func) == "torch.load" and only_restores(site):
        return Fix(edits, _ONLY_FILLS, level=FixLevel.SAFE, imports=())
    return Fix(edits, imports=())


_ONLY_FILLS = (
    "without map_location a checkpoint that was saved on a GPU asks for CUDA and fails on an NPU "
    "machine. This one only fills what load_state_dict is called on, so that the CPU will do"
)


@rule(
    "NPU144",
    "map-location-keys",
    on=cst.DictElement,
    words=("cuda:",),
    fix=FixLevel.SAFE,
    quiet=True,
    why="the keys of map_location are the devices that tensors were saved from: those of the "
    "program's own checkpoints are NPUs now, and without an entry they are loaded where they were",
    examples=(
        rewrite(
            "s = torch.load(f, map_location={'cuda:%d' % 0: 'cuda:%d' % rank})",
            "s = torch.load(f, map_location={'cuda:%d' % 0: 'npu:%d' % rank, "
            "'npu:%d' % 0: 'npu:%d' % rank})",
        ),
        rewrite(
            'map_location = {"cuda:0": "cpu", "cpu": "cpu"}\ns = torch.load(f, map_location)',
            'map_location = {"cuda:0": "cpu", "npu:0": "cpu", "cpu": "cpu"}\n'
            "s = torch.load(f, map_location)",
        ),
        leave('s = torch.load(f, map_location={"cuda:0": "cpu", "npu:0": "cpu"})'),
        leave('memory = {"cuda:0": 1, "cpu": 2}'),
    ),
    source="torch.load's documentation of map_location",
)
def map_location_keys(node: cst.DictElement, site: Site) -> Fix | None:
    key, table = site.code(node.key), site.parent(node)
    if not re.match(r"f?['\"]cuda:", key) or not isinstance(table, cst.Dict):
        return None
    if "npu:" in site.code(table) or not _is_map_location(table, site):
        return None
    saved_here = node.with_changes(key=cst.parse_expression(key.replace("cuda:", "npu:", 1)))
    before = node
    if isinstance(node.comma, cst.MaybeSentinel):
        before = node.with_changes(comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" ")))
    return Fix({node: (before, saved_here)})


def _is_map_location(table: cst.Dict, site: Site) -> bool:
    holder = site.parent(table)
    if isinstance(holder, cst.Arg):
        call = site.parent(holder)
        if not isinstance(call, cst.Call):
            return False
        return site.argument(call, "map_location", 1) is holder and terminal(call.func) == "load"
    targets = holder.targets if isinstance(holder, cst.Assign) else ()
    return any("map_loc" in (terminal(target.target) or "") for target in targets)


_PARALLEL = (
    "torch.nn.DataParallel",
    "torch.nn.parallel.DataParallel",
    "torch.nn.parallel.data_parallel.DataParallel",
    "torch.nn.parallel.data_parallel",
    "nn.DataParallel",
)


@rule(
    "NPU141",
    "data-parallel",
    on=(cst.Call, cst.ImportFrom),
    words=PARALLEL_WORDS,
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="nn.DataParallel does not run on several NPUs: use DistributedDataParallel with one "
    "process per NPU (torchrun --nproc_per_node=N) and the hccl backend",
    examples=(
        report("import torch.nn as nn\nmodel = nn.DataParallel(model)"),
        report("from torch.nn import DataParallel\nmodel = DataParallel(model).cuda()"),
        report("from torch.nn import DataParallel as DP"),
        report(
            "import torch\nif cuda and torch.npu.device_count() > 1:\n"
            "    model = torch.nn.DataParallel(model)"
        ),
        leave("from torch.nn import DataParallel as DP\nok = isinstance(model, DP)"),
        leave("import torch.nn as nn\nok = isinstance(model, nn.DataParallel)"),
        leave("import torch.nn as nn\nm = nn.parallel.DistributedDataParallel(m)"),
    ),
    source="vendor support lists of torch.nn",
)
def data_parallel(node: cst.Call | cst.ImportFrom, site: Site) -> Report | None:
    if isinstance(node, cst.Call):
        return Report() if site.name(node.func) in _PARALLEL else None
    aliases = () if isinstance(node.names, cst.ImportStar) else node.names
    renamed = [terminal(alias.asname.name) for alias in aliases if alias.asname is not None]
    if not renamed or not set(imported(node)) & set(_PARALLEL):
        return None
    used = any(len(re.findall(rf"\b{name}\b", site.file.text)) > 1 for name in renamed)
    return None if used else Report()  # the calls are found by themselves


_LAST_WITHOUT_ACCELERATOR = (2, 7)
"""From torch 2.7 on, pinning asks the current accelerator and needs no name."""


@rule(
    "NPU142",
    "pin-memory",
    on=cst.Call,
    words=PIN_WORDS,
    fix=FixLevel.SAFE,
    quiet=True,
    why="before torch 2.7 pin_memory=True asks for CUDA and pins nothing on an NPU machine, "
    'unless pin_memory_device="npu" is given',
    examples=(
        rewrite(
            "import torch\nfrom torch.utils.data import DataLoader\n"
            "d = DataLoader(s, pin_memory=True, num_workers=2)",
            "import torch\nimport torch_npu  # noqa: F401\n"
            "from torch.utils.data import DataLoader\n"
            'd = DataLoader(s, pin_memory=True, pin_memory_device="npu", num_workers=2)',
            release="2.6.0",
        ),
        leave("from torch.utils.data import DataLoader\nd = DataLoader(s, pin_memory=True)"),
    ),
    source="the description of pin_memory_device in torch 2.7 and of its end in torch 2.13",
)
def pin_memory(node: cst.Call, site: Site) -> Fix | None:
    release = tuple(int(part) for part in site.options.torch_npu.split(".")[:2])
    if release >= _LAST_WITHOUT_ACCELERATOR or terminal(node.func) != "DataLoader":
        return None
    if not (site.name(node.func) or "torch.").startswith("torch."):
        return None
    flag = site.argument(node, "pin_memory")
    if flag is None or site.code(flag.value) != "True" or any(arg.star for arg in node.args):
        return None
    if site.argument(node, "pin_memory_device") is not None:
        return None
    return Fix(_with_argument(node, flag, "pin_memory_device", "npu"))

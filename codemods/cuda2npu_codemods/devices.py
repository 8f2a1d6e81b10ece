"""Device strings: ``"cuda"``, ``"cuda:0"``, and strings that are built to one."""

from __future__ import annotations

import libcst as cst

from cuda2npu.rule import Fix, FixLevel, Site, leave, rewrite, rule
from cuda2npu_codemods.arguments import Use
from cuda2npu_codemods.default_types import sets_default_type
from cuda2npu_codemods.device_parts import part_edits
from cuda2npu_codemods.device_tests import compared_for_kernel, comparison_of
from cuda2npu_codemods.expressions import is_device, string, terminal, with_value
from cuda2npu_codemods.extension_builders import compiles_at_run_time
from cuda2npu_codemods.kept import kept_level
from cuda2npu_codemods.preferences import with_npu
from cuda2npu_codemods.uses import use_of
from cuda2npu_codemods.words import DEVICE, DEVICE_TEMPLATE, OTHER_ACCELERATORS, TENSOR_TYPE

_SILENT = (Use.KEY, Use.TEXT, Use.FOREIGN, Use.SHARED, Use.COMMAND)


@rule(
    "NPU110",
    "device-string",
    on=cst.SimpleString,
    words=("cuda",),
    fix=FixLevel.SAFE,
    why='the device type of an Ascend NPU is "npu"; "cuda" raises there, or a test for it fails',
    examples=(
        rewrite('x = x.to("cuda:0")', 'x = x.to("npu:0")'),
        rewrite("device = 'cuda' if ok else 'cpu'", "device = 'npu' if ok else 'cpu'"),
        rewrite('if device.type == "cuda": pass', 'if device.type == "npu": pass'),
        rewrite('ok = "cuda" in args.device', 'ok = "npu" in args.device'),
        rewrite('d = "cuda:" + str(i)', 'd = "npu:" + str(i)'),
        rewrite('d = "cuda:{}".format(i)', 'd = "npu:{}".format(i)'),
        rewrite('d = "cuda:%d" % i', 'd = "npu:%d" % i'),
        rewrite('def f(x, device="cuda"): pass', 'def f(x, device="npu"): pass'),
        rewrite(
            'p.add_argument("--device", default="cuda", choices=["cpu", "cuda"])',
            'p.add_argument("--device", default="npu", choices=["cpu", "npu"])',
        ),
        rewrite('ok = d.type in ("cuda", "mps")', 'ok = d.type in ("cuda", "npu", "mps")'),
        rewrite(
            'torch.load(f, map_location={"cuda:0": "cuda:1"})',
            'torch.load(f, map_location={"cuda:0": "npu:1", "npu:0": "npu:1"})',
        ),
        rewrite(
            "def get(name='cuda'): return torch.device(name)\nd = get('cuda')",
            "def get(name='npu'): return torch.device(name)\nd = get('npu')",
        ),
        rewrite(
            "def get(name):\n    if name.startswith('cuda'): check()\n    return x.to(name)",
            "def get(name):\n    if name.startswith('npu'): check()\n    return x.to(name)",
        ),
        rewrite(
            'def f(device: Literal["cuda", "cpu"] = "cuda"): pass',
            'def f(device: Literal["npu", "cpu"] = "npu"): pass',
        ),
        rewrite('d = torch.device(type="cuda", index=1)', 'd = torch.device(type="npu", index=1)'),
        rewrite('x = x.cuda("cuda")', 'x = x.to("npu")'),
        rewrite(
            "from torch import GradScaler\ns = GradScaler('cuda')",
            "from torch import GradScaler\nimport torch_npu  # noqa: F401\ns = GradScaler('npu')",
        ),
        rewrite('torch.cuda.synchronize("cuda")', 'torch.npu.synchronize("npu")'),
        leave("key = f\"{'cuda' if cuda else 'cpu'}_time_total\""),
        rewrite(
            "print(f\"on {'cuda' if cuda else 'cpu'}\")",
            "print(f\"on {'npu' if cuda else 'cpu'}\")",
        ),
        leave(
            "def _choose_auto_accelerator():\n    if has_mps: return 'mps'\n"
            "    if has_gpu: return 'cuda'\n    return 'cpu'"
        ),
        leave('import xgboost\nm = xgboost.XGBClassifier(device="cuda")'),
        leave('import requests, torch\nrequests.post(u, json={"device": "cuda"})'),
        rewrite(
            'OK = ["cpu", "cuda"]\nif device not in OK: raise ValueError',
            'OK = ["cpu", "npu"]\nif device not in OK: raise ValueError',
        ),
        rewrite(
            'class A:\n    kinds = ("cpu", "cuda")\n    def f(self, x):\n'
            "        assert x.device.type in self.kinds",
            'class A:\n    kinds = ("cpu", "npu")\n    def f(self, x):\n'
            "        assert x.device.type in self.kinds",
        ),
        rewrite(
            'every = set(["cuda", "cpu"] + [f"cuda:{i}" for i in range(8)])',
            'every = set(["npu", "cpu"] + [f"npu:{i}" for i in range(8)])',
        ),
        rewrite(
            'known = ["cpu", "cuda"]\np.add_argument("--device", choices=known)',
            'known = ["cpu", "npu"]\np.add_argument("--device", choices=known)',
        ),
        leave('known = ["cpu", "cuda"]\np.add_argument("--impl", choices=known)'),
        leave('print(["cuda", "cpu"] + [f"cuda:{i}" for i in range(8)])'),
        leave('@kernels.register(device="cuda")\ndef run(x): pass'),
        rewrite('known = ["cpu", "cuda", "cuda:0"]', 'known = ["cpu", "npu", "npu:0"]'),
        rewrite(
            'class C:\n    device: str = field(default="cuda", metadata={"choices": ["cuda"]})',
            'class C:\n    device: str = field(default="npu", metadata={"choices": ["npu"]})',
        ),
        rewrite(
            '@click.option("--device", default="cuda", type=click.Choice(["cuda", "cpu"]))\n'
            "def main(device): pass",
            '@click.option("--device", default="npu", type=click.Choice(["npu", "cpu"]))\n'
            "def main(device): pass",
        ),
        rewrite(
            'def main(device: str = typer.Option("cuda", help="x")): pass',
            'def main(device: str = typer.Option("npu", help="x")): pass',
        ),
        rewrite(
            'def main(where: str = typer.Option("cuda", "--device")): pass',
            'def main(where: str = typer.Option("npu", "--device")): pass',
        ),
        rewrite(
            'flags.DEFINE_enum("device", "cuda", ["cuda", "cpu"], "where")',
            'flags.DEFINE_enum("device", "npu", ["npu", "cpu"], "where")',
        ),
        rewrite(
            'Where = Literal["cuda", "cpu"]\ndef f(device: Where = "cuda"): pass',
            'Where = Literal["npu", "cpu"]\ndef f(device: Where = "npu"): pass',
        ),
        rewrite(
            "x.to(f\"{'cuda' if ok else 'cpu'}:{rank}\")",
            "x.to(f\"{'npu' if ok else 'cpu'}:{rank}\")",
        ),
        rewrite("d = f\"{'cuda'}:{rank}\"", "d = f\"{'npu'}:{rank}\""),
        leave("print(f\"{'cuda'}:{rank}\")"),
        rewrite(
            "match device:\n    case str() as s if s.startswith('cuda'): pass",
            "match device:\n    case str() as s if s.startswith('npu'): pass",
        ),
        leave("match key:\n    case str() as s if s.startswith('cuda'): pass"),
        rewrite(
            "import torch\nPREFERRED = ('cuda', 'mps', 'cpu')\nfor n in PREFERRED:\n"
            "    if n == 'cpu' or getattr(torch, n).is_available(): d = torch.device(n)",
            "import torch\nimport torch_npu  # noqa: F401\n"
            "PREFERRED = ('cuda', 'npu', 'mps', 'cpu')\nfor n in PREFERRED:\n"
            "    if n == 'cpu' or getattr(torch, n).is_available(): d = torch.device(n)",
        ),
        rewrite(
            "def pick(order=['cuda', 'cpu']): return [torch.zeros(1, device=d) for d in order]",
            "def pick(order=['npu', 'cpu']): return [torch.zeros(1, device=d) for d in order]",
        ),
        leave("def pick(order=['cuda', 'cpu']):\n    order = []\n    for d in order: x.to(d)"),
        leave('OK = ["cpu", "cuda"]\nif impl in OK: pass'),
        leave('OK = ["cpu", "cuda"]\nif event.type in OK: pass'),
        rewrite('T = "cuda"\nok = T == x.device.type', 'T = "npu"\nok = T == x.device.type'),
        leave('NAMES = {"gpu": "cuda"}\nif device in NAMES: pass'),
        leave('Impl = Literal["cuda", "cpu"]\ndef f(impl: Impl): pass'),
        leave('def main(impl: str = typer.Option("cuda")): pass'),
        leave('@click.option("--impl", type=click.Choice(["cuda", "ref"]))\ndef f(impl): pass'),
        leave('p.add_argument("--cuda", action="store_true")'),
        leave('impl = "cuda"'),
        rewrite(
            'WHERE = "cuda"',
            'WHERE = "npu"',
            beside={"train.py": "import torch\nfrom example import WHERE\nd = torch.device(WHERE)"},
        ),
        rewrite(
            'p.add_argument("--accel", default="cuda")',
            'p.add_argument("--accel", default="npu")',
            beside={"train.py": "import torch\ndef main(args): x.to(torch.device(args.accel))"},
        ),
        rewrite(
            'class Config:\n    accel: str = "cuda"',
            'class Config:\n    accel: str = "npu"',
            beside={"train.py": "def main(cfg): kind = cfg.accel or 'cpu'; x.to(kind)"},
        ),
        rewrite(
            "from pkg import WHERE\nif WHERE == 'cuda': pass",
            "from pkg import WHERE\nif WHERE == 'npu': pass",
            beside={
                "pkg/__init__.py": "from .settings import *",
                "pkg/settings.py": 'WHERE = "cuda"',
                "train.py": "import pkg.settings as s\nx.to(s.WHERE)",
            },
        ),
        rewrite(
            'from conf import Config\nc = Config(accel="cuda")',
            'from conf import Config\nc = Config(accel="npu")',
            beside={"conf.py": 'class Config:\n    accel: str = "cuda"', "a.py": "x.to(cfg.accel)"},
        ),
        leave(
            'class Config:\n    accel: str = "cuda"',
            beside={"a.py": "x.to(cfg.accel)", "b.py": 'class Other:\n    accel: str = "turbo"'},
        ),
        leave('assert impl in ("ref", "cuda")'),
        rewrite('ok = str(x.device)[:4] == "cuda"', 'ok = str(x.device)[:3] == "npu"'),
        rewrite('ok = str(x.device)[0:5] != "cuda:"', 'ok = str(x.device)[0:4] != "npu:"'),
        rewrite(
            'i = int(device[5:]) if device.startswith("cuda:") else 0',
            'i = int(device[4:]) if device.startswith("npu:") else 0',
        ),
        rewrite(
            'if device.startswith("cuda"): n = device[len("cuda"):]',
            'if device.startswith("npu"): n = device[len("npu"):]',
        ),
        leave('def f(device):\n    if device.startswith("cuda:"): return int(device[5:])'),
        rewrite(
            'gpus = [f"cuda:{i}" for i in range(n)]\ngpus.remove("cuda:0")',
            'gpus = [f"npu:{i}" for i in range(n)]\ngpus.remove("npu:0")',
        ),
        rewrite(
            'mem = {f"cuda:{i}": 0 for i in range(n)}\nmem["cuda:0"] += mem.get("cuda:1", 0)',
            'mem = {f"npu:{i}": 0 for i in range(n)}\nmem["npu:0"] += mem.get("npu:1", 0)',
        ),
        rewrite(
            'ds = [d for d in ["cuda:" + str(i) for i in range(n)] if d != "cuda:0"]',
            'ds = [d for d in ["npu:" + str(i) for i in range(n)] if d != "npu:0"]',
        ),
        rewrite(
            'self.gpus = [f"cuda:{i}" for i in range(n)]\nok = "cuda:0" in self.gpus',
            'self.gpus = [f"npu:{i}" for i in range(n)]\nok = "npu:0" in self.gpus',
        ),
        leave('mem = {}\nmem["cuda:0"] = 1'),
        leave('print("cuda")'),
        leave('state["cuda"] = 1'),
        leave('ok = d.type in ("cuda", "npu", "mps")'),
        rewrite(
            'if device not in ["cuda", "xpu"]: raise ValueError\nfree_cuda = measure()',
            'if device not in ["cuda", "npu", "xpu"]: raise ValueError\nfree_cuda = measure()',
        ),
    ),
)
def device_string(node: cst.SimpleString, site: Site) -> Fix | None:
    fix = npu_string(node, site)
    return fix if fix is not None and kept_level(node, site) is None else None


def npu_string(node: cst.SimpleString, site: Site) -> Fix | None:
    """The edit of a device string, whatever a test with it guards."""
    value = string(node)
    if value is None or "cuda" not in value:
        return None
    template = DEVICE_TEMPLATE.fullmatch(value) and value != "cuda"
    if not template and not DEVICE.fullmatch(value):
        return None
    use = use_of(site, node)
    if use in _SILENT or (use is not Use.DEVICE and not _is_unmistakable(value)):
        return None
    parts = part_edits(node, site)
    if parts is None or compared_for_kernel(node, site) or compiles_at_run_time(site):
        return None
    element = site.parent(node)
    if isinstance(element, cst.Element) and value == "cuda":
        others = _siblings(element, site)
        if "npu" in others:
            return None
        if others & OTHER_ACCELERATORS:
            return Fix(with_npu(element, node, others), quiet=True)
    edits = {node: with_value(node, "cuda", "npu"), **parts}
    return Fix(edits, quiet=_is_quiet(node, site))


_QUIET_CALLEES = frozenset("autocast GradScaler custom_fwd custom_bwd".split())


def _is_quiet(node: cst.CSTNode, site: Site) -> bool:
    """A comparison only takes the other branch; autocast and GradScaler switch themselves off."""
    if comparison_of(node, site) is not None:
        return True
    arg = site.parent(node)
    call = site.parent(arg) if isinstance(arg, cst.Arg) else None
    if not isinstance(call, cst.Call):
        return False
    if terminal(call.func) in _QUIET_CALLEES:
        return True
    return isinstance(call.func, cst.Attribute) and is_device(site, call.func.value)


def _is_unmistakable(value: str) -> bool:
    """``cuda:0`` and ``cuda:{}`` name a device wherever they stand; ``cuda`` alone may not."""
    return ":" in value


def _siblings(element: cst.Element, site: Site) -> set[str]:
    container = site.parent(element)
    elements = getattr(container, "elements", ())
    return {string(other.value) or "" for other in elements if other is not element}


@rule(
    "NPU111",
    "device-f-string",
    on=cst.FormattedString,
    words=("cuda",),
    fix=FixLevel.SAFE,
    why='an f-string builds a CUDA device name; the device type of an Ascend NPU is "npu"',
    examples=(
        rewrite('x.to(f"cuda:{rank}")', 'x.to(f"npu:{rank}")'),
        rewrite(
            'd = f"cuda:{torch.cuda.current_device()}"', 'd = f"npu:{torch.npu.current_device()}"'
        ),
        leave('print(f"cuda:{rank}")'),
        leave('name = f"cuda_{i}"'),
    ),
)
def device_f_string(node: cst.FormattedString, site: Site) -> Fix | None:
    head = node.parts[0] if node.parts else None
    if not isinstance(head, cst.FormattedStringText) or head.value not in ("cuda:", "cuda"):
        return None
    rest = node.parts[1:]
    if len(rest) != 1 or not isinstance(rest[0], cst.FormattedStringExpression):
        return None
    use = use_of(site, node)
    if use in _SILENT or (use is not Use.DEVICE and head.value == "cuda"):
        return None
    return Fix({head: head.with_changes(value=head.value.replace("cuda", "npu"))})


@rule(
    "NPU112",
    "device-string-unproven",
    on=cst.SimpleString,
    words=("cuda",),
    fix=FixLevel.UNSAFE,
    why='"cuda" goes to a function or method of which this file does not show that it takes a '
    'device of torch: if it does, write "npu", or run with --unsafe',
    examples=(
        rewrite('model = load("b0", "cuda")', 'model = load("b0", "npu")'),
        rewrite(
            'import faiss_lite\nm = faiss_lite.Index(device="cuda")',
            'import faiss_lite\nm = faiss_lite.Index(device="npu")',
        ),
        rewrite(
            "import torch\ndef f(kind='cuda'):\n    register(kind)\n    x.to(kind)",
            "import torch\nimport torch_npu  # noqa: F401\n"
            "def f(kind='npu'):\n    register(kind)\n    x.to(kind)",
        ),
        leave('print("b0", "cuda")'),
        leave('import torch\ntorch.save(x, "cuda")'),
        leave('@kernels.register("cuda")\ndef run(x): pass'),
    ),
)
def device_string_unproven(node: cst.SimpleString, site: Site) -> Fix | None:
    value = string(node)
    if value != "cuda" or use_of(site, node) is not Use.UNKNOWN_ARGUMENT:
        return None
    call = site.parent(site.parent(node) or node)
    if isinstance(call, cst.Call) and (terminal(call.func) or "").startswith("register"):
        return None  # a registry of implementations by device: CUDA's stays CUDA's
    return Fix({node: with_value(node, "cuda", "npu")})


@rule(
    "NPU113",
    "tensor-type-string",
    on=cst.SimpleString,
    words=("torch.cuda.",),
    fix=FixLevel.SAFE,
    missed_by_shim=True,
    why="a tensor type is named by a string: on the NPU it is torch.npu.…Tensor",
    quiet=True,
    examples=(
        rewrite(
            'half = x.type() == "torch.cuda.HalfTensor"',
            'half = x.type() == "torch.npu.HalfTensor"',
        ),
        rewrite(
            'y = x.type("torch.cuda.DoubleTensor")',
            'y = x.type("torch.npu.FloatTensor")',
        ),
        rewrite(
            'kinds = ["torch.cuda.FloatTensor", "torch.cuda.DoubleTensor"]',
            'kinds = ["torch.npu.FloatTensor", "torch.npu.DoubleTensor"]',
        ),
        leave('torch.set_default_tensor_type("torch.cuda.FloatTensor")'),
        leave('print("torch.cuda.FloatTensor")'),
    ),
)
def tensor_type_string(node: cst.SimpleString, site: Site) -> Fix | None:
    value = string(node)
    if value is None or not TENSOR_TYPE.fullmatch(value):
        return None
    parent = site.parent(node)
    call = site.parent(parent) if isinstance(parent, cst.Arg) else None
    if isinstance(call, cst.Call) and terminal(call.func) in ("print", "info", "warning", "warn"):
        return None
    if use_of(site, node) is Use.KEY or sets_default_type(site, node):
        return None
    renamed = with_value(node, "torch.cuda.", "torch.npu.")
    casts = isinstance(call, cst.Call) and terminal(call.func) == "type"
    if "Double" not in value or site.options.preserve_numerics or not casts:
        return Fix({node: renamed})
    message = "DoubleTensor on the NPU becomes FloatTensor: float64 results turn float32"
    return Fix({node: with_value(renamed, "Double", "Float")}, message, level=FixLevel.NUMERICS)

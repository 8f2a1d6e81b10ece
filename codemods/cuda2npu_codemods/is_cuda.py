"""``x.is_cuda``, and tests of the device that guard a CUDA kernel."""

from __future__ import annotations

import ast
import re

import libcst as cst

from cuda2npu.rule import Fix, FixLevel, Report, Site, Target, leave, report, rewrite, rule
from cuda2npu_codemods.device_tests import guards_by_device, is_negated
from cuda2npu_codemods.expressions import is_device, string, terminal, with_value
from cuda2npu_codemods.guards import guards_kernel, guards_kernel_import, strands
from cuda2npu_codemods.kept import kept_level
from cuda2npu_codemods.placement import is_foreign
from cuda2npu_codemods.receivers import is_own, is_torch, may_be_own
from cuda2npu_codemods.scripted import is_scripted


@rule(
    "NPU103",
    "is-cuda",
    on=cst.Attribute,
    words=("is_cuda",),
    fix=FixLevel.SAFE,
    quiet=True,
    why="is_cuda is False for a tensor on the NPU; torch_npu adds is_npu",
    examples=(
        rewrite(
            "if x.is_cuda: w = torch.cuda.FloatTensor(w)",
            "if x.is_npu: w = torch.npu.FloatTensor(w)",
        ),
        rewrite("b, on = x.shape[0], q.is_cuda", "b, on = x.shape[0], q.is_npu"),
        leave("self.is_cuda = device.type == 'cpu'\nif self.is_cuda: pass"),
        leave("if src.is_cuda(): pass"),
        leave("if get_platform().is_cuda: import fast"),
        leave(
            "from graphs import Graph\ndef f(g: Graph): return g.is_cuda",
            beside={"graphs.py": "class Graph:\n    @property\n    def is_cuda(self): return 1"},
        ),
        leave("if x.is_cuda:\n    y = ext_cuda.forward(x)"),
    ),
)
def is_cuda(node: cst.Attribute, site: Site) -> Fix | None:
    fix = is_npu(node, site)
    return fix if fix is not None and kept_level(node, site) is None else None


def is_npu(node: cst.Attribute, site: Site) -> Fix | None:
    """The edit of a tensor's ``is_cuda``, whatever it guards."""
    if not _is_tensor_property(node, site) or guards_kernel(site, is_negated(node, site)):
        return None
    if is_scripted(site):
        return None
    return _asked_of(node.value, {node.attr: cst.Name("is_npu")}, site)


def _asked_of(value: cst.BaseExpression, edits: dict[cst.CSTNode, cst.CSTNode], site: Site) -> Fix:
    """The fix of a question to this object, as far as it is sure to be a tensor."""
    owner = may_be_own(site, "is_cuda", value)
    if owner is not None and not _is_used_as_tensor(value, site):
        return Fix(
            edits,
            f"the class {owner.name} in {owner.path} defines its own is_cuda, and this may be "
            "one: if it is a tensor, write is_npu, or run with --unsafe",
            level=FixLevel.UNSAFE,
        )
    name = site.name(value)
    if name is None or "." not in name or name == "torch.Tensor":
        return Fix(edits)
    return Fix(
        edits,
        "is_cuda is asked of something imported, which may be no tensor: if it is one, write "
        "is_npu, or run with --unsafe",
        level=FixLevel.UNSAFE,
    )


def _is_tensor_property(node: cst.Attribute, site: Site) -> bool:
    parent = site.parent(node)
    if node.attr.value != "is_cuda" or isinstance(parent, cst.AssignTarget):
        return False
    if isinstance(parent, cst.Call) and parent.func is node:
        return False  # a tensor's is_cuda is no method
    return _may_be_tensor(node.value, site)


def _may_be_tensor(value: cst.BaseExpression, site: Site) -> bool:
    """Whether nothing shows that the object has an ``is_cuda`` of its own."""
    if is_foreign(site, value) or "platform" in (terminal(value) or "").lower():
        return False  # current_platform.is_cuda asks which machine this is, not where a tensor is
    if is_own(site, "is_cuda", value) or is_torch(site, value):
        return is_torch(site, value)
    own = site.file.stores_attribute("is_cuda") or site.file.defines_method("is_cuda")
    return not own or _is_used_as_tensor(value, site)


_TENSOR_ATTRIBUTES = frozenset("shape dtype device size dim ndim numel requires_grad".split())


def _is_used_as_tensor(node: cst.BaseExpression, site: Site) -> bool:
    """Whether the code around asks the same variable for a tensor's attributes."""
    if not isinstance(node, cst.Name) or node.value == "self":
        return False
    return any(
        isinstance(inner, ast.Attribute)
        and inner.attr in _TENSOR_ATTRIBUTES
        and isinstance(inner.value, ast.Name)
        and inner.value.id == node.value
        for inner in ast.walk((*site.enclosing, site.file.tree)[0])
    )


@rule(
    "NPU159",
    "is-cuda-by-string",
    on=cst.Call,
    words=("is_cuda",),
    fix=FixLevel.SAFE,
    quiet=True,
    why="a string names the property is_cuda, which is False for a tensor on the NPU; torch_npu "
    "adds is_npu",
    examples=(
        rewrite('on = getattr(x, "is_cuda")', 'on = getattr(x, "is_npu")'),
        rewrite("if getattr(x, 'is_cuda', False): pass", "if getattr(x, 'is_npu', False): pass"),
        rewrite(
            "import operator\non = any(map(operator.attrgetter('is_cuda'), xs))",
            "import operator\non = any(map(operator.attrgetter('is_npu'), xs))",
        ),
        leave("if hasattr(x, 'is_cuda'): pass"),
        leave("self.is_cuda = args.cuda\non = getattr(self, 'is_cuda')"),
        leave("if getattr(x, 'is_cuda'):\n    y = ext_cuda.forward(x)"),
        leave("setattr(x, 'is_cuda', True)"),
    ),
)
def is_cuda_by_string(node: cst.Call, site: Site) -> Fix | None:
    callee, args = terminal(node.func), [arg.value for arg in node.args]
    if callee == "getattr" and len(args) > 1:
        value, name = args[:2]
    elif callee == "attrgetter" and len(args) == 1:
        value, name = node.func, args[0]
    else:
        return None
    if not isinstance(name, cst.SimpleString) or string(name) != "is_cuda":
        return None
    edits: dict[cst.CSTNode, cst.CSTNode] = {name: with_value(name, "is_cuda", "is_npu")}
    if callee == "attrgetter":
        own = site.file.stores_attribute("is_cuda") or site.file.defines_method("is_cuda")
        return None if own else Fix(edits)
    if not _may_be_tensor(value, site) or guards_kernel(site, is_negated(node, site)):
        return None
    return _asked_of(value, edits, site)


@rule(
    "NPU104",
    "kernel-guard-is-cuda",
    on=cst.Attribute,
    words=("is_cuda",),
    fix=FixLevel.NONE,
    missed_by_shim=True,
    quiet=True,
    why="this is_cuda guards a CUDA kernel and was left, so that the portable branch runs on the "
    "NPU; check that there is one, or port the kernel",
    examples=(
        report("if x.is_cuda:\n    y = ext_cuda.forward(x)\nelse:\n    y = forward(x)"),
        report(
            "def f(x):\n    if not x.is_cuda:\n        return ref(x)\n    return ext_cuda.run(x)"
        ),
        report("import ext\ndef f(x):\n    on = ext is not None and x.is_cuda\n    return on"),
        report(
            "import rnnt\ndef f(x):\n    on = x.is_cuda\n"
            "    return (rnnt.loss_gpu if on else rnnt.loss_cpu)(x)"
        ),
        report("from lib import HAS_TRITON\ndef f(x): return HAS_TRITON and x.is_cuda"),
        report("import lib\nif not lib.typing.WITH_SCATTER or not x.is_cuda: y = ref(x)"),
        report("import torch, cupy as cp\nif x.is_cuda: y = cp.asarray(x)"),
        report("cp, has_cp = optional_import('cupy')\ny = cp.asarray(x) if x.is_cuda else x"),
        report(
            "import torch, lib\nclass F(torch.autograd.Function):\n"
            "    def forward(ctx, x): return lib.run_cuda(x)\nrun = F.apply\n"
            "def f(x):\n    if not x.is_cuda: raise ValueError\n    return run(x)"
        ),
        report(
            "import torch, rnnt\nclass F(torch.autograd.Function):\n"
            "    def forward(ctx, x): return (rnnt.loss_gpu if x.is_cuda else rnnt.loss_cpu)(x)\n"
            "class Loss:\n    def __init__(self): self.loss = F.apply\n"
            "    def forward(self, y):\n"
            "        if not y.is_cuda: y = y.log_softmax(-1)\n        return self.loss(y)"
        ),
        report(
            "import torch\nfrom numba import cuda\n@cuda.jit()\ndef kernel(x): pass\n"
            "def fits(x):\n    if not x.is_cuda: return False\n    return len(x) > 8"
        ),
        leave(
            "import torch\nclass F(torch.autograd.Function):\n"
            "    def forward(ctx, x): return x\n"
            "def f(y):\n    if not y.is_cuda: y = y.float()\n    return F.apply(y)"
        ),
        report("import colossal_C\nif x.is_cuda: y = colossal_C.multi_tensor_l2norm(x)"),
        report("if x.is_cuda: y = multi_tensor_applier(self.scale, [[x]])"),
        report(
            "from lib._C import fused_optim\ndef clip(grads):\n    on_gpu = []\n"
            "    for g in grads:\n        if g.is_cuda: on_gpu.append(g)\n"
            "        else: g.mul_(0.5)\n    fused_optim.scale([on_gpu], 0.5)"
        ),
        report(
            "import torch\nfrom lib.kernel_loader import FusedAdamLoader\nclass Adam:\n"
            "    def __init__(self):\n        if torch.cuda.is_available():\n"
            "            self.op = FusedAdamLoader().load()\n"
            "    def step(self, p):\n        if p.is_cuda: self.op(p)"
        ),
        leave("def f(xs):\n    on_gpu = []\n    if x.is_cuda: on_gpu.append(x)\n    run(on_gpu)"),
        leave("if x.is_cuda:\n    y = x.half()"),
        leave("def f(x, mask):\n    if mask is not None and mask.is_cuda: x = x.cuda()"),
        leave("import lib\nif lib.has_native_amp and x.is_cuda: x = x.half()"),
        leave("on = x.is_cuda\nif on: w = w.cuda()"),
        leave("on = x.is_cuda\nif on: used_cuda = memory()"),
    ),
)
def kernel_guard_is_cuda(node: cst.Attribute, site: Site) -> Report | None:
    if not _is_tensor_property(node, site):
        return None
    negated = is_negated(node, site)
    return _guard(site, strands(site, negated)) if guards_kernel(site, negated) else None


def _guard(site: Site, strands_npu: bool) -> Report:
    """The report on a guard: transfer_to_npu makes true what is false without it."""
    if site.options.target is Target.SHIM:
        return Report(_TRUE, quiet=False)
    return Report(quiet=not strands_npu)


_TRUE = (
    "this test guards a CUDA kernel, and is true under transfer_to_npu, so that the kernel is used "
    "where there is none: choose the portable branch, port the kernel, or use --target npu"
)


@rule(
    "NPU114",
    "kernel-guard-device-type",
    on=cst.Comparison,
    words=("cuda",),
    fix=FixLevel.NONE,
    why="this device test guards a CUDA kernel and was left, so that the portable branch runs "
    "on the NPU; check that there is one, or port the kernel",
    quiet=True,
    examples=(
        report('if x.device.type == "cuda":\n    y = bias_act_cuda.forward(x)'),
        report("import lib\non = lib.has_cucim and x.device.type == 'cuda'"),
        report(
            "no_cuda = any(t.device.type != 'cuda' for t in ts)\n"
            "if no_cuda or slow:\n    y = ref(x)\nelse:\n    y = rwkv_cuda.run(x)"
        ),
        report(
            "from lib._ext import CudaTree\nclass Sampler:\n    def start(self, device):\n"
            "        if device.type == 'cuda': self.tree = CudaTree(device)\n"
            "    def sample(self, x):\n        return x.sum() if x.device.type == 'cuda' else x"
        ),
        report("k = FaissKMeans(gpu=device.type == 'cuda')"),
        report(
            "import torch, faiss\ndef f(device, d, k):\n"
            "    on = True if 'cuda' in str(device) else False\n"
            "    return faiss.Kmeans(d, k, gpu=on)"
        ),
        report("use_cuda_kernel = x.device.type == 'cuda'\nif use_cuda_kernel: y = run(x)"),
        leave(
            "import torch, faiss\ndef f(device, d, k):\n    on = device.type == 'cuda'\n"
            "    return Net(on), faiss.Kmeans(d, k, gpu=on)"
        ),
        leave("import lib\ndef f(device):\n    on = device.type == 'cuda'\n    lib.run(gpu=on)"),
        leave('if x.device.type == "cuda":\n    x = x.half()'),
        leave("import lib\non = lib.is_compiling() and x.device.type == 'cuda'"),
    ),
)
def kernel_guard_device_type(node: cst.Comparison, site: Site) -> Report | None:
    sides = [node.left, *(target.comparator for target in node.comparisons)]
    literals = [s for s in sides if re.search(r"['\"]cuda['\"]", site.code(s))]
    if not literals or not any(is_device(site, side) for side in sides):
        return None
    quiet = not strands(site, is_negated(node, site))
    return Report(quiet=quiet) if guards_by_device(node, site) else None


@rule(
    "NPU105",
    "kernel-guard-available",
    on=cst.Attribute,
    words=("cuda",),
    fix=FixLevel.NONE,
    missed_by_shim=True,
    quiet=True,
    why="torch.cuda.is_available() guards the import or build of a CUDA kernel, or another runtime "
    "that needs a GPU of NVIDIA, and was left, so that the portable branch runs on the NPU; check "
    "that there is one, or port the kernel",
    examples=(
        report("if torch.cuda.is_available():\n    import ext_cuda"),
        report("if torch.cuda.is_available():\n    sources += glob('*.cu')"),
        report("if torch.cuda.is_available():\n    mods.append(CUDAExtension('ext', sources))"),
        report("import torch, cupy, numpy\nxp = cupy if torch.cuda.is_available() else numpy"),
        report(
            "from lib import is_flash_attn_available\n"
            "on = is_flash_attn_available() and torch.cuda.is_available()"
        ),
        report(
            "import pynvml\ndef f():\n    on = torch.cuda.is_available()\n"
            "    if not on: return\n    pynvml.nvmlInit()"
        ),
        report(
            "class Monitor:\n    def __init__(self):\n"
            "        self.on = torch.cuda.is_available()\n"
            "        if self.on:\n            import pynvml\n            pynvml.nvmlInit()"
        ),
        report(
            "class _CudaExtension:\n    def is_available(self):\n"
            "        available = torch.cuda.is_available() or force\n        return available"
        ),
        report(
            "def check_cuda_availability():\n    import torch\n"
            "    return torch.cuda.is_available()\ndef compiler(home): return home + '/bin/nvcc'",
            path="kernel/extensions/utils.py",
        ),
        report(
            "from lib.kernel_loader import FusedAdamLoader\n"
            "if torch.cuda.is_available(): op = FusedAdamLoader().load()"
        ),
        report(
            "import torch\ndef ready():\n    if torch.cuda.is_available() is False: return False\n"
            "def compiled(source):\n    from pynvrtc.compiler import Program\n"
            "    return Program(source).compile()"
        ),
        report("need('onnxruntime-gpu' if torch.cuda.is_available() else 'onnxruntime')"),
        report(
            "cuda = torch.cuda.is_available() and device.type != 'cpu'\n"
            "providers = ['CUDAExecutionProvider'] if cuda else []\n"
            "if cuda: config.enable_use_gpu(100, 0)"
        ),
        leave(
            "cuda = torch.cuda.is_available()\nif cuda and not fits: device = torch.device('cpu')\n"
            "need('onnxruntime-gpu' if cuda else 'onnxruntime')"
        ),
        leave(
            "class TritonKernelTest:\n    def setup(self):\n"
            "        self.device = 'cuda' if torch.cuda.is_available() else 'cpu'"
        ),
        leave(
            "class SdpaCudaExtension:\n    def ready(self): return torch.cuda.is_available()\n"
            "    def run(self, q, k, v):\n"
            "        return torch.nn.functional.scaled_dot_product_attention(q, k, v)"
        ),
        leave(
            "class CudaExtension:\n    def run(self, x):\n        on = torch.cuda.is_available()\n"
            "        if on: x = x.cuda()"
        ),
        leave("on = torch.cuda.is_available()\nif on: model.cuda()"),
        leave("import pynvml\nif torch.cuda.is_available():\n    pynvml.nvmlInit()\n    m.cuda()"),
        leave(
            "from lib import is_torch_available\nis_torch_available() and torch.cuda.is_available()"
        ),
        leave("if torch.cuda.is_available():\n    import numpy"),
    ),
)
def kernel_guard_available(node: cst.Attribute, site: Site) -> Report | None:
    if site.name(node) != "torch.cuda.is_available":
        return None
    stranded = strands(site, is_negated(site.parent(node) or node, site))
    return _guard(site, stranded) if guards_kernel_import(site) else None

"""Double precision of torch tensors, which the NPU computes in single precision.

Only what makes or casts a tensor is rewritten. Comparisons, tables, tests of types and
``finfo`` ask about a dtype and stay, and so does everything that is not torch.
"""

from __future__ import annotations

import ast
import re

import libcst as cst

from cuda2npu.rule import Fix, FixLevel, Report, Site, leave, report, rewrite, rule
from cuda2npu_codemods.dtypes import (
    SET_DEFAULT,
    casts,
    is_asked_by_name,
    is_spelled,
    needs_double,
    targets,
)
from cuda2npu_codemods.exact import keeps_double
from cuda2npu_codemods.expressions import outward, string, terminal, with_value
from cuda2npu_codemods.numerics import FLOAT64, is_array_call
from cuda2npu_codemods.receivers import may_be_own

_DTYPES = {"torch.float64": "float32", "torch.double": "float"}
_TENSORS = re.compile(r"(torch|torch\.cuda|torch\.npu|torch_npu\.npu)\.(sparse\.)?DoubleTensor")
_COMPLEX = ("torch.complex128", "torch.cdouble")
_WORDS = ("float64", "double", "Double")


@rule(
    "NPU410",
    "double-call",
    on=cst.Call,
    words=("double",),
    fix=FixLevel.NUMERICS,
    quiet=True,
    why=FLOAT64,
    examples=(
        rewrite("import torch\ny = x.double()", "import torch\ny = x.float()"),
        rewrite(
            "import torch\nmodel = Net().double().cuda()",
            "import torch\nimport torch_npu  # noqa: F401\nmodel = Net().float().npu()",
        ),
        rewrite(
            "import torch\nxs = map(torch.Tensor.double, xs)",
            "import torch\nxs = map(torch.Tensor.float, xs)",
        ),
        leave("import torch\ny = x.cpu().double().mean()"),
        leave("import torch\ny = x.to('cpu').double()"),
        leave("import torch\na = x.squeeze(0).double().numpy()"),
        leave("import torch\nimport numpy as np\na = np.asarray(x.double())"),
        leave("import torch\nh = x.cpu()\ny = h.double()"),
        leave("import torch\nif big and x.device.type == 'cpu':\n    x = x.double()"),
        rewrite(
            "import torch\nif big or x.device.type == 'cpu':\n    x = x.double()",
            "import torch\nif big or x.device.type == 'cpu':\n    x = x.float()",
        ),
        leave("import torch\nx = torch.ones(3, device='cpu').double()"),
        leave("import torch\nrow = torch.sqrt(-8 * idx.double() + n).long()"),
        leave("import torch\ns = WeightedRandomSampler(weights.double(), 8)"),
        leave("import torch\nclass A:\n    def double(self): pass\n    def f(self): A().double()"),
        leave("import torch\ndef to_double(x): return torch.from_numpy(x).double()"),
        leave("import torch\nimport numpy as np\ny = np.double(x)"),
        leave("import torch\nfrom torch.autograd import gradcheck\ngradcheck(f, x.double())"),
        leave("y = x.double()"),
    ),
)
def double_call(node: cst.Call, site: Site) -> Fix | None:
    if not site.file.imports("torch") or needs_double(site):
        return None
    for arg in node.args:
        if site.name(arg.value) in ("torch.Tensor.double", "torch.nn.Module.double"):
            assert isinstance(arg.value, cst.Attribute)
            return Fix({arg.value.attr: cst.Name("float")}, imports=())
    func = node.func
    if not isinstance(func, cst.Attribute) or func.attr.value != "double" or node.args:
        return None
    if site.file.defines_method("double") or keeps_double(site, node) or _is_array(func, site):
        return None
    if is_asked_by_name(site.enclosing[:1]):
        return None
    edits = {func.attr: cst.Name("float")}
    owner = may_be_own(site, "double", func.value)
    if owner is None:
        return Fix(edits, imports=())
    return Fix(
        edits,
        f"the class {owner.name} in {owner.path} defines its own double(), and this may be one: "
        "if it is a tensor or module of torch, write float(), or run with --unsafe",
        level=FixLevel.UNSAFE,
        imports=(),
    )


def _is_array(func: cst.Attribute, site: Site) -> bool:
    """Whether the receiver comes from NumPy, pandas or the like."""
    bound = site.binding(func.value.value) if isinstance(func.value, cst.Name) else None
    value = cst.parse_expression(ast.unparse(bound)) if bound is not None else func.value
    return isinstance(value, cst.Call) and is_array_call(site, value)


@rule(
    "NPU411",
    "float64-dtype",
    on=(cst.Attribute, cst.Name),
    words=_WORDS,
    fix=FixLevel.NUMERICS,
    quiet=True,
    why=FLOAT64,
    examples=(
        rewrite("x = x.to(torch.float64)", "x = x.to(torch.float32)"),
        rewrite("x = x.to(device, dtype=torch.double)", "x = x.to(device, dtype=torch.float)"),
        rewrite("x = x.type(torch.float64)", "x = x.type(torch.float32)"),
        rewrite(
            "import torch as th\nx = th.zeros(3, dtype=th.float64)",
            "import torch as th\nx = th.zeros(3, dtype=th.float32)",
        ),
        rewrite(
            "import torch\nfrom torch import float64\nx = torch.ones(2, dtype=float64)",
            "import torch\nx = torch.ones(2, dtype=torch.float32)",
        ),
        rewrite("torch.set_default_dtype(torch.float64)", "torch.set_default_dtype(torch.float32)"),
        rewrite("dtype = torch.float64", "dtype = torch.float32"),
        rewrite("def f(x, dtype=torch.double): pass", "def f(x, dtype=torch.float): pass"),
        rewrite("kw = {'dtype': torch.float64}", "kw = {'dtype': torch.float32}"),
        rewrite("kw['dtype'] = torch.float64", "kw['dtype'] = torch.float32"),
        rewrite("wide = torch.float64\ny = x.to(wide)", "wide = torch.float32\ny = x.to(wide)"),
        rewrite(
            "d = x.to(torch.float32 if mps else torch.float64)",
            "d = x.to(torch.float32 if mps else torch.float32)",
        ),
        rewrite(
            "def f(n, dtype): pass\nf(3, torch.float64)",
            "def f(n, dtype): pass\nf(3, torch.float32)",
        ),
        leave("ok = x.dtype == torch.float64"),
        leave("ok = x.dtype in (torch.float32, torch.float64)"),
        leave("SIZE = {torch.float32: 4, torch.float64: 8}"),
        leave("BY_NAME = {'F64': torch.float64}"),
        leave("eps = torch.finfo(torch.float64).eps"),
        leave("x = torch.zeros(3, dtype=torch.float64, device='cpu')"),
        leave("x = x.cpu().to(torch.float64)"),
        leave("wide.copy_(torch.arange(n, dtype=torch.float64).reshape(2, -1))"),
        rewrite(
            "y.copy_(torch.ones(3, dtype=torch.float64, device=d))",
            "y.copy_(torch.ones(3, dtype=torch.float32, device=d))",
        ),
        leave("if device.type == 'cpu': dtype = torch.float64"),
        leave("x = x.to('cpu', torch.float64)"),
        leave("bits = x.view(torch.float64)"),
        leave(
            "def f(dtype=torch.float64):\n"
            "    return torch.eye(4, dtype=dtype, device=torch.device('cpu'))"
        ),
        rewrite(
            "def f(x, dtype=torch.float64):\n    return torch.eye(4, dtype=dtype)",
            "def f(x, dtype=torch.float32):\n    return torch.eye(4, dtype=dtype)",
        ),
        rewrite(
            "def f(x, dtype): return x.to(dtype) == x\nf(3, torch.float64)",
            "def f(x, dtype): return x.to(dtype) == x\nf(3, torch.float32)",
        ),
        leave("import numpy as np\nx = np.zeros(3, dtype=np.float64)"),
        leave("x = x.astype('float64')"),
        leave("dtype = torch.float32 if is_npu else torch.float64"),
        leave("class A:\n    def double(self): return self.to(torch.double)"),
        leave("class DoubleStore:\n    def dtype(self): return torch.double"),
        leave("d = torch.float64 if x.dtype == torch.float64 else torch.float32"),
        leave("dtype = torch.float32 if z.dtype == torch.complex64 else torch.float64"),
        leave("m = MemoryMappedTensor.from_filename(f, shape=s, dtype=torch.float64)"),
        leave("m = MemoryMappedTensor.empty(s, dtype=torch.float64, filename=f)"),
        leave("x = torch.frombuffer(data, dtype=torch.float64)"),
        leave(
            "def dtype_of(plugin):\n    if isinstance(plugin, DoublePrecision): return torch.double"
        ),
        leave(
            "class Tolerance:\n    @classmethod\n    def value(cls, dtype):\n"
            "        if torch.is_tensor(dtype): dtype = dtype.dtype\n"
            "        return cls.low if dtype == torch.float else cls.high\n"
            "    def __init__(self): self.old = self.__class__.value(torch.double)\n"
            "class Wide(Tolerance):\n"
            "    @classmethod\n    def value(cls, dtype=None): return super().value(dtype=dtype)"
        ),
        leave(
            "def f(n):\n    kind = torch.float32\n    if n > 2**24: kind = torch.float64\n"
            "    ids = torch.arange(n, dtype=kind)\n    return ids.max().long()"
        ),
        leave("def test(dtypes=[torch.float32, torch.float64]): pass"),
        leave("ok = torch.autograd.gradcheck(f, torch.ones(2, dtype=torch.float64))"),
    ),
)
def float64_dtype(node: cst.Attribute | cst.Name, site: Site) -> Fix | None:
    new = _DTYPES.get(site.name(node) or "")
    if new is None or not is_spelled(node, site) or needs_double(site):
        return None
    if not casts(node, site):
        return None
    if isinstance(node, cst.Name):
        return Fix({node: site.spell(f"torch.{new}")}, imports=())
    return Fix({node.attr: cst.Name(new)}, imports=())


@rule(
    "NPU412",
    "double-tensor",
    on=(cst.Attribute, cst.Name),
    words=("DoubleTensor",),
    fix=FixLevel.NUMERICS,
    quiet=True,
    why=FLOAT64,
    examples=(
        rewrite("x = torch.DoubleTensor([1.0])", "x = torch.FloatTensor([1.0])"),
        rewrite("x = torch.cuda.DoubleTensor(3)", "x = torch.npu.FloatTensor(3)"),
        rewrite("x = x.type(torch.DoubleTensor)", "x = x.type(torch.FloatTensor)"),
        rewrite(
            "torch.set_default_tensor_type(torch.DoubleTensor)",
            "torch.set_default_tensor_type(torch.FloatTensor)",
        ),
        rewrite(
            "T = torch.cuda.DoubleTensor if cuda else torch.DoubleTensor",
            "T = torch.npu.FloatTensor if cuda else torch.FloatTensor",
        ),
        leave("ok = isinstance(x, torch.DoubleTensor)"),
        leave("ok = type(x) in (torch.FloatTensor, torch.DoubleTensor)"),
        leave("a = torch.DoubleTensor(xs).numpy()"),
        leave("w = torch.DoubleTensor(w)\ns = WeightedRandomSampler(w, len(w))"),
        leave(
            "class Balanced(Sampler):\n"
            "    def __init__(self, w): self.weights = torch.DoubleTensor(w)\n"
            "    def __iter__(self): return iter(torch.multinomial(self.weights, 8, True))"
        ),
        leave("def f(x: torch.DoubleTensor): pass"),
    ),
)
def double_tensor(node: cst.Attribute | cst.Name, site: Site) -> Fix | None:
    if not _TENSORS.fullmatch(site.name(node) or "") or not is_spelled(node, site):
        return None
    if needs_double(site):
        return None
    call = site.parent(node)
    if isinstance(call, cst.Call) and call.func is node:
        makes = not keeps_double(site, call)
    else:
        makes = casts(node, site) or bool(targets(outward(node, site)[1]))
    if not makes:
        return None
    if isinstance(node, cst.Name):
        name = (site.name(node) or "").replace("torch.cuda", "torch.npu")
        return Fix({node: site.spell(name.replace("Double", "Float"))}, imports=())
    return Fix({node.attr: cst.Name("FloatTensor")}, imports=())


@rule(
    "NPU413",
    "double-tensor-string",
    on=cst.SimpleString,
    words=("DoubleTensor",),
    fix=FixLevel.NUMERICS,
    quiet=True,
    why=FLOAT64,
    examples=(
        rewrite("x = x.type('torch.DoubleTensor')", "x = x.type('torch.FloatTensor')"),
        rewrite(
            "torch.set_default_tensor_type('torch.DoubleTensor')",
            "torch.set_default_tensor_type('torch.FloatTensor')",
        ),
        leave("ok = x.type() == 'torch.DoubleTensor'"),
        leave("print('torch.DoubleTensor')"),
        leave("x = x.cpu().type('torch.DoubleTensor')"),
    ),
)
def double_tensor_string(node: cst.SimpleString, site: Site) -> Fix | None:
    if string(node) != "torch.DoubleTensor" or not _string_casts(node, site):
        return None
    return Fix({node: with_value(node, "Double", "Float")}, imports=())


def _string_casts(node: cst.SimpleString, site: Site) -> bool:
    """Whether a type string is what ``.type(…)`` or the default tensor type is set to."""
    parent = site.parent(node)
    call = site.parent(parent) if isinstance(parent, cst.Arg) else None
    if not isinstance(call, cst.Call) or needs_double(site):
        return False
    if site.name(call.func) in SET_DEFAULT:
        return True
    is_method = terminal(call.func) == "type" and isinstance(call.func, cst.Attribute)
    return is_method and not keeps_double(site, call)


@rule(
    "NPU415",
    "device-double-tensor-string",
    on=cst.SimpleString,
    words=("DoubleTensor",),
    fix=FixLevel.NONE,
    quiet=True,
    why="this makes float64 tensors of the device, which torch_npu computes in float32 where it "
    "can: write 'torch.npu.FloatTensor'",
    examples=(
        report("torch.set_default_tensor_type('torch.npu.DoubleTensor')"),
        leave("torch.set_default_tensor_type('torch.npu.FloatTensor')"),
        leave("ok = x.type() == 'torch.npu.DoubleTensor'"),
    ),
)
def device_double_tensor_string(node: cst.SimpleString, site: Site) -> Report | None:
    named = string(node) == "torch.npu.DoubleTensor"
    return Report() if named and _string_casts(node, site) else None


@rule(
    "NPU414",
    "gradcheck",
    on=cst.Call,
    words=("gradcheck",),
    fix=FixLevel.NONE,
    why="gradcheck needs double precision, which the NPU has not: run it with tensors on the CPU. "
    "The float64 of this file was left as it is",
    examples=(
        report("from torch.autograd import gradcheck\nok = gradcheck(f, x)"),
        report("ok = torch.autograd.gradgradcheck(f, x.double())"),
        leave("ok = self.gradcheck(f, x)"),
    ),
)
def gradcheck(node: cst.Call, site: Site) -> Report | None:
    name = site.name(node.func) or ""
    found = name.startswith("torch.") and name.endswith(("gradcheck", ".gradgradcheck"))
    return Report() if found else None


@rule(
    "NPU420",
    "complex128",
    on=(cst.Attribute, cst.Name),
    words=("complex128", "cdouble"),
    fix=FixLevel.NONE,
    missed_by_shim=True,
    quiet=True,
    why="complex128 runs on the slow AI CPU of the NPU, where it runs at all: use complex64, or "
    "compute this on the CPU",
    examples=(
        report("x = x.to(torch.complex128)"),
        report("x = torch.zeros(3, dtype=torch.cdouble)"),
        leave("ok = x.dtype == torch.complex128"),
        leave("x = torch.zeros(3, dtype=torch.complex128, device='cpu')"),
        leave("x = np.complex128(1)"),
    ),
)
def complex128(node: cst.Attribute | cst.Name, site: Site) -> Report | None:
    if site.name(node) not in _COMPLEX or not is_spelled(node, site):
        return None
    return Report() if casts(node, site) else None

"""``x.cuda(…)``, ``x.is_cuda`` and integer devices."""

from __future__ import annotations

import ast

import libcst as cst

from cuda2npu.rule import Fix, FixLevel, Report, Site, leave, report, rewrite, rule
from cuda2npu_codemods.devices import is_negated
from cuda2npu_codemods.expressions import FOREIGN_HEADS, terminal
from cuda2npu_codemods.guards import guards_kernel, guards_kernel_import
from cuda2npu_codemods.receivers import is_own, is_torch, may_be_own
from cuda2npu_codemods.scripted import is_scripted

_NPU = cst.Name("npu")
_KEYWORDS = frozenset(("device", "non_blocking", "async", "memory_format"))
"""What ``cuda()`` of torch's tensors, modules and storages can be given by name."""
_BATCH = {
    "data.py": "class Batch:\n    def cuda(self):\n"
    "        self.x = self.x.cuda()\n        return self"
}


def is_foreign(site: Site, node: cst.BaseExpression) -> bool:
    """Whether an expression belongs to a package with a CUDA interface of its own."""
    name = site.name(node)
    return name is not None and name.partition(".")[0] in FOREIGN_HEADS


def _is_module(site: Site, node: cst.BaseExpression) -> bool:
    """``import m`` and then ``m.cuda()``: a function of that module, not a tensor's method."""
    if not isinstance(node, cst.Name):
        return False
    return (
        site.is_bound(node.value) and site.name(node) is not None and site.file.imports(node.value)
    )


def _inside_own_cuda(site: Site) -> bool:
    """Whether the statement stands in a class that defines ``cuda`` itself."""
    return any(
        isinstance(scope, ast.ClassDef)
        and any(getattr(member, "name", None) == "cuda" for member in scope.body)
        for scope in site.enclosing
    )


def _is_super(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Call) and terminal(node.func) == "super"


@rule(
    "NPU101",
    "tensor-cuda-call",
    on=cst.Call,
    words=("cuda",),
    fix=FixLevel.SAFE,
    why=".cuda() needs a CUDA build of torch; torch_npu adds .npu() with the same arguments to "
    "tensors, modules and storages",
    examples=(
        rewrite("model = Net().cuda()", "model = Net().npu()"),
        rewrite(
            "x = x.cuda(args.gpu, non_blocking=True)", "x = x.npu(args.gpu, non_blocking=True)"
        ),
        rewrite("y = f(x.cuda(device=d)).cuda()", "y = f(x.npu(device=d)).npu()"),
        rewrite("map_location = lambda s, l: s.cuda(1)", "map_location = lambda s, l: s.npu(1)"),
        leave("import tvm\ntarget = tvm.target.cuda()"),
        report("quantizer.cuda(weight, meta=meta, device=keys.device)"),
        rewrite(
            "from data import Batch\ndef f(batch, x): return x.unsqueeze(0).cuda()",
            "from data import Batch\ndef f(batch, x): return x.unsqueeze(0).npu()",
            beside=_BATCH,
        ),
        leave("from data import Batch\nb = Batch().cuda()", beside=_BATCH),
        leave("class G:\n    def cuda(self): return self\n    def f(self): self.cuda()"),
        leave(
            "class G:\n    def cuda(self): return move(self.x.cuda())\n"
            "    def npu(self): return move(self.x.npu())"
        ),
        rewrite(
            "import torch\nclass G:\n    def cuda(self): return self\nx = torch.ones(2).cuda()",
            "import torch\nimport torch_npu  # noqa: F401\n"
            "class G:\n    def cuda(self): return self\nx = torch.ones(2).npu()",
        ),
    ),
)
def tensor_cuda_call(node: cst.Call, site: Site) -> Fix | Report | None:
    func = node.func
    if not isinstance(func, cst.Attribute) or func.attr.value != "cuda":
        return None
    if is_foreign(site, func.value) or _is_module(site, func.value) or is_scripted(site):
        return None
    edits = {func.attr: _NPU}
    if _is_super(func.value):
        return Fix(edits, at=func.attr)
    if is_own(site, "cuda", func.value) or _is_side_of_twin(site):
        return None  # the class's own method is converted, and goes on to be called
    unknown = _unknown_keyword(node)
    if unknown is not None:
        return Report(
            f"nothing of torch has a cuda() that takes {unknown}=, so that this one is another "
            "library's: look for what moves to the NPU there",
            at=func.attr,
        )
    owner = _owner(site, "cuda", func.value)
    if owner is None:
        return Fix(edits, at=func.attr)
    if _inside_own_cuda(site) and site.code(func.value) == "self":
        return None
    return Fix(
        edits,
        f"{owner} defines its own cuda(), and this may be one: if it is, give that class an "
        "npu() (for example `npu = cuda`); then run with --unsafe",
        level=FixLevel.UNSAFE,
        at=func.attr,
    )


def _unknown_keyword(call: cst.Call) -> str | None:
    names = (arg.keyword.value for arg in call.args if arg.keyword is not None)
    return next((name for name in names if name not in _KEYWORDS), None)


def _is_side_of_twin(site: Site) -> bool:
    """Whether this is the ``cuda`` of a class that has an ``npu`` of its own beside it."""
    if len(site.enclosing) < 2:
        return False
    function, owner = site.enclosing[:2]
    names = {m.name for m in getattr(owner, "body", ()) if isinstance(m, ast.FunctionDef)}
    return isinstance(owner, ast.ClassDef) and (
        getattr(function, "name", "") == "cuda" and "npu" in names
    )


def _owner(site: Site, method: str, node: cst.BaseExpression) -> str | None:
    """In words, the class whose own method may be meant; None when torch's is."""
    owner = may_be_own(site, method, node)
    if owner is not None:
        return f"the class {owner.name} in {owner.path}"
    alone = not site.file.project.here  # nothing but the file itself is known
    if alone and site.file.defines_method(method) and not is_torch(site, node):
        return "a class here"
    return None


@rule(
    "NPU102",
    "tensor-cuda-reference",
    on=cst.Attribute,
    words=("cuda",),
    fix=FixLevel.SAFE,
    why="the method cuda is handed on without a call; on the NPU it is npu",
    examples=(
        rewrite("xs = map(torch.Tensor.cuda, xs)", "xs = map(torch.Tensor.npu, xs)"),
        rewrite("xs = list(map(lambda t: t.cuda, xs))", "xs = list(map(lambda t: t.npu, xs))"),
        rewrite(
            "move = nn.Module.cuda\nimport torch.nn as nn",
            "move = nn.Module.npu\nimport torch.nn as nn\nimport torch_npu  # noqa: F401",
        ),
        rewrite("move = model.cuda\nmove()", "move = model.npu\nmove()"),
        leave("use = args.cuda\nif use: pass"),
        leave("from lib import gpu\nmove = gpu.cuda\nmove()"),
        leave("if args.cuda: pass"),
        leave("f(opt.cuda, self.cuda)"),
        leave("self.cuda = True"),
    ),
)
def tensor_cuda_reference(node: cst.Attribute, site: Site) -> Fix | None:
    if node.attr.value != "cuda":
        return None
    parent = site.parent(node)
    if isinstance(parent, cst.Call) and parent.func is node:
        return None
    call = site.parent(parent) if isinstance(parent, cst.Arg) else None
    if isinstance(call, cst.Call) and terminal(call.func) == "wraps":
        return None  # the decorated method is an own cuda()
    if site.name(node.value) in ("torch.Tensor", "torch.nn.Module", "torch.nn.modules.Module"):
        return Fix({node.attr: _NPU})
    if site.file.stores_attribute("cuda") or _owner(site, "cuda", node.value):
        return None
    if is_foreign(site, node.value) or site.name(node) == "torch.cuda":
        return None
    handed_on = _is_handed_on(site, node) or _is_only_called(site, node)
    return Fix({node.attr: _NPU}) if handed_on else None


def _comes_from_import(site: Site, node: cst.BaseExpression) -> bool:
    """Whether an import brings what a chain begins with, and not a variable."""
    name = site.name(node)
    head = site.code(node).partition(".")[0]
    return name is not None and site.is_bound(head) and not head.startswith("torch")


def _is_only_called(site: Site, node: cst.Attribute) -> bool:
    """``move = model.cuda`` where the file only ever calls ``move``."""
    holder = site.parent(node)
    target = holder.targets[0].target if isinstance(holder, cst.Assign) else None
    if not isinstance(target, cst.Name) or site.binding(target.value) is None:
        return False
    if _comes_from_import(site, node.value):
        return False
    nodes = list(ast.walk(site.file.tree))
    called = {id(call.func) for call in nodes if isinstance(call, ast.Call)}
    reads = [
        id(name) in called
        for name in nodes
        if isinstance(name, ast.Name) and name.id == target.value and isinstance(name.ctx, ast.Load)
    ]
    return bool(reads) and all(reads)


def _is_handed_on(site: Site, node: cst.Attribute) -> bool:
    """``map(x.cuda, …)`` and ``lambda t: t.cuda`` cannot be about a flag."""
    parent = site.parent(node)
    if isinstance(parent, cst.Lambda):
        names = {parameter.name.value for parameter in parent.params.params}
        return isinstance(node.value, cst.Name) and node.value.value in names
    call = site.parent(parent) if isinstance(parent, cst.Arg) else None
    return (
        isinstance(call, cst.Call)
        and terminal(call.func) in ("map", "tree_map", "_apply", "apply_to_sample")
        and call.args[0] is parent
    )


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
        leave(
            "from graphs import Graph\ndef f(g: Graph): return g.is_cuda",
            beside={"graphs.py": "class Graph:\n    @property\n    def is_cuda(self): return 1"},
        ),
        leave("if x.is_cuda:\n    y = ext_cuda.forward(x)"),
    ),
)
def is_cuda(node: cst.Attribute, site: Site) -> Fix | None:
    if not _is_tensor_property(node, site) or guards_kernel(site, is_negated(node, site)):
        return None
    if is_scripted(site):
        return None
    edits = {node.attr: cst.Name("is_npu")}
    owner = may_be_own(site, "is_cuda", node.value)
    if owner is not None and not _is_used_as_tensor(node.value, site):
        return Fix(
            edits,
            f"the class {owner.name} in {owner.path} defines its own is_cuda, and this may be "
            "one: if it is a tensor, write is_npu, or run with --unsafe",
            level=FixLevel.UNSAFE,
        )
    name = site.name(node.value)
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
    if is_foreign(site, node.value):
        return False
    if is_own(site, "is_cuda", node.value) or is_torch(site, node.value):
        return is_torch(site, node.value)
    own = site.file.stores_attribute("is_cuda") or site.file.defines_method("is_cuda")
    return not own or _is_used_as_tensor(node.value, site)


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
    "NPU104",
    "kernel-guard-is-cuda",
    on=cst.Attribute,
    words=("is_cuda",),
    fix=FixLevel.NONE,
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
    return Report() if guards_kernel(site, is_negated(node, site)) else None


@rule(
    "NPU105",
    "kernel-guard-available",
    on=cst.Attribute,
    words=("cuda",),
    fix=FixLevel.NONE,
    quiet=True,
    why="torch.cuda.is_available() guards the import or build of a CUDA kernel and was left, so "
    "that the portable branch runs on the NPU; check that there is one, or port the kernel",
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
    return Report() if guards_kernel_import(site) else None


@rule(
    "NPU109",
    "own-cuda-method",
    on=cst.FunctionDef,
    words=("def cuda",),
    fix=FixLevel.NONE,
    why="this class has a cuda() of its own, which is left; a call in another file that may be "
    "about one is not edited, so give the class an npu() too, for example `npu = cuda` below the "
    "method, and run again",
    examples=(
        report("class Batch:\n    def cuda(self):\n        return self"),
        leave("class Batch:\n    def cuda(self):\n        return self\n    npu = cuda"),
        leave("def cuda():\n    return True"),
    ),
)
def own_cuda_method(node: cst.FunctionDef, site: Site) -> Report | None:
    owner = next(iter(site.enclosing), None)
    if node.name.value != "cuda" or not isinstance(owner, ast.ClassDef):
        return None
    if any(isinstance(d.decorator, cst.Name) for d in node.decorators):
        return None  # a property is a flag
    has_npu = any(
        isinstance(inner, (ast.Name, ast.FunctionDef))
        and "npu" in (getattr(inner, "id", ""), getattr(inner, "name", ""))
        for member in owner.body
        for inner in ast.walk(member)
    )
    return None if has_npu else Report(at=node.name)

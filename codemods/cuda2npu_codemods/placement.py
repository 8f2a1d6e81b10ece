"""``x.cuda(…)`` and ``x.cuda`` handed on."""

from __future__ import annotations

import ast

import libcst as cst

from cuda2npu.rule import Fix, FixLevel, Report, Site, leave, report, rewrite, rule
from cuda2npu_codemods.expressions import FOREIGN_HEADS, last_name, terminal
from cuda2npu_codemods.given_devices import is_given_device
from cuda2npu_codemods.kernels import imported
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


def _is_quantized(site: Site, node: cst.BaseExpression) -> bool:
    """Whether the file assigns a weight of bitsandbytes to the expression."""
    if not site.file.imports("bitsandbytes"):
        return False
    name = site.code(node)
    known = imported(site.file.tree)
    return any(
        known.get(ast.unparse(inner.value.func).partition(".")[0]) == "bitsandbytes"
        for inner in ast.walk(site.file.tree)
        if isinstance(inner, ast.Assign) and isinstance(inner.value, ast.Call)
        if any(ast.unparse(target) == name for target in inner.targets)
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
        rewrite(
            "import torch\nd = torch.device('cuda:0')\nnet = net.cuda(d)",
            "import torch\nimport torch_npu  # noqa: F401\n"
            "d = torch.device('npu:0')\nnet = net.to(d)",
        ),
        rewrite(
            "net.cuda(device=f'cuda:{i}', non_blocking=True)",
            "net.to(device=f'npu:{i}', non_blocking=True)",
        ),
        rewrite(
            "import torch\nclass T:\n    def __init__(self, net):\n"
            "        self.device = torch.device('cuda')\n        self.net = net.cuda(self.device)",
            "import torch\nimport torch_npu  # noqa: F401\nclass T:\n"
            "    def __init__(self, net):\n        self.device = torch.device('npu')\n"
            "        self.net = net.to(self.device)",
        ),
        rewrite("def f(net, d=None): net.cuda(d)", "def f(net, d=None): net.npu(d)"),
        leave("import tvm\ntarget = tvm.target.cuda()"),
        report("quantizer.cuda(weight, meta=meta, device=keys.device)"),
        report(
            "import bitsandbytes as bnb\nself.weight = bnb.nn.Params4bit(w)\nself.weight.cuda(0)"
        ),
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
    if _is_quantized(site, func.value):
        return Report(
            "a weight of bitsandbytes is quantized by its own cuda(), which npu() would not do: "
            "hand the device to its to(), which recent releases quantize in for any device",
            at=func.attr,
        )
    unknown = _unknown_keyword(node)
    if unknown is not None:
        return Report(
            f"nothing of torch has a cuda() that takes {unknown}=, so that this one is another "
            "library's: look for what moves to the NPU there",
            at=func.attr,
        )
    owner = owner_of(site, "cuda", func.value)
    if owner is None:
        if is_given_device(site, node):
            return Fix({func.attr: cst.Name("to")}, _TO, at=func.attr)
        return Fix(edits, at=func.attr)
    if _inside_own_cuda(site) and site.code(func.value) == "self":
        return None
    return Fix(
        edits,
        f"{owner} defines its own cuda(), and this may be one: if it is, give that class an "
        "npu(), for example `npu = cuda` below the method, and run again; if it is none, run with "
        "--unsafe",
        level=FixLevel.UNSAFE,
        at=func.attr,
    )


_TO = (
    ".cuda() needs a CUDA build of torch; of torch_npu's .npu(), that of modules takes a number "
    "alone, and .to() a device"
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


def owner_of(site: Site, method: str, node: cst.BaseExpression) -> str | None:
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
    if site.file.stores_attribute("cuda") or owner_of(site, "cuda", node.value):
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
        report("class Mixin:\n    @override\n    def cuda(self):\n        return self"),
        leave("class Case:\n    @property\n    def cuda(self):\n        return False"),
    ),
)
def own_cuda_method(node: cst.FunctionDef, site: Site) -> Report | None:
    owner = next(iter(site.enclosing), None)
    if node.name.value != "cuda" or not isinstance(owner, ast.ClassDef):
        return None
    decorators = getattr(site.statement, "decorator_list", ())
    if any((last_name(decorator) or "").endswith("property") for decorator in decorators):
        return None  # a property is a flag
    has_npu = any(
        isinstance(inner, (ast.Name, ast.FunctionDef))
        and "npu" in (getattr(inner, "id", ""), getattr(inner, "name", ""))
        for member in owner.body
        for inner in ast.walk(member)
    )
    return None if has_npu else Report(at=node.name)

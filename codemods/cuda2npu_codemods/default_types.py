"""``torch.set_default_tensor_type``: torch refuses every NPU type there, so the default device
takes its place.

Source: torch 2.13 with torch_npu 2.13, where ``set_default_tensor_type("torch.npu.FloatTensor")``
raises "only floating-point types are supported as the default type".
"""

from __future__ import annotations

import ast

import libcst as cst

from cuda2npu.rule import Fix, FixLevel, Report, Site, leave, report, rewrite, rule
from cuda2npu_codemods.expressions import last_name, string

SETTER = "torch.set_default_tensor_type"
_DTYPES = {"HalfTensor": "torch.float16", "BFloat16Tensor": "torch.bfloat16"}


def sets_default_type(site: Site, node: cst.CSTNode) -> bool:
    """Whether the node stands in the argument of ``set_default_tensor_type``."""
    for ancestor in site.ancestors(node):
        if isinstance(ancestor, cst.Call):
            return site.name(ancestor.func) == SETTER
    return False


def _tensor_type(site: Site, node: cst.BaseExpression) -> str | None:
    """``torch.cuda.FloatTensor``, given as a name or a string."""
    return string(node) or site.name(node)


def _device(site: Site, node: cst.BaseExpression) -> cst.BaseExpression | None:
    """The default device that a float32 tensor type stands for, as a literal."""
    if isinstance(node, cst.IfExp):
        body, orelse = _device(site, node.body), _device(site, node.orelse)
        return node.with_changes(body=body, orelse=orelse) if body and orelse else None
    quote = node.quote if isinstance(node, cst.SimpleString) else '"'
    devices = {"torch.cuda.FloatTensor": "npu", "torch.FloatTensor": "cpu"}
    device = devices.get(_tensor_type(site, node) or "")
    return cst.SimpleString(f"{quote}{device}{quote}") if device else None


def _with_dtype(site: Site, call: cst.Call) -> cst.Call | None:
    """``set_default_dtype(torch.float16)`` for a half-precision CUDA type."""
    name = _tensor_type(site, call.args[0].value) or ""
    dtype = _DTYPES.get(name.removeprefix("torch.cuda."))
    if dtype is None or not name.startswith("torch.cuda."):
        return None
    return cst.Call(site.spell("torch.set_default_dtype"), [cst.Arg(site.spell(dtype))])


_WHY = (
    "torch refuses NPU types in set_default_tensor_type; set_default_device takes its place. "
    "As before, everything created without a device lands on it, in DataLoader workers too"
)


@rule(
    "NPU118",
    "default-tensor-type",
    on=cst.Call,
    words=("set_default_tensor_type",),
    fix=FixLevel.SAFE,
    missed_by_shim=True,
    why=_WHY,
    examples=(
        rewrite(
            "torch.set_default_tensor_type('torch.cuda.FloatTensor')",
            "torch.set_default_device('npu')",
        ),
        rewrite(
            "torch.set_default_tensor_type(torch.cuda.FloatTensor)",
            'torch.set_default_device("npu")',
        ),
        rewrite(
            "torch.set_default_tensor_type(torch.cuda.FloatTensor if gpu else torch.FloatTensor)",
            'torch.set_default_device("npu" if gpu else "cpu")',
        ),
        rewrite(
            "if gpu:\n    torch.set_default_tensor_type(torch.cuda.HalfTensor)",
            "if gpu:\n    torch.set_default_dtype(torch.float16)\n"
            '    torch.set_default_device("npu")',
        ),
        rewrite(
            "torch.set_default_tensor_type(torch.cuda.FloatTensor)\n"
            "torch.set_default_tensor_type('torch.FloatTensor')",
            "torch.set_default_device(\"npu\")\ntorch.set_default_device('cpu')",
        ),
        leave("torch.set_default_tensor_type(torch.FloatTensor)"),
    ),
)
def default_tensor_type(node: cst.Call, site: Site) -> Fix | None:
    if site.name(node.func) != SETTER or len(node.args) != 1:
        return None
    if not _says_cuda(node, site) and not all(_cuda_types(site) or [False]):
        return None
    argument = node.args[0]
    setter = site.spell("torch.set_default_device")
    device = _device(site, argument.value)
    if device is not None:
        return Fix({node.func: setter, argument.value: device})
    dtype, statement = _with_dtype(site, node), site.parent(node)
    if dtype is None or not isinstance(statement, cst.Expr):
        return None
    on_npu = cst.Call(setter, [cst.Arg(cst.SimpleString('"npu"'))])
    return Fix({statement: (cst.Expr(dtype), cst.Expr(on_npu))})


def _cuda_types(site: Site) -> list[bool]:
    """The CUDA types that the file sets: whether each is the float32 one, device and no dtype."""
    return [
        "FloatTensor" in ast.unparse(call.args[0])
        for call in ast.walk(site.file.tree)
        if isinstance(call, ast.Call)
        and len(call.args) == 1
        and last_name(call.func) == "set_default_tensor_type"
        and "cuda" in ast.unparse(call.args[0])
    ]


def _says_cuda(node: cst.Call, site: Site) -> bool:
    return "cuda" in site.code(node)


def _defaults_to_npu(site: Site) -> bool:
    """Whether the file calls ``set_default_device("npu")``, as is written for a CUDA type."""
    return any(
        isinstance(call, ast.Call)
        and last_name(call.func) == "set_default_device"
        and "npu" in ast.unparse(call)
        for call in ast.walk(site.file.tree)
    )


_RESET = (
    "this sets the default type back to the CPU's, but the default device, which takes the CUDA "
    "type's place in this file, stays the NPU: write torch.set_default_device('cpu') as well, and "
    "set_default_dtype where the type differs"
)


@rule(
    "NPU119",
    "default-tensor-type-unproven",
    on=cst.Call,
    words=("set_default_tensor_type",),
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why=_WHY + ". Write torch.set_default_dtype(…) and torch.set_default_device('npu') by hand",
    examples=(
        report("torch.set_default_tensor_type(f'torch.cuda.{kind}Tensor')"),
        report("x = torch.set_default_tensor_type(torch.cuda.HalfTensor)"),
        report(
            "torch.set_default_tensor_type(torch.cuda.HalfTensor)\n"
            "y = torch.set_default_tensor_type(torch.FloatTensor)"
        ),
        report('torch.set_default_device("npu")\ntorch.set_default_tensor_type(torch.FloatTensor)'),
        leave("torch.set_default_tensor_type('torch.cuda.FloatTensor')"),
        leave("torch.set_default_tensor_type(torch.DoubleTensor)"),
    ),
)
def default_tensor_type_unproven(node: cst.Call, site: Site) -> Report | None:
    if site.name(node.func) != SETTER:
        return None
    if not _says_cuda(node, site):
        moved = _cuda_types(site) or _defaults_to_npu(site)
        resets = moved and default_tensor_type.function(node, site) is None
        return Report(_RESET) if resets else None
    return Report() if default_tensor_type.function(node, site) is None else None

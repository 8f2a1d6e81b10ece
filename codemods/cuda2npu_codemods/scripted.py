"""What TorchScript compiles: it knows neither ``Tensor.npu()`` nor ``Tensor.is_npu``.

Source: torch 2.13 with torch_npu 2.13, where ``torch.jit.script`` of a function that calls
``x.npu()`` or reads ``x.is_npu`` raises "'Tensor' object has no attribute or method", while
``x.to("npu")`` and ``x.device.type == "npu"`` compile and answer as they should.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import libcst as cst

from cuda2npu.rule import Fix, FixLevel, Report, Site, leave, report, rewrite, rule
from cuda2npu_codemods.expressions import is_device
from cuda2npu_codemods.guards import guards_kernel
from cuda2npu_codemods.triggers import SCRIPT_WORDS

_DECORATORS = ("jit.script", "jit.script_method", "jit.export", "jit.script_if_tracing")
_BARE = ("script", "script_method")


def is_scripted(site: Site) -> bool:
    """Whether TorchScript compiles the function or method around the statement."""
    if "jit" not in site.file.text:
        return False
    function = next(iter(site.enclosing), None)
    if not isinstance(function, ast.FunctionDef):
        return False
    if any(_compiles(decorator, site) for decorator in function.decorator_list):
        return True
    around = site.enclosing[1] if len(site.enclosing) > 1 else None
    if isinstance(around, ast.ClassDef):
        if any(_compiles(decorator, site) for decorator in around.decorator_list):
            return True
        return function.name == "forward" and around.name in _handed_over(site)
    return around is None and function.name in _handed_over(site)


def _compiles(node: ast.expr, site: Site) -> bool:
    """``@torch.jit.script``, or ``@script`` where the file imports it from torch.jit."""
    name = ast.unparse(node)
    if name in _BARE:
        return site.file.imports(f"torch.jit.{name}")
    return name.endswith(tuple("." + known for known in _DECORATORS)) or name in _DECORATORS


def _handed_over(site: Site) -> set[str]:
    """Functions and classes of the file that it compiles: ``torch.jit.script(f)``, ``(Net())``."""
    return set(_arguments_of_script(site))


def _arguments_of_script(site: Site) -> Iterator[str]:
    for node in ast.walk(site.file.tree):
        if isinstance(node, ast.Call) and len(node.args) == 1 and _compiles(node.func, site):
            inner = node.args[0]
            inner = inner.func if isinstance(inner, ast.Call) else inner
            if isinstance(inner, ast.Name):
                yield inner.id


@rule(
    "NPU106",
    "scripted-cuda-call",
    on=cst.Call,
    words=SCRIPT_WORDS,
    fix=FixLevel.SAFE,
    why="TorchScript compiles this function, and knows no Tensor.npu(): .to() does the same there",
    examples=(
        rewrite(
            "import torch\n@torch.jit.script\ndef f(x: torch.Tensor):\n    return x.cuda()",
            "import torch\nimport torch_npu  # noqa: F401\n"
            '@torch.jit.script\ndef f(x: torch.Tensor):\n    return x.to("npu")',
        ),
        rewrite(
            "import torch\nclass M(torch.jit.ScriptModule):\n    @torch.jit.script_method\n"
            "    def forward(self, x):\n        return x.cuda(0, non_blocking=True)",
            "import torch\nimport torch_npu  # noqa: F401\nclass M(torch.jit.ScriptModule):\n"
            "    @torch.jit.script_method\n"
            '    def forward(self, x):\n        return x.to("npu:0", non_blocking=True)',
        ),
        rewrite(
            "import torch\ndef f(x):\n    return x.cuda()\ng = torch.jit.script(f)",
            "import torch\nimport torch_npu  # noqa: F401\n"
            'def f(x):\n    return x.to("npu")\ng = torch.jit.script(f)',
        ),
        report(
            "import torch\n@torch.jit.script\ndef f(x: torch.Tensor, i: int):\n    return x.cuda(i)"
        ),
        leave("import torch\n@torch.jit.ignore\ndef f(x):\n    return x.cuda()"),
        leave("import torch\ndef f(x):\n    return x.cuda()\ng = torch.jit.trace(f, x)"),
    ),
    source="torch 2.13 with torch_npu 2.13",
)
def scripted_cuda_call(node: cst.Call, site: Site) -> Fix | Report | None:
    func = node.func
    if not isinstance(func, cst.Attribute) or func.attr.value != "cuda" or not is_scripted(site):
        return None
    if site.name(func) == "torch.cuda":
        return None
    to = func.with_changes(attr=cst.Name("to"))
    device = site.argument(node, "device", 0)
    if device is None:
        comma = [cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))] if node.args else []
        npu = cst.Arg(cst.SimpleString('"npu"'), comma=comma[0]) if comma else _NPU_ARGUMENT
        return Fix({node: node.with_changes(func=to, args=[npu, *node.args])}, at=func.attr)
    if isinstance(device.value, cst.Integer):
        literal = cst.SimpleString(f'"npu:{site.code(device.value)}"')
        return Fix({func.attr: cst.Name("to"), device.value: literal}, at=func.attr)
    if is_device(site, device.value):
        return Fix({func.attr: cst.Name("to")}, at=func.attr)
    return Report(at=func.attr)


_NPU_ARGUMENT = cst.Arg(cst.SimpleString('"npu"'))


@rule(
    "NPU107",
    "scripted-is-cuda",
    on=cst.Attribute,
    words=SCRIPT_WORDS,
    fix=FixLevel.SAFE,
    quiet=True,
    why="TorchScript compiles this function, and knows no Tensor.is_npu: it asks the device's type",
    examples=(
        rewrite(
            "import torch\n@torch.jit.script\ndef f(x: torch.Tensor):\n"
            "    if not x.is_cuda:\n        return x",
            "import torch\nimport torch_npu  # noqa: F401\n"
            "@torch.jit.script\ndef f(x: torch.Tensor):\n"
            '    if not (x.device.type == "npu"):\n        return x',
        ),
        leave("import torch\ndef f(x):\n    return x.is_cuda"),
    ),
    source="torch 2.13 with torch_npu 2.13",
)
def scripted_is_cuda(node: cst.Attribute, site: Site) -> Fix | None:
    if node.attr.value != "is_cuda" or not is_scripted(site):
        return None
    negated = isinstance(site.parent(node), cst.UnaryOperation)
    if guards_kernel(site, negated) or isinstance(site.parent(node), cst.AssignTarget):
        return None
    kind = cst.Attribute(cst.Attribute(node.value, cst.Name("device")), cst.Name("type"))
    test = cst.Comparison(
        kind,
        [cst.ComparisonTarget(cst.Equal(), cst.SimpleString('"npu"'))],
        lpar=[cst.LeftParen()],
        rpar=[cst.RightParen()],
    )
    return Fix({node: test})


@rule(
    "NPU172",
    "scripted-device-function",
    on=cst.Attribute,
    words=("torch.cuda.", "torch.npu."),
    fix=FixLevel.NONE,
    why="TorchScript compiles this function, and knows operators for functions of torch.cuda "
    "but for none of torch.npu's: call it outside and pass the result in",
    examples=(
        report("import torch, torch_npu\n@torch.jit.script\ndef f():\n    torch.npu.synchronize()"),
        report(
            "import torch\nimport torch_npu\n@torch.jit.script\ndef f():\n"
            "    return torch.npu.current_device()"
        ),
        leave("import torch\ndef f():\n    torch.cuda.synchronize()"),
    ),
    source="torch 2.13 with torch_npu 2.13",
)
def scripted_device_function(node: cst.Attribute, site: Site) -> Report | None:
    name = site.name(node) or ""
    if not name.startswith(("torch.cuda.", "torch.npu.")) or not is_scripted(site):
        return None
    parent = site.parent(node)
    return Report() if isinstance(parent, cst.Call) and parent.func is node else None

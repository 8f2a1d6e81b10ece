"""Advice on optimizers: fused ones, and the moment at which they are built."""

from __future__ import annotations

import ast

import libcst as cst

from cuda2npu.rule import Report, Site, leave, report
from cuda2npu_codemods.advice import advice
from cuda2npu_codemods.training_loops import calls, inside, lines_of, moves, uses_device

_FUSED = {name: f"torch_npu.optim.NpuFused{name}" for name in "Adam AdamW SGD".split()} | {
    name: f"torch_npu.optim.NpuFused{name}" for name in "RMSprop Adadelta".split()
}
_WITH_FLAG = frozenset(["Adam", "AdamW", "SGD"])
"""Those whose ``fused=True`` has a kernel on the NPU; that of Adagrad falls back to the CPU."""
_FLAG_SINCE = (2, 5)
"""torch before it refuses ``fused=True`` for any device but CUDA's: see NPU531."""
_WORDS = tuple(f"{name}(" for name in _FUSED)
_START = "import torch\nmodel = Net().npu()\n"
_TRAIN = "for x, y in loader:\n    f(model(x), y).backward()\n    o.step()\n"


def _optimizer(node: cst.Call, site: Site) -> str | None:
    """The class of torch.optim that a call makes an optimizer of."""
    name = site.name(node.func) or ""
    return name.rpartition(".")[2] if name.startswith("torch.optim.") else None


@advice(
    "NPU701",
    "unfused-optimizer",
    on=cst.Call,
    words=_WORDS,
    why="torch's optimizers start several kernels for each parameter or list of them; a fused one "
    "updates all parameters with few, which counts most where the host cannot keep up",
    source="torch_npu.optim.NpuFusedAdamW and its like: https://gitcode.com/Ascend/op-plugin/blob/"
    "26.0.0/docs/zh/custom_APIs/torch_npu-optim/torch_npu-optim-NpuFusedAdamW.md; their refusal of "
    "bfloat16 and the kernels behind fused=True: the wheel of torch_npu 2.13",
    examples=(
        report(f"{_START}o = torch.optim.AdamW(model.parameters(), lr=1e-3)\n{_TRAIN}"),
        report(
            "from torch import optim\nclass Lit(LightningModule):\n"
            "    def configure_optimizers(self):\n        return optim.SGD(self.parameters())"
        ),
        leave(f"{_START}o = torch.optim.AdamW(model.parameters(), fused=True)\n{_TRAIN}"),
        leave(f"{_START}o = torch.optim.AdamW(model.parameters(), **extra)\n{_TRAIN}"),
        leave(f"{_START}o = torch.optim.SGD([latent], lr=0.1)\n{_TRAIN}"),
        leave(f"{_START}o = torch.optim.Adagrad(model.parameters())\n{_TRAIN}"),
        report("import torch\ndef make_optimizer(ps):\n    return torch.optim.Adam(ps)"),
        leave("import torch\no = torch.optim.AdamW(model.parameters())\nprint(o)"),
        leave(f"from optimizers import AdamW\no = AdamW(model.parameters())\n{_TRAIN}"),
    ),
)
def unfused_optimizer(node: cst.Call, site: Site) -> Report | None:
    name = _optimizer(node, site)
    fused = _FUSED.get(name or "")
    if name is None or fused is None or not site.exists(fused) or not _is_used(site):
        return None
    if any(arg.star == "**" for arg in node.args) or _is_of_few(node, site):
        return None
    if any(site.argument(node, chosen) for chosen in ("fused", "foreach", "capturable")):
        return None
    vendor = (
        f"{fused} updates all parameters at once, if they are float32 or float16 (it refuses "
        "bfloat16), on the NPU before it is built, and stay where they are"
    )
    release = tuple(int(part) for part in site.options.torch_npu.split(".")[:2])
    if name in _WITH_FLAG and release >= _FLAG_SINCE:
        return Report(
            f"fused=True makes {name} one kernel, bfloat16 included; {vendor}", at=node.func
        )
    return Report(vendor, at=node.func)


def _is_of_few(node: cst.Call, site: Site) -> bool:
    """Whether an optimizer is for a few tensors that are listed."""
    given = site.argument(node, "params", 0)
    elements = given.value.elements if given and isinstance(given.value, cst.List) else ()
    return any(isinstance(element.value, cst.Name) for element in elements)


def _is_used(site: Site) -> bool:
    """Whether the file speaks of an accelerator, or makes optimizers for others that do."""
    return uses_device(site) or any("optim" in getattr(n, "name", "") for n in site.enclosing)


@advice(
    "NPU702",
    "optimizer-before-move",
    on=cst.Call,
    words=("parameters()",),
    why="the optimizer is built before its model is moved: torch asks for the other order, and "
    "torch_npu's fused optimizers need it, because they keep the storage of the parameters. Move "
    "the model first",
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.cuda",
    examples=(
        report(
            "import torch\nmodel = Net()\no = torch.optim.SGD(model.parameters())\n"
            "model = model.to(device)"
        ),
        report(
            "import torch\ndef main():\n    net = Net()\n"
            "    o = torch.optim.Adam(net.parameters())\n    if gpu:\n        net.cuda()"
        ),
        leave("import torch\nmodel.npu()\no = torch.optim.SGD(model.parameters())\nmodel.cuda()"),
        leave("import torch\no = torch.optim.SGD(model.parameters())\nmodel.to(torch.float16)"),
        leave("import torch\no = torch.optim.SGD(model.parameters())\nmodel.to('cpu')"),
        leave("import torch\no = torch.optim.SGD(a.parameters())\nb.cuda()"),
    ),
)
def optimizer_before_move(node: cst.Call, site: Site) -> Report | None:
    if _optimizer(node, site) is None:
        return None
    function = site.enclosing[0] if site.enclosing else site.file.tree
    built = lines_of(site.statement)[1]
    for model in _models(site.statement):
        earlier = [
            call for call in calls(function) if call.lineno <= built and _moved(call) == model
        ]
        later = [call for after in site.following for call in _all_calls(after)]
        if not earlier and model in map(_moved, later):
            return Report(at=node.func)
    return None


def _all_calls(statement: ast.stmt) -> list[ast.Call]:
    return [] if isinstance(statement, (ast.FunctionDef, ast.ClassDef)) else list(calls(statement))


def _models(statement: ast.AST) -> set[str]:
    """What the statement takes the parameters of, as it is written."""
    return {
        ast.unparse(node.func.value)
        for node in inside(statement)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "parameters"
    }


def _moved(call: ast.Call) -> str | None:
    """What a call moves to an accelerator, as it is written."""
    if not moves(call) or not isinstance(call.func, ast.Attribute):
        return None
    return ast.unparse(call.func.value)

"""Advice on optimizers: fused ones, and the moment at which they are built."""

from __future__ import annotations

import ast

import libcst as cst

from cuda2npu.rule import Report, Site, leave, report
from cuda2npu_codemods.advice import advice
from cuda2npu_codemods.fused_scaling import makes_scaler
from cuda2npu_codemods.training_loops import (
    calls,
    inside,
    lines_of,
    moves,
    names_accelerator,
    root,
    uses_device,
)

_FUSED = {name: f"torch_npu.optim.NpuFused{name}" for name in "Adam AdamW SGD".split()} | {
    name: f"torch_npu.optim.NpuFused{name}" for name in "RMSprop Adadelta".split()
}
_TAKEN = {
    "Adam": "lr betas eps weight_decay amsgrad",
    "AdamW": "lr betas eps weight_decay amsgrad",
    "SGD": "lr momentum dampening weight_decay nesterov",
    "RMSprop": "lr alpha eps weight_decay momentum centered",
    "Adadelta": "lr rho eps weight_decay",
}
"""The options of torch's optimizers that the vendor's take, too; they raise on others."""
_WITH_FLAG = frozenset(["Adam", "AdamW", "SGD"])
"""Those whose ``fused=True`` has a kernel on the NPU; that of Adagrad falls back to the CPU."""
_CHOSEN = ("fused", "foreach", "capturable", "differentiable")
"""Options that settle how it computes; ``differentiable`` goes with no fused kernel."""
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
        report(
            f"{_START}s = torch.npu.amp.GradScaler()\n"
            f"o = torch.optim.AdamW(model.parameters(), lr=1e-3)\n{_TRAIN}"
        ),
        leave(
            f"{_START}s = torch.npu.amp.GradScaler()\n"
            f"o = torch.optim.AdamW(model.parameters(), maximize=True)\n{_TRAIN}"
        ),
        leave(f"{_START}o = torch.optim.AdamW(model.parameters(), fused=True)\n{_TRAIN}"),
        leave(f"{_START}o = torch.optim.AdamW(model.parameters(), **extra)\n{_TRAIN}"),
        leave(f"{_START}o = torch.optim.SGD(model.parameters(), 1, differentiable=True)\n{_TRAIN}"),
        report(f"{_START}o = torch.optim.Adam(model.parameters(), maximize=True)\n{_TRAIN}"),
        leave(f"{_START}o = torch.optim.RMSprop(model.parameters(), maximize=True)\n{_TRAIN}"),
        leave(
            "import torch\nother = Net().npu()\ndef fit():\n    m = torch.nn.Linear(2, 2)\n"
            "    o = torch.optim.Adam(m.parameters())\n    m(x).sum().backward()"
        ),
        report(
            "import torch\nother = Net().npu()\ndef fit():\n    m = torch.nn.Linear(2, 2)\n"
            "    o = torch.optim.Adam(m.parameters())\n    train(m, o)"
        ),
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
    if any(site.argument(node, chosen) for chosen in _CHOSEN) or _stays_on_host(node, site):
        return None
    vendor = (
        f"{fused} updates all parameters at once, if they are float32 or float16 (it refuses "
        "bfloat16), on the NPU before it is built, and stay where they are"
    )
    given = {arg.keyword.value for arg in node.args if arg.keyword}
    is_taken = given <= {"params", *_TAKEN[name].split()}
    release = tuple(int(part) for part in site.options.torch_npu.split(".")[:2])
    if name in _WITH_FLAG and release >= _FLAG_SINCE and not makes_scaler(site):
        flag = f"fused=True makes {name} one kernel, bfloat16 included"
        return Report(f"{flag}; {vendor}" if is_taken else flag, at=node.func)
    return Report(vendor, at=node.func) if is_taken else None


def _is_of_few(node: cst.Call, site: Site) -> bool:
    """Whether an optimizer is for a few tensors that are listed."""
    given = site.argument(node, "params", 0)
    elements = given.value.elements if given and isinstance(given.value, cst.List) else ()
    return any(isinstance(element.value, cst.Name) for element in elements)


def _stays_on_host(node: cst.Call, site: Site) -> bool:
    """Whether the model is made here of what moves nothing, and neither moved nor handed on."""
    models = {part for part in _models(site.statement) if part.isidentifier()}
    name = models.pop() if len(models) == 1 else ""
    made = site.binding(name) if name else None
    if not isinstance(made, ast.Call) or site.argument(node, "params", 0) is None:
        return False
    function = site.enclosing[0] if site.enclosing else site.file.tree
    nodes = list(ast.walk(function))
    used_up = {id(part.value) for part in nodes if isinstance(part, ast.Attribute)}
    used_up |= {id(part.func) for part in nodes if isinstance(part, ast.Call)}
    reads = [part for part in nodes if isinstance(part, ast.Name) and part.id == name]
    moving = (part for part in nodes if isinstance(part, ast.Call) and moves(part))
    moved = any(root(call.func) == name for call in moving)
    handed_on = any(isinstance(r.ctx, ast.Load) and id(r) not in used_up for r in reads)
    return not (moved or handed_on or names_accelerator(made)) and _makes_on_host(made, site)


def _makes_on_host(made: ast.Call, site: Site) -> bool:
    """Whether a call makes a module of torch, or of a class of the file that names no device."""
    head, *rest = ast.unparse(made.func).split(".")
    if ".".join((site.meaning(head) or "", *rest)).startswith("torch.nn."):
        return True
    owners = [n for n in site.file.tree.body if isinstance(n, ast.ClassDef) and n.name == head]
    return not rest and bool(owners) and not any(map(names_accelerator, owners))


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

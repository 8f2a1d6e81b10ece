"""torch's fused optimizers beside the GradScaler of torch_npu, which steps them in another way.

Source: the wheel of torch_npu 2.13, npu/amp/grad_scaler.py: ``step`` passes ``grad_scaler=`` to
every optimizer with ``_step_supports_amp_scaling``; torch's fused ones have the mark, and since
torch 2.1 their ``step`` takes no such argument and raises TypeError.
"""

from __future__ import annotations

import ast

import libcst as cst

from cuda2npu.rule import Fix, FixLevel, Report, Site, Target, leave, report, rewrite, rule
from cuda2npu_codemods.expressions import meaning_of, terminal

_SCALERS = frozenset(
    f"{package}.{module}.GradScaler"
    for package in ("torch.cuda", "torch.npu", "torch_npu.npu")
    for module in ("amp", "amp.grad_scaler")
)
_OPTIMIZERS = frozenset("Adam AdamW SGD Adagrad".split())
_SCALER = "s = torch.cuda.amp.GradScaler()"
_NPU_SCALER = "import torch_npu  # noqa: F401\ns = torch.npu.amp.GradScaler()"
_BY_HAND = (
    "torch_npu's GradScaler, which this file makes, cannot step an optimizer of torch that is "
    "fused and raises TypeError where it is enabled: leave fused out then, or take one of "
    "torch_npu.optim's NpuFused…"
)


@rule(
    "NPU207",
    "fused-optimizer-with-grad-scaler",
    on=cst.Call,
    words=("fused=",),
    fix=FixLevel.SAFE,
    why="torch_npu's GradScaler, which this file makes, cannot step an optimizer of torch that is "
    "fused and raises TypeError. Without fused=True the result is the same but for rounding; "
    "torch_npu.optim's NpuFused… optimizers are fused and work with it",
    examples=(
        rewrite(
            f"import torch\n{_SCALER}\no = torch.optim.AdamW(ps, lr=1e-3, fused=True)",
            f"import torch\n{_NPU_SCALER}\no = torch.optim.AdamW(ps, lr=1e-3)",
        ),
        rewrite(
            f"import torch\n{_NPU_SCALER}\no = torch.optim.SGD(ps, fused=True, lr=1e-3)",
            f"import torch\n{_NPU_SCALER}\no = torch.optim.SGD(ps, lr=1e-3)",
        ),
        report(f"import torch\n{_NPU_SCALER}\no = torch.optim.AdamW(ps, fused=fused)"),
        report(f"import torch\n{_NPU_SCALER}\nextra = dict(fused=True) if fused else dict()"),
        leave("import torch\no = torch.optim.AdamW(ps, fused=True)"),
        leave(
            'import torch\ns = torch.amp.GradScaler("npu")\no = torch.optim.AdamW(ps, fused=True)'
        ),
        leave(f"import torch\n{_NPU_SCALER}\no = torch.optim.AdamW(ps, fused=False)"),
        leave(f"import torch\n{_NPU_SCALER}\nm = LayerNorm(8, fused=True)"),
    ),
    source="torch_npu 2.13, npu/amp/grad_scaler.py; run on the simulated NPU",
    targets=(Target.NPU, Target.SHIM),
)
def fused_optimizer_with_grad_scaler(node: cst.Call, site: Site) -> Fix | Report | None:
    flag = site.argument(node, "fused")
    if flag is None or site.code(flag.value) in ("False", "None"):
        return None
    name = site.name(node.func) or ""
    is_optimizer = name.startswith("torch.optim.") and terminal(node.func) in _OPTIMIZERS
    if not (is_optimizer or (terminal(node.func) == "dict" and len(node.args) == 1)):
        return None
    if not makes_scaler(site):
        return None
    if is_optimizer and site.code(flag.value) == "True":
        return Fix({flag: None}, imports=())
    return Report(_BY_HAND, at=flag)


def makes_scaler(site: Site) -> bool:
    """Whether the file makes a scaler that is torch_npu's once it is converted."""
    calls = (node for node in ast.walk(site.file.tree) if isinstance(node, ast.Call))
    return any(meaning_of(call.func, site) in _SCALERS for call in calls)

"""Advice on DistributedDataParallel."""

from __future__ import annotations

import libcst as cst

from cuda2npu.rule import Report, Site, leave, report
from cuda2npu_codemods.advice import advice

_DDP = "torch.nn.parallel.DistributedDataParallel"
_NAMES = frozenset([_DDP, "torch.nn.parallel.distributed.DistributedDataParallel"])
_START = "from torch.nn.parallel import DistributedDataParallel as DDP\n"
_SOURCE = f"https://docs.pytorch.org/docs/stable/generated/{_DDP}.html"


def _leaves_open(node: cst.Call, option: str, site: Site) -> bool:
    """Whether a call wraps a model without a word on an option."""
    known = site.name(node.func) in _NAMES and not any(arg.star for arg in node.args)
    return known and site.argument(node, option) is None


@advice(
    "NPU721",
    "ddp-gradient-copies",
    on=cst.Call,
    words=("DistributedDataParallel", "DDP"),
    why="DDP keeps the gradients twice, and copies them into its buckets and back in each step: "
    "gradient_as_bucket_view=True makes them views of the buckets. It is not for code that calls "
    "detach_() on gradients",
    source=_SOURCE,
    examples=(
        report(f"{_START}model = DDP(model, device_ids=[rank])"),
        report("import torch\nm = torch.nn.parallel.DistributedDataParallel(m)"),
        leave(f"{_START}model = DDP(model, gradient_as_bucket_view=True)"),
        leave(f"{_START}model = DDP(model, gradient_as_bucket_view=args.view)"),
        leave(f"{_START}model = DDP(model, **options)"),
        leave("from apex.parallel import DistributedDataParallel as DDP\nmodel = DDP(model)"),
    ),
)
def ddp_gradient_copies(node: cst.Call, site: Site) -> Report | None:
    is_open = _leaves_open(node, "gradient_as_bucket_view", site)
    return Report(at=node.func) if is_open else None


@advice(
    "NPU722",
    "ddp-broadcasts-buffers",
    on=cst.Call,
    words=("DistributedDataParallel", "DDP"),
    why="DDP sends the model's buffers from rank 0 to all others before each forward: with "
    "broadcast_buffers=False it does not, which is the same where no rank changes them, or "
    "SyncBatchNorm keeps them equal. Plain BatchNorm then has statistics of its own on each rank",
    source=_SOURCE,
    examples=(
        report(f"{_START}model = DDP(model, device_ids=[rank])"),
        leave(f"{_START}model = DDP(model, broadcast_buffers=False)"),
        leave(f"{_START}model = DDP(model, broadcast_buffers=True)"),
        leave(f"{_START}model = DDP(model, **options)"),
    ),
)
def ddp_broadcasts_buffers(node: cst.Call, site: Site) -> Report | None:
    return Report(at=node.func) if _leaves_open(node, "broadcast_buffers", site) else None


@advice(
    "NPU723",
    "ddp-finds-unused-parameters",
    on=cst.Call,
    words=("find_unused_parameters",),
    why="find_unused_parameters=True has DDP walk the whole graph after each forward: leave it out "
    "if every parameter gets a gradient; DDP raises if one does not. static_graph=True does "
    "without the walk where the graph is always the same",
    source=_SOURCE,
    examples=(
        report(f"{_START}model = DDP(model, find_unused_parameters=True)"),
        leave(f"{_START}model = DDP(model, find_unused_parameters=args.unused)"),
        leave(f"{_START}model = DDP(model, find_unused_parameters=False)"),
        leave(f"{_START}model = DDP(model, find_unused_parameters=True, static_graph=True)"),
        leave("model = wrap(model, find_unused_parameters=True)"),
    ),
)
def ddp_finds_unused_parameters(node: cst.Call, site: Site) -> Report | None:
    if site.name(node.func) not in _NAMES or site.argument(node, "static_graph") is not None:
        return None
    option = site.argument(node, "find_unused_parameters")
    on = option is not None and site.code(option.value) == "True"
    return Report(at=option) if on else None

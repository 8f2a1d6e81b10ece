"""Advice on how batches are loaded and get to the device."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import libcst as cst

from cuda2npu.rule import Report, Site, leave, report
from cuda2npu_codemods.advice import advice
from cuda2npu_codemods.expressions import is_device, string, terminal
from cuda2npu_codemods.training_loops import (
    Loop,
    batch_names,
    lines_of,
    loaders_of,
    loops_around,
    moves_batches,
    walk,
)

_LOADER = "from torch.utils.data import DataLoader\n"
_LOOP = "for x, y in loader:\n    x = x.to(device)\n    model(x)\n"
_DATALOADER = (
    "https://gitcode.com/Ascend/msprof-analyze/blob/master/msprof_analyze/advisor/rules/en/"
    "dataloader.yaml and https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide"
)


def _feeds(node: cst.Call, site: Site) -> bool:
    """Whether a call makes a ``DataLoader`` whose batches a loop of the file moves to a device."""
    if terminal(node.func) != "DataLoader" or any(arg.star for arg in node.args):
        return False
    if not (site.name(node.func) or "torch.").startswith("torch."):
        return False
    first, last = lines_of(site.statement)
    return any(first <= call.lineno <= last for call in _feeding(site.file.tree))


def _feeding(tree: ast.Module) -> Iterator[ast.Call]:
    for loop in walk(tree):
        if isinstance(loop, Loop) and (made := loaders_of(loop, tree)) and moves_batches(loop):
            yield from made


def _is_off(node: cst.Call, option: str, position: int, site: Site) -> bool:
    """Whether an option is left out or is plainly none, false or zero."""
    given = site.argument(node, option, position)
    return given is None or site.code(given.value) in ("None", "False", "0")


@advice(
    "NPU711",
    "loader-without-pinned-memory",
    on=cst.Call,
    words=("DataLoader(",),
    why="batches are copied to the device from pageable memory, for which each copy waits: "
    "pin_memory=True has them ready in pinned memory",
    source=_DATALOADER,
    examples=(
        report(f"{_LOADER}loader = DataLoader(data, batch_size=32, num_workers=4)\n{_LOOP}"),
        report(f"{_LOADER}loader = DataLoader(data, pin_memory=False, num_workers=4)\n{_LOOP}"),
        report(
            f"{_LOADER}def train(loader, model):\n    for batch in loader:\n"
            "        x = batch['x'].cuda()\n        model(x)\n"
            "ours = DataLoader(data, num_workers=4)\ntrain(ours, model)"
        ),
        report(f"{_LOADER}for x in DataLoader(data, num_workers=2):\n    model(x.npu())"),
        leave(f"{_LOADER}for x in DataLoader(data, num_workers=2):\n    model(x)"),
        leave(f"{_LOADER}loader = DataLoader(data, pin_memory=True)\n{_LOOP}"),
        leave(f"{_LOADER}loader = DataLoader(data, pin_memory=args.pin)\n{_LOOP}"),
        leave(f"{_LOADER}loader = DataLoader(data, **options)\n{_LOOP}"),
        leave(f"{_LOADER}loader = DataLoader(data)\nfor x in loader:\n    print(x)"),
        leave(f"{_LOADER}loader = DataLoader(data)\nfor x in loader:\n    x = x.to('cpu')"),
    ),
)
def loader_without_pinned_memory(node: cst.Call, site: Site) -> Report | None:
    return (
        Report(at=node.func)
        if _is_off(node, "pin_memory", 7, site) and _feeds(node, site)
        else None
    )


@advice(
    "NPU712",
    "loader-without-workers",
    on=cst.Call,
    words=("DataLoader(",),
    why="without num_workers the training process itself loads and prepares each batch, while the "
    "device waits: give it a few workers, and persistent_workers=True where epochs are short",
    source=_DATALOADER,
    examples=(
        report(f"{_LOADER}loader = DataLoader(data, batch_size=32, pin_memory=True)\n{_LOOP}"),
        report(f"{_LOADER}loader = DataLoader(data, num_workers=0, pin_memory=True)\n{_LOOP}"),
        leave(f"{_LOADER}loader = DataLoader(data, num_workers=4)\n{_LOOP}"),
        leave(f"{_LOADER}loader = DataLoader(data, num_workers=args.workers)\n{_LOOP}"),
        leave(f"{_LOADER}loader = DataLoader(data, **options)\n{_LOOP}"),
    ),
)
def loader_without_workers(node: cst.Call, site: Site) -> Report | None:
    return (
        Report(at=node.func)
        if _is_off(node, "num_workers", 5, site) and _feeds(node, site)
        else None
    )


_PINNED = f"{_LOADER}loader = DataLoader(data, num_workers=4, pin_memory=True)\n"


@advice(
    "NPU713",
    "blocking-copy",
    on=cst.Call,
    words=(".to(", ".cuda(", ".npu("),
    why="the loader pins its batches, but the copy waits for the device all the same: with "
    "non_blocking=True it runs beside the computation",
    source="https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html; torch_npu's own "
    "torch_npu.contrib.Prefetcher copies so",
    examples=(
        report(f"{_PINNED}for x, y in loader:\n    x = x.to(device)\n    model(x)"),
        report(f"{_PINNED}for i, b in enumerate(loader):\n    x = b['x'].cuda()\n    model(x)"),
        report(
            f"{_PINNED}for batch in loader:\n"
            "    batch = {k: v.to(device) for k, v in batch.items()}\n    model(**batch)"
        ),
        leave(f"{_PINNED}for x, y in loader:\n    x = x.to(device, non_blocking=True)"),
        leave(f"{_PINNED}for x, y in loader:\n    out = model(x).to('cpu')"),
        leave(f"{_PINNED}for x, y in loader:\n    x = x.to(torch.float16)"),
        leave(f"{_PINNED}for x, y in loader:\n    seen.to(device)"),
        leave(f"{_LOADER}loader = DataLoader(data)\nfor x, y in loader:\n    x = x.to(device)"),
    ),
)
def blocking_copy(node: cst.Call, site: Site) -> Report | None:
    if not _moves(node, site) or site.argument(node, "non_blocking") or len(node.args) > 1:
        return None
    for loop in loops_around(site):
        made = loaders_of(loop, site.file.tree)
        if made and all(map(_pins, made)):
            return Report() if _root(node, site) in batch_names(loop) else None
    return None


def _moves(node: cst.Call, site: Site) -> bool:
    """Whether a call moves what it is called on to an accelerator."""
    if not isinstance(node.func, cst.Attribute):
        return False
    if node.func.attr.value in ("cuda", "npu"):
        return True
    device = site.argument(node, "device", 0)
    if node.func.attr.value != "to" or device is None:
        return False
    text = string(device.value)
    return is_device(site, device.value) if text is None else text.startswith(("cuda", "npu"))


def _pins(call: ast.Call) -> bool:
    given = {each.arg: each.value for each in call.keywords}
    pin = given.get("pin_memory")
    return isinstance(pin, ast.Constant) and pin.value is True


def _root(node: cst.CSTNode, site: Site) -> str | None:
    """The name that an expression begins with; for one of a comprehension, what that runs over."""
    while isinstance(node, (cst.Attribute, cst.Subscript, cst.Call)):
        node = node.func if isinstance(node, cst.Call) else node.value
    if not isinstance(node, cst.Name):
        return None
    for around in site.ancestors(node):
        if isinstance(around, cst.BaseComp) and node.value in _targets(around.for_in.target):
            return _root(around.for_in.iter, site)
    return node.value


def _targets(target: cst.BaseExpression) -> set[str]:
    if isinstance(target, cst.Tuple):
        return set().union(*(_targets(element.value) for element in target.elements))
    return {target.value} if isinstance(target, cst.Name) else set()

"""Names of torch_npu that the targeted release does not have."""

from __future__ import annotations

import difflib
from functools import lru_cache

import libcst as cst

from cuda2npu.releases import RELEASES, names, releases_with
from cuda2npu.rule import FixLevel, Report, Site, leave, report, rule
from cuda2npu_codemods.occurrences import imported, is_guarded
from cuda2npu_codemods.triggers import NPU_WORDS

_COMPLETE = (
    "torch_npu.npu torch_npu.npu.amp torch_npu.npu.mstx torch_npu.npu.graphs torch_npu.npu.memory "
    "torch_npu.npu.random torch_npu.npu.streams torch_npu.npu.utils torch_npu.profiler "
    "torch_npu.profiler.profiler torch_npu.optim torch_npu.utils torch_npu.contrib "
    "torch_npu.contrib.module torch_npu.contrib.function"
).split()
"""Modules whose public names the tables list completely."""


def _canonical(name: str) -> str:
    """``torch.npu`` is the module ``torch_npu.npu``."""
    return name.replace("torch.npu", "torch_npu.npu", 1) if name.startswith("torch.npu.") else name


@lru_cache(maxsize=64)
def _members(module: str) -> tuple[str, ...]:
    found = {name[len(module) + 1 :] for name in names() if name.startswith(f"{module}.")}
    return tuple(sorted(name for name in found if "." not in name))


def missing(name: str, release: str) -> str | None:
    """The shortest part of a dotted name that the release lacks, when the tables can tell."""
    parts = _canonical(name).split(".")
    if parts[0] != "torch_npu":
        return None
    for length in range(2, len(parts) + 1):
        part, module = ".".join(parts[:length]), ".".join(parts[: length - 1])
        if parts[length - 1].startswith("_"):
            return None
        if release in releases_with(part):
            continue
        if module in _COMPLETE or (module == "torch_npu" and _is_misnamed(part)):
            return part
        return None
    return None


def _is_misnamed(name: str) -> bool:
    """Of the operators at the top some are made at run time: only a near miss is one."""
    if releases_with(name):
        return True
    last = name.partition(".")[2]
    return bool(difflib.get_close_matches(last, _members("torch_npu"), 1, 0.92))


def explanation(name: str, release: str) -> str:
    """What is known about a name that the release lacks, and which ones come near."""
    offered = releases_with(name)
    module, _, last = name.rpartition(".")
    near = [m for m in _members(module) if release in releases_with(f"{module}.{m}")]
    close = difflib.get_close_matches(last, near, 2, 0.7)
    hint = f": perhaps {' or '.join(close)} was meant" if close else ": remove it"
    if not offered:
        known = f"{RELEASES[0]} to {RELEASES[-1]}"
        return f"{name} exists in no release of torch_npu ({known}){hint}"
    order = RELEASES.index
    if order(release) < order(offered[0]):
        when = f"only from release {offered[0]} on"
    elif order(release) > order(offered[-1]):
        when = f"only up to release {offered[-1]}"
    else:
        when = f"in other releases ({', '.join(offered)})"
    return f"{name} exists {when}, not in {release}{hint if close else ''}"


@rule(
    "NPU901",
    "missing-npu-name",
    on=cst.Attribute,
    words=NPU_WORDS,
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="this name does not exist in the targeted torch_npu",
    examples=(
        report("model, opt = torch.npu.optimize(model, opt)"),
        report("import torch_npu\nd = torch_npu.npu.get_arch_list()"),
        report("torch.npu.npurt()", release="2.6.0"),
        leave("torch.npu.npurt()"),
        leave("torch.npu.synchronize()"),
        leave("import torch_npu\nx = torch_npu.npu_made_at_run_time(x)"),
        leave("if hasattr(torch.npu, 'optimize'): torch.npu.optimize(m)"),
        leave("self.npu.optimize()"),
    ),
)
def missing_npu_name(node: cst.Attribute, site: Site) -> Report | None:
    parent = site.parent(node)
    if isinstance(parent, cst.AssignTarget) or (
        isinstance(parent, cst.Attribute) and parent.value is node
    ):
        return None
    lost = missing(site.name(node) or "", site.options.torch_npu)
    if lost is None or _is_asked_for(lost, site):
        return None
    return Report(explanation(lost, site.options.torch_npu))


def _is_asked_for(name: str, site: Site) -> bool:
    """Whether the file asks ``hasattr`` for the name before it uses it."""
    last = name.rpartition(".")[2]
    return f'"{last}"' in site.file.text or f"'{last}'" in site.file.text


@rule(
    "NPU902",
    "missing-npu-import",
    on=(cst.Import, cst.ImportFrom),
    words=NPU_WORDS,
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="this import names what does not exist in the targeted torch_npu",
    examples=(
        report("from torch_npu.utils import encryption"),
        report("import torch_npu.utils.encryption"),
        report("from torch.npu import optimize"),
        leave("from torch_npu.contrib import transfer_to_npu"),
        leave("import torch_npu"),
        leave("try:\n    from torch_npu.npu import new_thing\nexcept ImportError: pass"),
    ),
)
def missing_npu_import(node: cst.Import | cst.ImportFrom, site: Site) -> Report | None:
    release = site.options.torch_npu
    lost = [part for name in imported(node) if (part := missing(name, release))]
    if not lost or is_guarded(site):
        return None
    return Report("; ".join(explanation(name, release) for name in dict.fromkeys(lost)))

"""Preference lists of devices that nothing proves to be torch's."""

from __future__ import annotations

import libcst as cst

from cuda2npu.rule import FOREIGN_PACKAGES, Fix, FixLevel, Site, leave, rewrite, rule
from cuda2npu_codemods.arguments import Use
from cuda2npu_codemods.expressions import string, strings
from cuda2npu_codemods.preferences import loops, takers, with_npu
from cuda2npu_codemods.uses import use_of


@rule(
    "NPU129",
    "device-preference-unproven",
    on=cst.SimpleString,
    words=("cuda",),
    fix=FixLevel.UNSAFE,
    quiet=True,
    why="a list of devices is looped over, and nothing in this file shows that torch takes each "
    'of them: if it does, write "npu" here, too, or run with --unsafe; left as it is, the program '
    "may choose the CPU",
    examples=(
        rewrite(
            "ORDER = ('cuda', 'mps', 'cpu')\ndef best():\n"
            "    for d in ORDER:\n        if works(d): return d",
            "ORDER = ('cuda', 'npu', 'mps', 'cpu')\ndef best():\n"
            "    for d in ORDER:\n        if works(d): return d",
        ),
        rewrite(
            "ORDER = ['cuda', 'cpu']\nfound = [LOADERS[d] for d in ORDER]",
            "ORDER = ['npu', 'cpu']\nfound = [LOADERS[d] for d in ORDER]",
        ),
        leave("ORDER = ['cuda', 'cpu']\nfor d in ORDER: print(d)"),
        leave("ORDER = ['cuda', 'cpu']\nfor d in ORDER: x.to(d)"),
        leave("ORDER = ['cuda', 'npu', 'cpu']\nfor d in ORDER: works(d)"),
        leave("import jax\nORDER = ['cuda', 'cpu']\nfor d in ORDER: jax.devices(d)"),
    ),
)
def device_preference_unproven(node: cst.SimpleString, site: Site) -> Fix | None:
    element = site.parent(node)
    container = site.parent(element) if isinstance(element, cst.Element) else None
    if string(node) != "cuda" or container is None or not isinstance(element, cst.Element):
        return None
    names = set(strings(container))
    found = takers(site, loops(site, container, _holder(site, container)))
    if "npu" in names or all(taker.head in FOREIGN_PACKAGES for taker in found):
        return None
    if use_of(site, node) not in (None, Use.BACKEND):
        return None  # NPU110's, or known not to be a device
    return Fix(with_npu(element, node, names))


def _holder(site: Site, container: cst.CSTNode) -> str | None:
    """The variable or parameter that a list is given to."""
    owner = site.parent(container)
    target: cst.CSTNode | None = None
    if isinstance(owner, cst.Assign) and len(owner.targets) == 1:
        target = owner.targets[0].target
    elif isinstance(owner, cst.AnnAssign):
        target = owner.target
    elif isinstance(owner, cst.Param):
        target = owner.name
    return target.value if isinstance(target, cst.Name) else None

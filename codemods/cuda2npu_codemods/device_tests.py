"""Comparisons with the name of a device, and whether they guard a CUDA kernel."""

from __future__ import annotations

import libcst as cst

from cuda2npu.rule import Site
from cuda2npu_codemods.expressions import strings
from cuda2npu_codemods.guards import guards_kernel
from cuda2npu_codemods.words import OTHER_ACCELERATORS


def compared_for_kernel(node: cst.CSTNode, site: Site) -> bool:
    """Whether a literal is compared with a device to guard a CUDA kernel."""
    comparison = comparison_of(node, site)
    return comparison is not None and guards_by_device(comparison, site)


def guards_by_device(comparison: cst.Comparison, site: Site) -> bool:
    """What runs on other accelerators too, ``in ("cuda", "xpu")``, is no kernel for CUDA."""
    sides = [comparison.left, *(target.comparator for target in comparison.comparisons)]
    if any(OTHER_ACCELERATORS & set(strings(side)) for side in sides):
        return False
    return guards_kernel(site, is_negated(comparison, site))


def comparison_of(node: cst.CSTNode, site: Site) -> cst.Comparison | None:
    """The comparison whose side the literal, or the container around it, is."""
    for ancestor in site.ancestors(node):
        if isinstance(ancestor, cst.Comparison):
            return ancestor
        if not isinstance(ancestor, (cst.ComparisonTarget, cst.Element, cst.Tuple, cst.List)):
            return None
    return None


def is_negated(node: cst.CSTNode, site: Site) -> bool:
    """Whether a test holds when the device is *not* CUDA: ``!=``, ``not in``, ``not …``."""
    negated = isinstance(node, cst.Comparison) and isinstance(
        node.comparisons[0].operator, (cst.NotEqual, cst.NotIn)
    )
    if isinstance(site.parent(node), cst.UnaryOperation):
        negated = not negated
    return negated

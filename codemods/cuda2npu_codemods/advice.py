"""How a rule about performance is made: it reports, is off by default, and passes over tests."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from cuda2npu.releases.chips import FAMILIES
from cuda2npu.rule import Example, FixLevel, Report, Rule, Target, rule

Advice = Callable[[Any, Any], Report | None]
WITH_OPERATORS = ("A2", "A3")
"""The families for which torch_npu documents its fused operators."""
_TEST = re.compile(r"(?:.*/)?(?:tests?/[^/]*|test_[^/]*|[^/]*_test|conftest)\.py")


def advice(
    code: str,
    name: str,
    *,
    on: type[Any] | tuple[type[Any], ...],
    words: tuple[str, ...],
    why: str,
    source: str,
    examples: tuple[Example, ...],
    chips: tuple[str, ...] = tuple(FAMILIES),
) -> Callable[[Advice], Rule]:
    """As :func:`cuda2npu.rule.rule`. Code that is slow is slow with both targets.

    ``chips`` are the families for which the advice holds, where ``--chip`` names one.
    """
    make = rule(
        code, name, on=on, words=words, why=why, source=source, examples=examples,
        fix=FixLevel.NONE, default=False, targets=(Target.NPU, Target.SHIM),
    )  # fmt: skip
    return lambda function: make(partial(_where_due, function, chips))


def _where_due(function: Advice, chips: tuple[str, ...], node: Any, site: Any) -> Report | None:
    """Nobody waits for the speed of a test, and a chip cannot run an operator that it lacks."""
    path = getattr(site, "file", site).path.replace("\\", "/")
    elsewhere = bool(site.options.chip) and site.options.chip not in chips
    return None if elsewhere or _TEST.fullmatch(path) else function(node, site)

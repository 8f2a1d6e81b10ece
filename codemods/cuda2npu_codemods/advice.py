"""How a rule about performance is made: it reports, is off by default, and passes over tests."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from cuda2npu.rule import Example, FixLevel, Report, Rule, Target, rule

Advice = Callable[[Any, Any], Report | None]
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
) -> Callable[[Advice], Rule]:
    """As :func:`cuda2npu.rule.rule`. Code that is slow is slow with both targets."""
    make = rule(
        code, name, on=on, words=words, why=why, source=source, examples=examples,
        fix=FixLevel.NONE, default=False, targets=(Target.NPU, Target.SHIM),
    )  # fmt: skip
    return lambda function: make(partial(_outside_tests, function))


def _outside_tests(function: Advice, node: Any, site: Any) -> Report | None:
    """Nobody waits for the speed of a test."""
    path = getattr(site, "file", site).path.replace("\\", "/")
    return None if _TEST.fullmatch(path) else function(node, site)

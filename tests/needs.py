"""Packages that tests need beyond those of the core."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest

ALL = "CUDA2NPU_ALL_TESTS"
"""Set by ``make test``, which installs every package: a test is then never skipped for one."""


def missing(*packages: str) -> list[str]:
    return [] if os.environ.get(ALL) else [name for name in packages if find_spec(name) is None]


def needs(*packages: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        bool(missing(*packages)), reason=f"not installed: {', '.join(missing(*packages))}"
    )

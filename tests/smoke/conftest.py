"""What the tests of the smoke stage share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from needs import missing

from cuda2npu.model import Options
from cuda2npu.smoke.stage import Report, Request, smoke
from smoke.support import PROGRAMS, TIMEOUT, Smoke


@pytest.fixture(scope="session")
def torch_npu() -> str:
    """The release that is installed; without it, what needs the NPU is skipped."""
    if missing("torch", "torch_npu"):
        pytest.skip("torch and torch_npu are not installed: pip install 'cuda2npu[smoke]'")
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        pytest.skip("there is no C compiler, which the simulated NPU is built with")
    return "2.13.0"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the programs, in which they may be changed."""
    shutil.copytree(PROGRAMS, tmp_path / "work", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "work"


@pytest.fixture
def run(torch_npu: str, folder: Path) -> Smoke:
    """Smoke a program by its name."""

    def smoked(name: str, preserve_numerics: bool = False, **options: object) -> Report:
        written_for = Options(torch_npu=torch_npu, preserve_numerics=preserve_numerics)
        request = Request(
            folder / name,
            timeout=TIMEOUT,
            options=written_for,
            **options,  # type: ignore[arg-type]
        )
        return smoke(request)

    return smoked

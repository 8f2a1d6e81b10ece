"""The commands of the documentation, run as they are written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from consoles import Step, run, steps

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PROJECT = ROOT / "fixtures" / "projects" / "landcover"

TUTORIAL = steps((DOCS / "tutorial.md").read_text(encoding="utf-8"))
SETS_UP = ("python3 -m venv ", ". venv/bin/activate", "pip install ")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A shell that finds this environment's programs, and a git that knows its user."""
    person = {"NAME": "Reader", "EMAIL": "reader@example.org"}
    identity = {f"GIT_{who}_{k}": v for who in ("AUTHOR", "COMMITTER") for k, v in person.items()}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**identity, "PATH": path, "GIT_CONFIG_GLOBAL": os.devnull, "NO_COLOR": "1"}


def _follow(page: list[Step], folder: Path, environment: dict[str, str]) -> None:
    wrong = list(run(page, folder, environment))
    assert not wrong, "\n\n".join(wrong)


@pytest.fixture
def beside_a_clone(tmp_path: Path) -> Path:
    (tmp_path / "cuda2npu").symlink_to(ROOT, target_is_directory=True)
    return tmp_path


@pytest.fixture
def in_the_project(tmp_path: Path, environment: dict[str, str]) -> Path:
    """The project of the tutorial, as the only commit of a repository."""
    start = [Step(c) for c in ("git init --quiet", "git add .", "git commit --quiet -m CUDA")]
    project = tmp_path / "landcover"
    shutil.copytree(PROJECT, project, ignore=shutil.ignore_patterns("__pycache__", "runs"))
    _follow(start, project, environment)
    return project


@pytest.fixture
def own_environment(tmp_path: Path, environment: dict[str, str]) -> dict[str, str]:
    """One that a page may install into: it sees what this test's environment has."""
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    ours, theirs = (
        Path(sysconfig.get_path("purelib", vars={"base": base})) for base in (sys.prefix, venv)
    )
    (theirs / "ours.pth").write_text(f"import site; site.addsitedir({str(ours)!r})\n")
    program = venv / "bin" / "cuda2npu"
    program.write_text('#!/bin/sh\nexec python -m cuda2npu "$@"\n')
    program.chmod(0o755)
    return {**environment, "PATH": f"{venv / 'bin'}{os.pathsep}{environment['PATH']}"}


@pytest.mark.parametrize("page", sorted(path.stem for path in (DOCS / "how-to").glob("*.md")))
def test_how_to(page: str, in_the_project: Path, own_environment: dict[str, str]) -> None:
    (in_the_project.parent / "cuda2npu").symlink_to(ROOT, target_is_directory=True)
    text = (DOCS / "how-to" / f"{page}.md").read_text(encoding="utf-8")
    _follow(steps(text), in_the_project, own_environment)


def _no_cuda_left(project: Path) -> None:
    assert (project / "train.py").read_text() != (PROJECT / "train.py").read_text()
    for path in ("tests/test_model.py", "notebooks/explore.ipynb"):
        assert ".cuda()" not in (project / path).read_text()
    assert "CUDA" not in (project / "scripts" / "train_two_gpus.sh").read_text()


def test_tutorial(beside_a_clone: Path, environment: dict[str, str]) -> None:
    """In the environment of this test, all but the three commands that set one up."""
    page = [step for step in TUTORIAL if not step.command.startswith(SETS_UP)]
    assert len(TUTORIAL) - len(page) == len(SETS_UP)
    _follow(page, beside_a_clone, environment)
    _no_cuda_left(beside_a_clone / "landcover")


@pytest.mark.slow
def test_tutorial_on_a_fresh_machine(beside_a_clone: Path, environment: dict[str, str]) -> None:
    bare = str(Path(sys.base_prefix) / "bin")
    home = {"PATH": f"{bare}{os.pathsep}/usr/bin{os.pathsep}/bin", "HOME": str(beside_a_clone)}
    assert shutil.which("cuda2npu", path=home["PATH"]) is None
    _follow(TUTORIAL, beside_a_clone, {**environment, **home})
    _no_cuda_left(beside_a_clone / "landcover")

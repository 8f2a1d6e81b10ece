"""Whole projects in real processes: what one file says changes what becomes of another."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cuda2npu.formats import format_of

PROJECTS = Path(__file__).parent.parent / "fixtures" / "projects"
NAMES = sorted(folder.parent.name for folder in PROJECTS.glob("*/before"))
FILLER = "import torch\n" + "# makes a pool of workers worth its start\n" * 8000


def rewrite(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "cuda2npu", "rewrite", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done


def tree(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".git" not in path.parts
    }


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    assert isinstance(request.param, str)
    return request.param


@pytest.fixture
def project(tmp_path: Path, name: str) -> Path:
    folder = tmp_path / name
    shutil.copytree(PROJECTS / name / "before", folder)
    return folder


def test_rewritten_as_an_expert_would(project: Path, name: str) -> None:
    rewrite(project, ".")
    assert tree(project) == tree(PROJECTS / name / "after")


def test_what_is_only_probable_is_asked_for(project: Path, name: str) -> None:
    rewrite(project, ".", "--unsafe")
    assert tree(project) == tree(PROJECTS / name / "unsafe")


def test_what_remains(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cuda2npu", "check", ".", "--format", "json"],
        cwd=PROJECTS / name / "after",
        capture_output=True,
        timeout=120,
    )
    found = [
        "\t".join((item["path"], str(item["line"]), item["code"], item["fix"]))
        for item in json.loads(done.stdout)["findings"]
    ]
    assert found == (PROJECTS / name / "findings.txt").read_text(encoding="utf-8").splitlines()


def test_a_second_run_changes_nothing(project: Path) -> None:
    rewrite(project, ".")
    first = tree(project)
    assert " 0 changed" in rewrite(project, ".").stderr
    assert tree(project) == first


def test_file_by_file_is_the_same_as_the_whole(project: Path, name: str) -> None:
    """As pre-commit does it; what was converted before is part of the project, too."""
    for path in sorted(project.rglob("*")):
        template = ".tpl" in path.name  # an error, when it is named
        if "third_party" not in path.parts and format_of(path.name) and not template:
            rewrite(project, str(path.relative_to(project)))
    assert tree(project) == tree(PROJECTS / name / "after")


def test_from_another_folder_it_is_the_same(project: Path, name: str) -> None:
    rewrite(project.parent, str(project))
    assert tree(project) == tree(PROJECTS / name / "after")


def test_two_workers_are_the_same_as_one(project: Path, tmp_path: Path) -> None:
    (project / "filler.py").write_text(FILLER)
    twin = tmp_path / "twin"
    shutil.copytree(project, twin)
    one, two = rewrite(project, ".", "--jobs", "1"), rewrite(twin, ".", "--jobs", "2")
    assert (one.stdout, one.stderr) == (two.stdout, two.stderr)
    assert tree(project) == tree(twin)


def test_output_is_the_same_as_in_place(project: Path, name: str, tmp_path: Path) -> None:
    rewrite(project, ".", "--output", str(tmp_path / "out"))
    assert tree(tmp_path / "out") == tree(PROJECTS / name / "after")


def test_stdin_knows_the_project_of_its_name(project: Path, name: str) -> None:
    after = tree(PROJECTS / name / "after")
    file = next(each for each in after if after[each] != tree(project)[each])
    done = subprocess.run(
        [sys.executable, "-m", "cuda2npu", "rewrite", "-", "--stdin-filename", file],
        cwd=project,
        input=(project / file).read_bytes(),
        capture_output=True,
        timeout=120,
    )
    assert done.stdout.decode() == after[file]


def test_without_a_project_a_file_stands_alone(tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text('WHERE = "cuda"\n')
    (tmp_path / "train.py").write_text("from settings import WHERE\nx.to(WHERE)\n")
    rewrite(tmp_path, "settings.py")
    assert (tmp_path / "settings.py").read_text() == 'WHERE = "cuda"\n'
    rewrite(tmp_path, ".")
    assert (tmp_path / "settings.py").read_text() == 'WHERE = "npu"\n'

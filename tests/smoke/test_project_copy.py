"""Which files a script needs, and the copy in which they are rewritten. No torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuda2npu.model import Options
from cuda2npu.smoke.closure import closure, project_root
from cuda2npu.smoke.overlay import rewritten
from cuda2npu.smoke.spec import SmokeError


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "models" / "parts").mkdir(parents=True)
    (root / "data").mkdir()
    (root / "pyproject.toml").write_text("")
    (root / "train.py").write_text("import torch, helpers\nfrom models import net\n")
    (root / "helpers.py").write_text("import os, json\nimport missing.thing\n")
    (root / "models" / "__init__.py").write_text("")
    (root / "models" / "net.py").write_text("from .parts.up import Up\nfrom . import other\n")
    (root / "models" / "other.py").write_text("import torch\nx = torch.ones(1).cuda()\n")
    (root / "models" / "parts" / "__init__.py").write_text("from ..net import nothing\n")
    (root / "models" / "parts" / "up.py").write_text("Up = 1\n")
    (root / "models" / "unused.py").write_text("import torch\ny = torch.ones(1).cuda()\n")
    (root / "data" / "words.txt").write_text("words")
    (root / "broken.py").write_text("def (\n")
    return root


def test_closure(project: Path) -> None:
    found = {str(path.relative_to(project)) for path in closure(project / "train.py", project)}
    assert found == {
        "train.py", "helpers.py", "models/__init__.py", "models/net.py", "models/other.py",
        "models/parts/__init__.py", "models/parts/up.py",
    }  # fmt: skip


def test_a_script_in_a_folder_finds_the_project_above_it(project: Path) -> None:
    (project / "tools").mkdir()
    script = project / "tools" / "run.py"
    script.write_text("import helpers\n")
    assert project_root(script, project.parent) == project
    assert project / "helpers.py" in closure(script, project)


def test_the_root_of_a_script_alone(tmp_path: Path) -> None:
    script = tmp_path / "a" / "b.py"
    assert project_root(script, tmp_path) in (tmp_path, *tmp_path.parents)


def test_the_copy_is_rewritten_and_links_the_rest(project: Path, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in sorted(project.rglob("*"))}
    files = closure(project / "train.py", project)
    overlay = rewritten(files, project, tmp_path / "copy", Options())
    copy = tmp_path / "copy"
    assert "torch.ones(1).npu()" in (copy / "models" / "other.py").read_text()
    assert (copy / "models" / "unused.py").is_symlink()
    assert (copy / "data" / "words.txt").read_text() == "words"
    assert overlay.original(str(copy / "models" / "other.py")) == project / "models" / "other.py"
    assert overlay.original("/somewhere/else.py") is None
    assert {path: path.stat().st_mtime_ns for path in sorted(project.rglob("*"))} == before


def test_a_given_rewriting_takes_the_place_of_the_script(project: Path, tmp_path: Path) -> None:
    given = tmp_path / "given.py"
    given.write_text("print('given')\n")
    files = closure(project / "train.py", project)
    rewritten(files, project, tmp_path / "copy", Options(), given=given)
    assert (tmp_path / "copy" / "train.py").read_text() == "print('given')\n"
    assert ".npu()" in (tmp_path / "copy" / "models" / "other.py").read_text()


def test_a_given_folder_takes_the_place_of_the_project(project: Path, tmp_path: Path) -> None:
    given = tmp_path / "given"
    (given / "models").mkdir(parents=True)
    (given / "train.py").write_text("print('given')\n")
    (given / "models" / "other.py").write_text("x = 'given'\n")
    files = closure(project / "train.py", project)
    rewritten(files, project, tmp_path / "copy", Options(), given=given)
    assert (tmp_path / "copy" / "models" / "other.py").read_text() == "x = 'given'\n"


def test_a_given_folder_without_the_script(project: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SmokeError, match=r"holds no train\.py"):
        rewritten([project / "train.py"], project, tmp_path / "copy", Options(),
                  given=tmp_path / "empty")  # fmt: skip

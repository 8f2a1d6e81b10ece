"""Which files a script needs, and the copy in which they are rewritten. No torch."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cuda2npu.model import Options
from cuda2npu.smoke.overlay import not_rewritten, rewritten
from cuda2npu.smoke.project import module_file, project_root
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


@pytest.fixture
def files(project: Path) -> list[Path]:
    """What the script was seen to read."""
    names = "train.py helpers.py models/__init__.py models/net.py models/other.py".split()
    return [project / name for name in names]


def test_a_script_in_a_folder_belongs_to_the_project_above_it(project: Path) -> None:
    assert project_root(project / "tools" / "run.py", project.parent) == project


def test_the_file_of_a_module(project: Path) -> None:
    (project / "models" / "__main__.py").write_text("")
    (project / "models" / "__init__.py").write_text("raise RuntimeError('nothing is imported')\n")
    assert module_file("train", project) == project / "train.py"
    assert module_file("models.parts.up", project) == project / "models" / "parts" / "up.py"
    assert module_file("models", project) == project / "models" / "__main__.py"
    assert module_file("models.parts", project) is None, "it has no __main__"
    assert module_file("models.missing", project) is None
    assert module_file("train.missing", project) is None
    assert module_file("data.words", project) is None


def test_the_file_of_an_installed_module(project: Path) -> None:
    found = module_file("pytest", project)
    assert found is not None
    assert found.name == "__main__.py"


def test_the_root_of_a_script_alone(tmp_path: Path) -> None:
    script = tmp_path / "a" / "b.py"
    assert project_root(script, tmp_path) in (tmp_path, *tmp_path.parents)


def test_the_copy_is_rewritten_and_links_the_rest(
    project: Path, files: list[Path], tmp_path: Path
) -> None:
    before = {path: path.stat().st_mtime_ns for path in sorted(project.rglob("*"))}
    overlay = rewritten(files, project, tmp_path / "copy", Options())
    copy = tmp_path / "copy"
    assert "torch.ones(1).npu()" in (copy / "models" / "other.py").read_text()
    assert (copy / "models" / "unused.py").is_symlink()
    assert (copy / "data" / "words.txt").read_text() == "words"
    assert overlay.original(str(copy / "models" / "other.py")) == project / "models" / "other.py"
    assert overlay.original("/somewhere/else.py") is None
    assert {path: path.stat().st_mtime_ns for path in sorted(project.rglob("*"))} == before


def test_what_was_read_as_it_is(project: Path, files: list[Path], tmp_path: Path) -> None:
    """Told is what rewriting would have changed, and why it was not."""
    copy = tmp_path / "copy"
    outside = tmp_path / "outside.py"
    outside.write_text("import torch\nx = torch.ones(1).cuda()\n")
    overlay = rewritten(files, project, copy, Options())
    read = [copy / "train.py", copy / "models" / "other.py", copy / "models" / "unused.py",
            project / "helpers.py", project / "models" / "other.py", outside]  # fmt: skip
    told = not_rewritten(read, overlay, Options())
    assert [text.partition(": ")[0] for text in told] == [
        str(project / "models" / "unused.py"), str(project / "models" / "other.py"), str(outside),
    ]  # fmt: skip
    assert "did not read it" in told[0]
    assert "opened by its place" in told[1]
    assert "outside the project" in told[2]


def test_a_file_that_is_no_python_is_copied_and_told(project: Path, tmp_path: Path) -> None:
    text = "print torch.cuda\n"
    (project / "broken.py").write_text(text)
    overlay = rewritten([project / "train.py", project / "broken.py"], project,
                        tmp_path / "copy", Options())  # fmt: skip
    assert (tmp_path / "copy" / "broken.py").read_text() == text
    (told,) = not_rewritten([], overlay, Options())
    assert told.startswith(str(project / "broken.py"))


def test_a_given_rewriting_takes_the_place_of_the_script(
    project: Path, files: list[Path], tmp_path: Path
) -> None:
    given = tmp_path / "given.py"
    given.write_text("print('given')\n")
    rewritten(files, project, tmp_path / "copy", Options(), given=given)
    assert (tmp_path / "copy" / "train.py").read_text() == "print('given')\n"
    assert ".npu()" in (tmp_path / "copy" / "models" / "other.py").read_text()


def test_a_given_folder_takes_the_place_of_the_project(
    project: Path, files: list[Path], tmp_path: Path
) -> None:
    given = tmp_path / "given"
    (given / "models").mkdir(parents=True)
    (given / "train.py").write_text("print('given')\n")
    (given / "models" / "other.py").write_text("x = 'given'\n")
    rewritten(files, project, tmp_path / "copy", Options(), given=given)
    assert (tmp_path / "copy" / "models" / "other.py").read_text() == "x = 'given'\n"


def test_a_given_folder_without_the_script(project: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SmokeError, match=r"holds no train\.py"):
        rewritten([project / "train.py"], project, tmp_path / "copy", Options(),
                  given=tmp_path / "empty")  # fmt: skip


def test_a_config_is_rewritten_by_what_the_code_makes_of_it(
    project: Path, files: list[Path]
) -> None:
    config = project / "config.yaml"
    config.write_text("device: cuda  # ours\n")
    (project / "train.py").write_text(
        "import torch, yaml\n"
        "config = yaml.safe_load(open('config.yaml'))\n"
        "x = torch.ones(1, device=config['device'])\n"
    )
    copy = project.parent / "copy"
    overlay = rewritten([*files, config], project, copy, Options())
    assert (copy / "config.yaml").read_text() == "device: npu  # ours\n"
    assert config.read_text() == "device: cuda  # ours\n"
    assert not_rewritten([copy / "config.yaml"], overlay, Options()) == []
    (told,) = not_rewritten([config], overlay, Options())
    assert "config.yaml: was read as it is, for CUDA" in told


OPENED = """
import json, sys
from pathlib import Path
from cuda2npu.smoke.opened import lead
from cuda2npu.smoke.spec import Spec
root, copy = sys.argv[1:]
lead(Spec("", (), "", "npu", root=root, copy=copy))
config = Path(root, "where.json")
read = [open(config).read(), open("where.json").read()]
read += [config.read_text(), config.read_bytes().decode()]
read.append(Path(root, "other.txt").read_text())
config.write_text("written")
read.append(config.read_text())
print(json.dumps(read))
"""


def test_a_config_is_opened_in_the_copy_until_the_script_writes_to_it(project: Path) -> None:
    (project / "where.json").write_text("original")
    (project / "other.txt").write_text("other")
    copy = project.parent / "copy"
    copy.mkdir()
    for name in ("where.json", "other.txt"):
        (copy / name).write_text("copy")
        shutil.copystat(project / name, copy / name)
    command = [sys.executable, "-c", OPENED, str(project), str(copy)]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == ["copy"] * 4 + ["other", "written"]

"""The hooks in the real pre-commit, on a git repository, from a clone of this working state."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from identify import identify
from identify.extensions import EXTENSIONS, NAMES
from repository import ENVIRONMENT, commit_all, git

from cuda2npu.exclude import Exclude
from cuda2npu.files import discover
from cuda2npu.formats import FORMATS, LOCK_FILES

ROOT = Path(__file__).resolve().parent.parent
HOOKS: list[dict[str, Any]] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
CUDA = "import torch\n\nmodel = torch.nn.Linear(2, 2).cuda()\n"
NPU = "import torch\nimport torch_npu  # noqa: F401\n\nmodel = torch.nn.Linear(2, 2).npu()\n"

HOME: dict[str, str] = {"PRE_COMMIT_COLOR": "never"}
"""What the hooks run with: a cache of their own, shared by the tests of this module."""


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The hooks' repository, as ``repo`` and ``rev``."""
    folder = tmp_path_factory.mktemp("hooks")
    for name in ("src", "codemods"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", ".pre-commit-hooks.yaml"):
        shutil.copy(ROOT / name, folder / name)
    HOME["PRE_COMMIT_HOME"] = str(tmp_path_factory.mktemp("cache"))
    return {"repo": str(folder), "rev": commit_all(folder)}


def call(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in ENVIRONMENT.items() if name != "SKIP"} | HOME
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


class Project:
    """A user's repository with one hook installed."""

    def __init__(self, folder: Path, hooks: dict[str, str], hook: dict[str, Any]) -> None:
        self.folder = folder
        config = {"repos": [hooks | {"hooks": [hook]}]}
        (folder / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
        git("init", "-q", cwd=folder)
        done = call(sys.executable, "-m", "pre_commit", "install", cwd=folder)
        assert done.returncode == 0, done.stdout

    def write(self, **texts: str) -> None:
        for name, text in texts.items():
            path = self.folder / f"{name.replace('__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def commit(self) -> tuple[bool, str]:
        """Stage everything and commit; whether it went through, and what was printed."""
        git("add", "-A", cwd=self.folder)
        done = call("git", "commit", "-m", "work", cwd=self.folder)
        return done.returncode == 0, done.stdout + done.stderr


def test_check_stops_a_commit_and_names_the_calls(tmp_path: Path, hooks: dict[str, str]) -> None:
    project = Project(tmp_path, hooks, {"id": "cuda2npu-check"})
    project.write(plain="print()\n", train=CUDA)
    (tmp_path / "notes.txt").write_text("model.cuda()\n")
    passed, output = project.commit()
    assert not passed
    assert "train.py:3:31: NPU101" in output
    assert "1 finding in 1 file, 3 files looked at." in output
    assert (tmp_path / "train.py").read_text() == CUDA
    project.write(train=NPU)
    passed, output = project.commit()
    assert passed, output


def test_rewrite_changes_files_and_passes_the_second_time(
    tmp_path: Path, hooks: dict[str, str]
) -> None:
    hook = {"id": "cuda2npu-rewrite", "exclude": "^third_party/"}
    project = Project(tmp_path, hooks, hook)
    project.write(train=CUDA, third_party__lib=CUDA, vendor__lib=CUDA)
    (tmp_path / "pyproject.toml").write_text('[tool.cuda2npu]\nexclude = ["vendor/"]\n')
    passed, output = project.commit()
    assert not passed
    assert "files were modified by this hook" in output
    assert "excluded by the settings: vendor/lib.py" in output
    assert (tmp_path / "train.py").read_text() == NPU
    for name in ("third_party/lib.py", "vendor/lib.py"):
        assert (tmp_path / name).read_text() == CUDA
    passed, output = project.commit()
    assert passed, output


def test_more_files_than_fit_into_one_command_line(tmp_path: Path, hooks: dict[str, str]) -> None:
    project = Project(tmp_path, hooks, {"id": "cuda2npu-rewrite"})
    names = [f"{'x' * 180}{number}" for number in range(900)]
    project.write(**dict.fromkeys(names, CUDA))
    assert sum(map(len, names)) > 2**17  # what pre-commit passes at most
    passed, output = project.commit()
    assert not passed
    looked_at = [int(n) for n in re.findall(r"^(\d+) files looked at", output, re.MULTILINE)]
    assert len(looked_at) > 1
    assert sum(looked_at) == len(names) + 1  # and the configuration of pre-commit
    assert {path.read_text() for path in tmp_path.glob("*.py")} == {NPU}
    passed, output = project.commit()
    assert passed, output


def passes(hook: dict[str, Any], name: str, tags: set[str]) -> bool:
    """Whether pre-commit hands a file to the hook."""
    wanted = re.search(hook.get("files", ""), name) and not re.search(hook["exclude"], name)
    return bool(wanted) and not tags.isdisjoint(hook["types_or"])


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
class TestFiles:
    def test_every_kind_that_is_read_is_passed(self, hook: dict[str, Any]) -> None:
        for kind in FORMATS:
            for glob in kind.patterns:
                name = glob.replace("*", "a")
                tags = identify.tags_from_filename(name)
                # pre-commit knows neither Slurm's suffixes nor the sources of requirements.
                assert passes(hook, name, tags) or not tags, name

    def test_nothing_else_is(self, tmp_path: Path, hook: dict[str, Any]) -> None:
        for name, tags in [
            *NAMES.items(),
            *((f"a.{end}", tags) for end, tags in EXTENSIONS.items()),
            *((name, identify.tags_from_filename(name)) for name in LOCK_FILES),
        ]:
            if passes(hook, name, tags):
                path = tmp_path / name
                path.write_text("")
                assert not discover([str(path)], Exclude()).errors, name

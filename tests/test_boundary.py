"""Which files of a folder are the project's own, with the real git."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cuda2npu import files
from cuda2npu.boundary import MANY, is_generated
from cuda2npu.exclude import Exclude
from cuda2npu.files import Plan

CUDA = "import torch\nx = torch.ones(2).cuda()\n"


def make(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(CUDA)


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    allow = ["-c", "protocol.file.allow=always", "-c", "init.defaultBranch=main"]
    subprocess.run(
        ["git", *identity, *allow, *arguments], cwd=folder, check=True, capture_output=True
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    make(folder, "a.py", "pkg/b.py", "scratch/c.py", "data/d.py", "pkg/e.local.py")
    (folder / ".gitignore").write_text("scratch/\n*.local.py\n")
    git(folder, "init")
    git(folder, "add", "a.py", "pkg")
    return folder


def discover(*paths: Path, exclude: Exclude | None = None) -> Plan:
    return files.discover(map(str, paths), exclude or Exclude())


def found(root: Path, *paths: Path, exclude: Exclude | None = None) -> list[str]:
    jobs = discover(*paths, exclude=exclude).jobs
    return [Path(job.path).relative_to(root).as_posix() for job in jobs]


class TestGit:
    def test_what_is_tracked_or_could_be(self, repository: Path) -> None:
        assert found(repository, repository) == ["a.py", "data/d.py", "pkg/b.py"]

    def test_a_folder_inside_of_a_repository(self, repository: Path) -> None:
        assert found(repository, repository / "pkg") == ["pkg/b.py"]

    def test_an_ignored_file_that_is_tracked_is_ours(self, repository: Path) -> None:
        git(repository, "add", "-f", "scratch/c.py")
        assert "scratch/c.py" in found(repository, repository)

    def test_a_deleted_file_is_none(self, repository: Path) -> None:
        (repository / "a.py").unlink()
        assert found(repository, repository) == ["data/d.py", "pkg/b.py"]

    def test_who_names_what_git_ignores_means_it(self, repository: Path) -> None:
        assert found(repository, repository / "scratch") == ["scratch/c.py"]
        named = repository / "pkg/e.local.py"
        assert found(repository, named) == ["pkg/e.local.py"]

    def test_names_that_are_no_ascii(self, repository: Path) -> None:
        make(repository, "größe/ü b.py")
        assert "größe/ü b.py" in found(repository, repository)

    def test_without_git_the_files_are_looked_at(
        self, repository: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", str(repository))
        assert "scratch/c.py" in found(repository, repository)

    def test_a_broken_repository_is_a_folder(self, tmp_path: Path) -> None:
        make(tmp_path, "a.py")
        (tmp_path / ".git").write_text("gitdir: nowhere\n")
        assert found(tmp_path, tmp_path) == ["a.py"]

    def test_a_hook_of_another_repository_leads_nowhere(
        self, repository: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GIT_DIR", str(repository.parent / "other"))
        monkeypatch.setenv("GIT_INDEX_FILE", "nowhere")
        assert found(repository, repository) == ["a.py", "data/d.py", "pkg/b.py"]

    def test_a_submodule_is_left_out_and_named(self, repository: Path) -> None:
        library = repository.parent / "library"
        make(library, "lib.py", "more.py")
        git(library, "init")
        git(library, "add", ".")
        git(library, "commit", "-m", "x")
        git(repository, "submodule", "add", str(library), "deps/lib")
        plan = discover(repository)
        assert not [job for job in plan.jobs if "deps" in job.path]
        assert plan.left_out == {f"{repository / 'deps/lib'}/": 2}
        again = found(repository, repository, exclude=Exclude(["!deps/lib/"]))
        assert [name for name in again if "deps" in name] == ["deps/lib/lib.py", "deps/lib/more.py"]
        assert found(repository, repository / "deps/lib") == ["deps/lib/lib.py", "deps/lib/more.py"]


class TestVendored:
    @pytest.mark.parametrize(
        "folder", ["third_party", "vendor", "external", "node_modules", "build", "generated"]
    )
    def test_folders_are_counted_and_named(self, tmp_path: Path, folder: str) -> None:
        make(tmp_path, "a.py", f"src/{folder}/x.py", f"src/{folder}/sub/y.py", "building/z.py")
        plan = discover(tmp_path)
        assert found(tmp_path, tmp_path) == ["a.py", "building/z.py"]
        assert plan.left_out == {f"{tmp_path / 'src' / folder}/": 2}

    def test_kinds_of_files(self, tmp_path: Path) -> None:
        make(tmp_path, "a.py", "x_pb2.py", "p/y_pb2.py", "y_pb2_grpc.py")
        plan = discover(tmp_path)
        assert [Path(job.path).name for job in plan.jobs] == ["a.py"]
        assert plan.left_out == {"*_pb2.py": 2, "*_pb2_grpc.py": 1}

    def test_a_folder_without_sources_is_not_named(self, tmp_path: Path) -> None:
        (tmp_path / "build").mkdir()
        (tmp_path / "build/lib.so").touch()
        assert discover(tmp_path).left_out == {}

    def test_what_nobody_takes_for_the_project_is_not_named(self, tmp_path: Path) -> None:
        make(tmp_path, ".venv/lib/x.py", "__pycache__/y.py", "lib/site-packages/z.py")
        assert discover(tmp_path).left_out == {}

    def test_named_or_taken_in(self, tmp_path: Path) -> None:
        make(tmp_path, "third_party/x.py")
        assert found(tmp_path, tmp_path / "third_party") == ["third_party/x.py"]
        assert found(tmp_path, tmp_path / "third_party/x.py") == ["third_party/x.py"]
        own = Exclude(["!third_party/"])
        assert found(tmp_path, tmp_path, exclude=own) == ["third_party/x.py"]
        assert discover(tmp_path, exclude=own).left_out == {}

    def test_many_files_are_not_all_counted(self, tmp_path: Path) -> None:
        (tmp_path / "vendor").mkdir()
        for number in range(MANY + 5):
            (tmp_path / f"vendor/{number}.py").touch()
        assert list(discover(tmp_path).left_out.values()) == [MANY]


@pytest.mark.parametrize(
    ("head", "generated"),
    [
        ("# Generated by the protocol buffer compiler.  DO NOT EDIT!\n", True),
        ("# This file was automatically generated from a.py. Do NOT edit it manually.\n", True),
        ('"""@generated by make\n\nDo not modify.\n"""\n', True),
        ("# Do not edit\n", False),
        ("# Images generated by the model\n", False),
        (CUDA, False),
        (CUDA * 100 + "# generated by x, do not edit\n", False),
    ],
)
def test_generated_files_say_so_at_their_head(head: str, generated: bool) -> None:
    assert is_generated(head.encode()) is generated


class TestSummary:
    def run(self, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "cuda2npu", *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            env={**os.environ, "NO_COLOR": "1"},
            timeout=120,
        )

    def test_says_what_was_left_out_and_how_to_take_it_in(self, tmp_path: Path) -> None:
        make(tmp_path, "a.py", "third_party/x.py", "third_party/y.py")
        done = self.run(tmp_path, "rewrite", ".")
        assert "note: left out as vendored or generated: third_party/ (2 files)" in done.stderr
        assert '"!NAME"' in done.stderr
        assert (tmp_path / "third_party/x.py").read_text() == CUDA
        (tmp_path / "pyproject.toml").write_text('[tool.cuda2npu]\nexclude = ["!third_party/"]\n')
        self.run(tmp_path, "rewrite", ".")
        assert ".npu()" in (tmp_path / "third_party/x.py").read_text()

    def test_a_generated_file_is_done_when_it_is_named(self, tmp_path: Path) -> None:
        text = "# generated by make, do not edit\n" + CUDA
        (tmp_path / "a.py").write_text(text)
        done = self.run(tmp_path, "rewrite", ".")
        assert "a program wrote it" in done.stderr
        assert "a.py" in done.stderr
        assert (tmp_path / "a.py").read_text() == text
        self.run(tmp_path, "rewrite", ".", "--output", "out")
        assert (tmp_path / "out/a.py").read_text() == text
        self.run(tmp_path, "rewrite", "a.py")
        assert ".npu()" in (tmp_path / "a.py").read_text()

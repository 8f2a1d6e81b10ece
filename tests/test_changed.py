"""``check --diff-base``: real git repositories, real processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from repository import commit_all, git
from test_cli import run

OLD = "import torch\n\na = torch.ones(1).cuda()\n"
NEW = "b = torch.ones(2).cuda()\n"


def places(folder: Path, revision: str, *paths: str) -> list[tuple[str, int]]:
    """The findings on changed lines, as file and line."""
    arguments = ("check", "--diff-base", revision, "--format", "json", *(paths or (".",)))
    done = run(*arguments, cwd=folder)
    assert done.returncode in (0, 1), done.stderr
    found = [(item["path"], item["line"]) for item in json.loads(done.stdout)["findings"]]
    assert done.returncode == bool(found)
    return found


def test_changed_lines_alone(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(OLD)
    (tmp_path / "b.py").write_text(OLD)
    commit_all(tmp_path)
    assert places(tmp_path, "HEAD") == []
    (tmp_path / "a.py").write_text(f"# moves\n{OLD}{NEW}")
    assert places(tmp_path, "HEAD") == [("a.py", 5)]
    done = run("check", "--diff-base", "HEAD", ".", cwd=tmp_path)
    assert b"1 finding in 1 file, 1 file looked at." in done.stderr
    assert b"only lines changed since HEAD (" in done.stderr
    git("add", "-A", cwd=tmp_path)
    assert places(tmp_path, "HEAD") == [("a.py", 5)]


def test_a_statement_of_several_lines_counts_when_one_was_changed(tmp_path: Path) -> None:
    text = (
        "import torch\nx = torch.zeros(\n    3,\n    device='cuda',\n)\ny = torch.ones(1).cuda()\n"
    )
    (tmp_path / "a.py").write_text(text)
    commit_all(tmp_path)
    (tmp_path / "a.py").write_text(text.replace("3,", "4,"))
    assert places(tmp_path, "HEAD") == []
    (tmp_path / "a.py").write_text(text.replace("'cuda'", "'cuda:1'"))
    assert places(tmp_path, "HEAD") == [("a.py", 4)]
    chain = "import torch\nx = (torch\n    .cuda\n    .device_count())\n"
    (tmp_path / "b.py").write_text(chain)
    commit_all(tmp_path)
    (tmp_path / "b.py").write_text(chain.replace("device_count", "current_device"))
    assert places(tmp_path, "HEAD") == [("b.py", 2)]


def test_files_that_git_does_not_track_count_unless_ignored(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("ignored.py\n")
    commit_all(tmp_path)
    (tmp_path / "new folder").mkdir()
    (tmp_path / "new folder" / "ü.py").write_text(OLD)
    (tmp_path / "ignored.py").write_text(OLD)
    assert places(tmp_path, "HEAD") == [("new folder/ü.py", 3)]


def test_a_renamed_file_keeps_its_old_lines(tmp_path: Path) -> None:
    text = OLD + "".join(f"x{number} = {number}\n" for number in range(20))
    (tmp_path / "a.py").write_text(text)
    commit_all(tmp_path)
    git("mv", "a.py", "b.py", cwd=tmp_path)
    (tmp_path / "b.py").write_text(text + NEW)
    git("add", "-A", cwd=tmp_path)
    assert places(tmp_path, "HEAD") == [("b.py", 24)]


ODD = ['ü "q" \t\'.py', "a b.py", "\u4e2d.py", "- x.py", "+++ b.py", "new\nline.py"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_odd_names_and_line_ends(tmp_path: Path, end: str) -> None:
    git("init", "-q", cwd=tmp_path)
    git("config", "core.autocrlf", "true" if end == "\r\n" else "false", cwd=tmp_path)
    git("config", "diff.noprefix", "true", cwd=tmp_path)
    git("config", "diff.external", "false", cwd=tmp_path)
    for name in ODD:
        (tmp_path / name).write_bytes(OLD.replace("\n", end).encode())
    commit_all(tmp_path)
    for name in ODD:
        (tmp_path / name).write_bytes((OLD + NEW).replace("\n", end).encode())
    lines = [3, 4] if end == "\r" else [4]  # then all of a file is one line for git
    assert places(tmp_path, "HEAD") == [(name, line) for name in sorted(ODD) for line in lines]


def test_what_the_other_branch_did_is_no_change(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(OLD)
    first = commit_all(tmp_path)
    git("checkout", "-q", "-b", "topic", cwd=tmp_path)
    (tmp_path / "b.py").write_text(OLD)
    commit_all(tmp_path)
    git("checkout", "-q", "main", cwd=tmp_path)
    (tmp_path / "a.py").write_text("import torch\n")  # main has no CUDA any more
    commit_all(tmp_path)
    git("checkout", "-q", "topic", cwd=tmp_path)
    assert places(tmp_path, "main") == [("b.py", 3)]
    assert places(tmp_path, first[:8]) == [("b.py", 3)]
    assert places(tmp_path, "HEAD") == []


def test_from_below_and_from_outside(tmp_path: Path) -> None:
    repository = tmp_path / "repo"
    (repository / "src").mkdir(parents=True)
    (repository / "src" / "a.py").write_text(OLD)
    (repository / "b.py").write_text(OLD)
    commit_all(repository)
    for name in ("src/a.py", "b.py"):
        (repository / name).write_text(OLD + NEW)
    assert places(repository / "src", "HEAD") == [("a.py", 4)]
    assert places(repository / "src", "HEAD", "../b.py") == [("../b.py", 4)]
    assert places(tmp_path, "HEAD", "repo/src") == [("repo/src/a.py", 4)]
    link = tmp_path / "link"
    link.symlink_to(repository)
    assert places(tmp_path, "HEAD", "link/src") == [("link/src/a.py", 4)]


def test_submodules(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "a.py").write_text(OLD)
    commit_all(inner)
    outer = tmp_path / "outer"
    outer.mkdir()
    git("init", "-q", cwd=outer)
    git("submodule", "--quiet", "add", inner, "my sub", cwd=outer)
    (outer / "pyproject.toml").write_text('[tool.cuda2npu]\nexclude = ["!my sub/"]\n')
    commit_all(outer)
    sub = outer / "my sub"
    (sub / "a.py").write_text(OLD + NEW)
    commit_all(sub)
    (sub / "a.py").write_text(OLD + NEW + NEW)
    (sub / "b.py").write_text(OLD)
    assert places(outer, "HEAD") == [("my sub/a.py", 4), ("my sub/a.py", 5), ("my sub/b.py", 3)]
    assert places(outer, "HEAD", "my sub") == [("my sub/a.py", 5), ("my sub/b.py", 3)]
    git("checkout", "-q", "-b", "before", cwd=outer)
    commit_of_nothing = git("commit-tree", "-m", "empty", git("mktree", cwd=outer), cwd=outer)
    git("replace", "--graft", "HEAD", commit_of_nothing, cwd=outer)
    found = places(outer, commit_of_nothing)
    assert found == [("my sub/a.py", 3), ("my sub/a.py", 4), ("my sub/a.py", 5), ("my sub/b.py", 3)]


def test_a_file_that_git_holds_for_binary_counts_whole(tmp_path: Path) -> None:
    (tmp_path / ".gitattributes").write_text("*.py -diff\n")
    (tmp_path / "a b.py").write_text(OLD)
    (tmp_path / "c.py").write_text(OLD)
    commit_all(tmp_path)
    (tmp_path / "a b.py").write_text(OLD + NEW)
    assert places(tmp_path, "HEAD") == [("a b.py", 3), ("a b.py", 4)]


class TestErrors:
    def fault(self, folder: Path, *arguments: str, env: dict[str, str] | None = None) -> str:
        done = run("check", *arguments, cwd=folder, env=env)
        assert (done.returncode, done.stdout) == (2, b"")
        return done.stderr.decode()

    def test_no_repository(self, tmp_path: Path) -> None:
        (tmp_path / "a.py").write_text(OLD)
        said = self.fault(tmp_path, "--diff-base", "HEAD", "a.py")
        assert "not a git repository" in said

    @pytest.mark.parametrize("revision", ["nix", "--output=x", "HEAD:a.py", ""])
    def test_no_commit(self, tmp_path: Path, revision: str) -> None:
        (tmp_path / "a.py").write_text(OLD)
        commit_all(tmp_path)
        said = self.fault(tmp_path, f"--diff-base={revision}", "a.py")
        assert f"error: --diff-base {revision}: " in said
        assert sorted(path.name for path in tmp_path.iterdir()) == [".git", "a.py"]

    def test_nothing_in_common(self, tmp_path: Path) -> None:
        (tmp_path / "a.py").write_text(OLD)
        commit_all(tmp_path)
        other = git("commit-tree", "-m", "other", git("mktree", cwd=tmp_path), cwd=tmp_path)
        assert "no commit in common" in self.fault(tmp_path, "--diff-base", other, "a.py")

    def test_a_file_of_elsewhere(self, tmp_path: Path) -> None:
        (tmp_path / "repo").mkdir()
        commit_all_of = tmp_path / "repo"
        (commit_all_of / "a.py").write_text(OLD)
        commit_all(commit_all_of)
        (tmp_path / "b.py").write_text(OLD)
        said = self.fault(tmp_path, "--diff-base", "HEAD", "repo", "b.py")
        assert "b.py: is not in the git repository" in said

    def test_no_git(self, tmp_path: Path) -> None:
        (tmp_path / "a.py").write_text(OLD)
        said = self.fault(tmp_path, "--diff-base", "HEAD", "a.py", env={"PATH": str(tmp_path)})
        assert "needs git, which cannot be run: No such file or directory" in said

    def test_standard_input(self, tmp_path: Path) -> None:
        assert "goes not with stdin" in self.fault(tmp_path, "--diff-base", "HEAD", "-")

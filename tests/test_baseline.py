"""``check --baseline``: what is known stays silent, what is new does not."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from test_cli import run

from cuda2npu.baseline import Baseline
from cuda2npu.model import UsageError

A = "import torch\n\nx = torch.ones(1).cuda()\ny = torch.ones(1).cuda(0)\n"
NEW = "z = torch.ones(2).cuda()\n"
FILE = ".cuda2npu-baseline.json"


def check(folder: Path, *arguments: str, baseline: str = FILE) -> list[tuple[str, int]]:
    """The findings that a check tells, as file and line."""
    given = ("--baseline", baseline, "--format", "json", *(arguments or (".",)))
    done = run("check", *given, cwd=folder)
    found = [(item["path"], item["line"]) for item in json.loads(done.stdout)["findings"]]
    assert done.returncode == bool(found), done.stderr
    return found


def write(folder: Path, *paths: str) -> str:
    """Write the baseline; what the summary says."""
    arguments = ("check", *(paths or (".",)), "--baseline", FILE, "--write-baseline")
    done = run(*arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stderr.decode()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "a.py").write_text(A)
    (tmp_path / "b.py").write_text(A)
    assert f"{FILE} holds 4 findings now" in write(tmp_path)
    return tmp_path


def test_only_what_is_new_is_told(project: Path) -> None:
    assert check(project) == []
    (project / "a.py").write_text(A + NEW)
    assert check(project) == [("a.py", 5)]
    done = run("check", "--baseline", FILE, ".", cwd=project)
    assert b"1 finding in 1 file, 2 files looked at." in done.stderr


def test_the_baseline_itself_is_not_looked_at(project: Path) -> None:
    for extra in (["--write-baseline"], []):
        done = run("check", ".", "--baseline", "known.json", *extra, cwd=project)
        assert done.returncode == 0, done.stderr
        assert b"2 files looked at" in done.stderr
    done = run("check", ".", cwd=project)
    assert b"3 files looked at" in done.stderr


def test_moved_and_indented_lines_are_known(project: Path) -> None:
    body = "".join(f"        {line}\n" for line in A.splitlines()[2:])
    (project / "a.py").write_text(f"# licence\nimport torch\nif 1:\n    if 2:\n{body}")
    assert check(project) == []


def test_a_line_is_known_as_often_as_it_was_there(project: Path) -> None:
    (project / "a.py").write_text(A + A)
    assert check(project) == [("a.py", 7), ("a.py", 8)]


def test_a_changed_line_and_a_renamed_file_are_new(project: Path) -> None:
    (project / "a.py").write_text(A.replace("cuda(0)", "cuda(1)"))
    (project / "b.py").rename(project / "c.py")
    assert check(project) == [("a.py", 4), ("c.py", 3), ("c.py", 4)]


def test_what_is_gone_is_said_and_taken_out(project: Path) -> None:
    (project / "a.py").write_text(A.replace(".cuda(0)", ""))
    (project / "b.py").unlink()
    done = run("check", "--baseline", FILE, ".", cwd=project)
    assert done.returncode == 0
    assert f"3 of the findings in {FILE} are gone; write it again" in done.stderr.decode()
    assert f"{FILE} holds 1 finding now" in write(project)
    assert b"are gone" not in run("check", "--baseline", FILE, ".", cwd=project).stderr


def test_what_was_not_looked_at_stays(project: Path) -> None:
    done = run("check", "--baseline", FILE, "a.py", cwd=project)
    assert b"are gone" not in done.stderr
    (project / "a.py").write_text("import torch\n")
    assert f"{FILE} holds 2 findings now" in write(project, "a.py")
    assert check(project) == []


def test_paths_are_those_of_the_folder_of_the_baseline(project: Path, tmp_path: Path) -> None:
    sub = project / "sub"
    sub.mkdir()
    assert check(sub, "../a.py", baseline=f"../{FILE}") == []
    assert check(Path("/"), str(project), baseline=str(project / FILE)) == []
    link = sub / "link"
    link.symlink_to(project)
    assert check(sub, "link/a.py", baseline=f"link/{FILE}") == []


def test_the_file_shows_in_a_diff_what_came_and_went(project: Path) -> None:
    before = (project / FILE).read_text().splitlines()
    assert json.loads("\n".join(before)) == {
        "version": 1,
        "findings": {
            name: [
                {"code": "NPU101", "line": "x = torch.ones(1).cuda()", "count": 1},
                {"code": "NPU101", "line": "y = torch.ones(1).cuda(0)", "count": 1},
            ]
            for name in ("a.py", "b.py")
        },
    }
    (project / "a.py").write_text(f"# moves\n{A}u = '中'; {NEW}")
    write(project)
    after = (project / FILE).read_text(encoding="utf-8").splitlines()
    (added,) = set(after) - set(before)
    assert '''"line": "u = '中'; z = torch.ones(2).cuda()"''' in added
    write(project)
    assert (project / FILE).read_text(encoding="utf-8").splitlines() == after


def test_long_lines_are_cut_but_told_apart(project: Path) -> None:
    long = f"v = [{', '.join(map(str, range(500)))}], torch.ones(1).cuda()\n"
    (project / "a.py").write_text(A + long)
    write(project)
    assert max(map(len, (project / FILE).read_text().splitlines())) < 300
    assert check(project) == []
    (project / "a.py").write_text(A + long.replace("499]", "500]"))
    assert check(project) == [("a.py", 5)]


def test_the_settings_may_name_it(project: Path) -> None:
    (project / FILE).unlink()
    (project / "sub").mkdir()
    (project / "pyproject.toml").write_text('[tool.cuda2npu]\nbaseline = "known.json"\n')
    assert b"known.json: no such file; `cuda2npu check" in fault(project, ".")
    done = run("check", ".", "--write-baseline", cwd=project)
    assert done.returncode == 0
    assert run("check", "..", cwd=project / "sub").returncode == 0
    assert (project / "known.json").is_file()
    (project / "a.py").write_text(A + NEW)
    (project / "pyproject.toml").write_text("[tool.cuda2npu]\nbaseline = 1\n")
    assert b"baseline: must be a string, not 1" in fault(project, ".")


def test_sarif_says_that_results_are_new(project: Path) -> None:
    def results(*arguments: str) -> list[dict[str, Any]]:
        done = run("check", "--format", "sarif", ".", *arguments, cwd=project)
        found = json.loads(done.stdout)["runs"][0]["results"]
        assert isinstance(found, list)
        return found

    (project / "a.py").write_text(A + A)
    every = [result["partialFingerprints"] for result in results()]
    new = results("--baseline", FILE)
    assert [result["baselineState"] for result in new] == ["new", "new"]
    assert [result["partialFingerprints"] for result in new] == every[2:4]
    assert not any("baselineState" in result for result in results())


def test_a_folder_whose_name_is_no_utf_8(project: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(project) + b"/caf\xe9"))
    folder.mkdir()
    (folder / "a.py").write_text(A)
    assert f"{FILE} holds 6 findings now" in write(project)
    assert r'"caf\udce9/a.py"' in (project / FILE).read_text(encoding="utf-8")
    assert check(project) == []
    (folder / "a.py").write_text(A + NEW)
    assert [line for _, line in check(project)] == [5]


def test_standard_input_with_a_name(project: Path) -> None:
    arguments = ("check", "-", "--baseline", FILE, "--stdin-filename", "a.py")
    assert run(*arguments, cwd=project, stdin=A.encode()).returncode == 0
    assert run(*arguments, cwd=project, stdin=(A + NEW).encode()).returncode == 1


def fault(folder: Path, *arguments: str) -> bytes:
    done = run("check", *arguments, cwd=folder)
    assert (done.returncode, done.stdout) == (2, b"")
    return done.stderr


class TestErrors:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "is no baseline: Expecting value: line 1"),
            ("<<<<<<< HEAD\n", "is no baseline: Expecting value: line 1"),
            ("\xff", "is no baseline: 'utf-8' codec can't decode"),
            ("[]", 'is no baseline: it has no "version"'),
            ('{"version": 2}', "is a baseline of version 2; this cuda2npu reads version 1"),
            ('{"version": 1}', 'is no baseline: "findings" is no table of files'),
            (
                '{"version": 1, "findings": {"a.py": 1}}',
                "a.py: a finding is a code, a line and a count",
            ),
            (
                '{"version": 1, "findings": {"a.py": [{"code": "N", "line": "x", "count": 0}]}}',
                "a.py: 0 is no count",
            ),
        ],
    )
    def test_a_broken_file_is_refused(self, project: Path, text: str, message: str) -> None:
        (project / FILE).write_bytes(text.encode("latin-1"))
        with pytest.raises(UsageError, match=re.escape(message)):
            Baseline.read(project / FILE)

    def test_a_broken_file_stays(self, project: Path) -> None:
        (project / FILE).write_text("<<<<<<< HEAD\n")
        for more in ((), ("--write-baseline",)):
            said = fault(project, ".", "--baseline", FILE, *more).decode()
            assert said.startswith(f"error: {FILE}: is no baseline: Expecting value: line 1")
        assert (project / FILE).read_text() == "<<<<<<< HEAD\n"

    def test_errors_keep_it_from_being_written(self, project: Path) -> None:
        before = (project / FILE).read_bytes()
        (project / "a.py").write_text("import torch\nprint 'cuda'\n")
        done = run("check", ".", "--baseline", FILE, "--write-baseline", cwd=project)
        assert done.returncode == 2
        assert b"was not written, because of the errors" in done.stderr
        assert (project / FILE).read_bytes() == before
        done = run("check", ".", "--baseline", FILE, cwd=project)
        assert done.returncode == 2
        assert b"are gone" not in done.stderr

    def test_options_that_do_not_go_together(self, project: Path) -> None:
        assert b"say where with --baseline FILE" in fault(project, ".", "--write-baseline")
        both = ("--baseline", FILE, "--write-baseline")
        assert b"neither with --diff-base nor" in fault(project, "-", *both)
        assert b"neither with --diff-base nor" in fault(project, ".", "--diff-base", "HEAD", *both)

    def test_a_folder_that_is_not_there(self, project: Path) -> None:
        where = os.path.join("nix", FILE)  # noqa: PTH118
        done = run("check", ".", "--baseline", where, "--write-baseline", cwd=project)
        assert done.returncode == 2
        assert b"cannot be written: No such file or directory" in done.stderr

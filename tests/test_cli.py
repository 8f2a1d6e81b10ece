"""The command line as a user meets it: real processes, exit codes, streams and files."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

CUDA = "import torch\n\nmodel = torch.nn.Linear(2, 2).cuda()\n"
NPU = "import torch\nimport torch_npu  # noqa: F401\n\nmodel = torch.nn.Linear(2, 2).npu()\n"
PLAIN = "print('nothing to see')\n"
BY_HAND = "import torch\n\ntorch.cuda.comm.broadcast(x)\n"
BROKEN = "import torch\nprint 'cuda'\n"

COMMAND = [sys.executable, "-m", "cuda2npu"]
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")
}


def run(
    *arguments: str | Path, cwd: Path, stdin: bytes = b"", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        env=ENVIRONMENT | (env or {}),
        timeout=120,
    )
    assert b"Traceback" not in done.stderr
    return done


def make(root: Path, **texts: str) -> None:
    for name, text in texts.items():
        path = root / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


class TestExitCodes:
    @pytest.mark.parametrize(("text", "code"), [(PLAIN, 0), (CUDA, 1), (BY_HAND, 1), (BROKEN, 2)])
    def test_check(self, tmp_path: Path, text: str, code: int) -> None:
        make(tmp_path, a=text)
        assert run("check", "a.py", cwd=tmp_path).returncode == code
        assert (tmp_path / "a.py").read_text() == text

    @pytest.mark.parametrize(
        ("text", "code", "after"),
        [(PLAIN, 0, PLAIN), (CUDA, 0, NPU), (BY_HAND, 0, BY_HAND), (BROKEN, 2, BROKEN)],
    )
    def test_rewrite(self, tmp_path: Path, text: str, code: int, after: str) -> None:
        make(tmp_path, a=text)
        assert run("rewrite", "a.py", cwd=tmp_path).returncode == code
        assert (tmp_path / "a.py").read_text() == after

    def test_errors_outweigh_findings(self, tmp_path: Path) -> None:
        make(tmp_path, a=CUDA, b=BROKEN)
        assert run("check", ".", cwd=tmp_path).returncode == 2

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("check", "nix.py"), b"nix.py: no such file or folder"),
            (("check", ""), b"an empty path"),
            (("check", "--jobs", "-1", "a.py"), b"--jobs: must be at least 1, not -1"),
            (("check", "--exclude", "[", "a.py"), b"exclude pattern '[': the bracket"),
            (("check", "--format", "xml", "a.py"), b"none of full, concise, json, github, sarif"),
            (("check", "--select", "NPU1x1", "a.py"), b"no rule has the code 'NPU1x1'"),
            (("check", "--ignore", "NPU998", "a.py"), b"the nearest is NPU9"),
            (("check", "--select", "NPU799", "a.py"), b"the nearest is NPU7"),
            (("check", "--select", "", "a.py"), b"--select: names no rule"),
            (("check", "--select", "XXX", "a.py"), b"a code that begins with 'XXX'. `cuda2npu"),
            (("check", "--color", "pink", "a.py"), b"none of auto, always, never"),
            (("check", "--jobs", "0", "a.py"), b"--jobs: must be at least 1"),
            (("check", "--jobs", "many", "a.py"), b"'--jobs'"),
            (("check", "--target", "gpu", "a.py"), b"none of npu, shim"),
            (("check", "--torch-npu", "0.1", "a.py"), b"--torch-npu: "),
            (("check", "--frobnicate", "a.py"), b"--frobnicate"),
            (("check", "-", "a.py"), b"stands alone"),
            (("check",), b"PATH"),
            (("rewrite", "--diff", "--output", "o", "a.py"), b"neither with --diff"),
            (("rewrite", "--output", "o", "-"), b"nor with stdin"),
            (("rewrite", "--output", ".", "."), b"is the folder that is converted"),
            (("rules", "NPU998"), b"the nearest is NPU"),
        ],
    )
    def test_usage_errors(self, tmp_path: Path, arguments: tuple[str, ...], message: bytes) -> None:
        make(tmp_path, a=PLAIN)
        done = run(*arguments, cwd=tmp_path)
        assert done.returncode == 2
        assert message in done.stderr
        assert done.stdout == b""

    def test_help_and_version(self, tmp_path: Path) -> None:
        for arguments in (("-h",), ("check", "--help"), ("rewrite", "-h"), ("rules", "-h")):
            done = run(*arguments, cwd=tmp_path)
            assert done.returncode == 0
            assert b"Usage" in done.stdout
        assert run("--version", cwd=tmp_path).stdout.startswith(b"cuda2npu ")


class TestStreams:
    def test_findings_on_stdout_summary_on_stderr(self, tmp_path: Path) -> None:
        make(tmp_path, a=CUDA)
        done = run("check", "a.py", cwd=tmp_path)
        lines = done.stdout.decode().splitlines()
        place = re.match(r"a\.py:3:(\d+): NPU101 ", lines[0])
        assert place is not None
        assert lines[1] == "    3 | model = torch.nn.Linear(2, 2).cuda()"
        column = lines[2].index("^")
        assert column == lines[1].index("model") + int(place[1]) - 1
        assert "cuda" in lines[1][column : lines[2].rindex("^") + 1]
        assert b"1 finding in 1 file" in done.stderr

    def test_json(self, tmp_path: Path) -> None:
        make(tmp_path, a=CUDA, b=BROKEN)
        parsed = json.loads(run("check", "--format", "json", ".", cwd=tmp_path).stdout)
        assert [item["path"] for item in parsed["findings"]] == ["a.py"]
        assert [item["path"] for item in parsed["errors"]] == ["b.py"]
        nothing = run("check", "--format", "json", "--exclude", "*", ".", cwd=tmp_path)
        parsed = json.loads(nothing.stdout)
        assert (parsed["findings"], parsed["errors"]) == ([], [])
        assert parsed["summary"]["files"] == 0

    def test_colour(self, tmp_path: Path) -> None:
        make(tmp_path, a=CUDA)
        escape = b"\x1b["
        assert escape not in run("check", "a.py", cwd=tmp_path).stdout
        assert escape in run("check", "--color", "always", "a.py", cwd=tmp_path).stdout
        forced = {"FORCE_COLOR": "1"}
        assert escape in run("rewrite", "--diff", "a.py", cwd=tmp_path, env=forced).stdout
        refused = forced | {"NO_COLOR": "1"}
        assert escape not in run("rewrite", "--diff", "a.py", cwd=tmp_path, env=refused).stdout

    def test_rewrite_tells_what_remains_with_its_new_place(self, tmp_path: Path) -> None:
        make(tmp_path, a=CUDA + "torch.cuda.comm.broadcast(x)\n")
        done = run("rewrite", "a.py", cwd=tmp_path)
        assert done.stdout.startswith(b"a.py:5:")
        assert b"    5 | torch.cuda.comm.broadcast(x)" in done.stdout
        assert b"1 finding left for you" in done.stderr
        assert b"Next: " in done.stderr

    def test_a_reader_that_leaves_early(self, tmp_path: Path) -> None:
        make(tmp_path, **{f"a{number}": CUDA * 500 for number in range(6)})
        command = " ".join([*COMMAND, "check", "--format", "concise", ".", "| head -n 1"])
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, capture_output=True, env=ENVIRONMENT, timeout=120
        )
        assert done.stdout.count(b"\n") == 1
        assert done.stderr == b""

    def test_findings_of_a_closed_stdout_count(self, tmp_path: Path) -> None:
        make(tmp_path, a=CUDA)
        command = " ".join([*COMMAND, "check", "a.py", ">&-"])
        done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True)
        assert done.returncode == 1
        assert b"1 finding in 1 file" in done.stderr

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
    def test_an_output_that_cannot_be_written(self, tmp_path: Path) -> None:
        make(tmp_path, a=CUDA)
        for arguments in (("check", "a.py"), ("rewrite", "--diff", "a.py")):
            with Path("/dev/full").open("wb") as full:
                done = subprocess.run(
                    [*COMMAND, *arguments],
                    cwd=tmp_path,
                    stdout=full,
                    stderr=subprocess.PIPE,
                    env=ENVIRONMENT,
                )
            assert done.returncode == 2
            message = b"error: the output cannot be written: No space left on device\n"
            assert done.stderr == message

    def test_a_stdout_that_is_closed(self, tmp_path: Path) -> None:
        make(tmp_path, a=CUDA)
        command = " ".join([*COMMAND, "rewrite", "a.py", ">&-"])
        done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True)
        assert (done.returncode, (tmp_path / "a.py").read_text()) == (0, NPU)
        assert b"Traceback" not in done.stderr

    def test_a_name_that_is_no_text(self, tmp_path: Path) -> None:
        (Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.py"))).write_text(CUDA)
        for format in ("full", "concise", "json", "github"):
            assert run("check", "--format", format, ".", cwd=tmp_path).returncode == 1
        patch = run("rewrite", "--diff", ".", cwd=tmp_path).stdout
        subprocess.run(["git", "apply"], input=patch, cwd=tmp_path, check=True)
        assert run("check", ".", cwd=tmp_path).returncode == 0


class TestStdin:
    def test_rewrite(self, tmp_path: Path) -> None:
        done = run("rewrite", "-", cwd=tmp_path, stdin=CUDA.encode())
        assert (done.returncode, done.stdout.decode()) == (0, NPU)
        for text in (PLAIN, "", "x = 'cuda'\r\n"):
            assert run("rewrite", "-", cwd=tmp_path, stdin=text.encode()).stdout == text.encode()

    def test_check(self, tmp_path: Path) -> None:
        done = run("check", "-", cwd=tmp_path, stdin=CUDA.encode())
        assert done.returncode == 1
        assert done.stdout.startswith(b"<stdin>:3:")

    def test_name(self, tmp_path: Path) -> None:
        name = ("--stdin-filename", "src/a.py")
        done = run("check", "-", *name, cwd=tmp_path, stdin=CUDA.encode())
        assert done.stdout.startswith(b"src/a.py:3:")
        patch = run("rewrite", "-", "--diff", *name, cwd=tmp_path, stdin=CUDA.encode())
        assert patch.stdout.startswith(b"--- a/src/a.py\n+++ b/src/a.py\n")
        assert b"without --diff to print the rewritten source." in patch.stderr

    def test_forced_excludes(self, tmp_path: Path) -> None:
        forced = ("--force-exclude", "--stdin-filename", "build/a.py")
        done = run("rewrite", "-", *forced, cwd=tmp_path, stdin=CUDA.encode())
        assert done.stdout == CUDA.encode()

    def test_what_remains_goes_to_stderr(self, tmp_path: Path) -> None:
        done = run("rewrite", "-", cwd=tmp_path, stdin=BY_HAND.encode())
        assert done.stdout == BY_HAND.encode()
        assert b"NPU121" in done.stderr

    def test_a_source_that_does_not_parse_gives_nothing(self, tmp_path: Path) -> None:
        done = run("rewrite", "-", cwd=tmp_path, stdin=BROKEN.encode())
        assert (done.returncode, done.stdout) == (2, b"")
        assert b"error: <stdin>: line 2" in done.stderr


SOURCES = {
    "plain.py": CUDA.encode(),
    "crlf.py": CUDA.replace("\n", "\r\n").encode(),
    "cut.py": CUDA.rstrip("\n").encode(),
    "mark.py": b"\xef\xbb\xbf" + CUDA.encode(),
    "gbk.py": ("# coding: gbk\n# 表\n" + CUDA).encode("gbk"),
    "latin.py": ("# coding: latin-1\n# ä\n" + CUDA).encode("latin-1"),
    "tabs and space.py": (CUDA + "if x:\n\tx.cuda()\n").encode(),
}


class TestFormsOfText:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        for name, data in SOURCES.items():
            (tmp_path / name).write_bytes(data)
        return tmp_path

    def test_everything_else_keeps_its_bytes(self, folder: Path) -> None:
        assert run("rewrite", ".", cwd=folder).returncode == 0
        for name, before in SOURCES.items():
            after = (folder / name).read_bytes()
            added = b"import torch_npu  # noqa: F401"
            end = b"\r\n" if b"\r\n" in before else b"\n"
            assert after.count(added + end) == 1
            assert after.replace(added + end, b"").replace(b".npu()", b".cuda()") == before

    def test_the_patch_does_the_same(
        self, folder: Path, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        done = run("rewrite", "--diff", ".", cwd=folder)
        assert done.returncode == 0
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == SOURCES
        for command in (["git", "apply"], ["patch", "-p1", "--binary"]):
            copy = tmp_path_factory.mktemp("copy")
            for name, data in SOURCES.items():
                (copy / name).write_bytes(data)
            subprocess.run(command, input=done.stdout, cwd=copy, check=True, capture_output=True)
            assert run("rewrite", "--diff", ".", cwd=copy).stdout == b""
        run("rewrite", ".", cwd=folder)
        for path in folder.iterdir():
            assert (copy / path.name).read_bytes() == path.read_bytes()

    def test_bytes_that_do_not_decode(self, folder: Path) -> None:
        data = b"import torch\nx = '\xff'.cuda()\n"
        (folder / "bad.py").write_bytes(data)
        done = run("rewrite", ".", cwd=folder)
        assert done.returncode == 2
        assert b"error: bad.py: line 2" in done.stderr
        assert (folder / "bad.py").read_bytes() == data
        assert b".npu()" in (folder / "plain.py").read_bytes()


class TestFiles:
    def test_broken_files_do_not_stop_others(self, tmp_path: Path) -> None:
        conflict = f"<<<<<<< HEAD\n{CUDA}=======\n>>>>>>> x\n"
        make(tmp_path, a=BROKEN, b=CUDA, c=conflict, d="x = 'cuda\n", sub__e=CUDA)
        done = run("rewrite", ".", cwd=tmp_path)
        assert done.returncode == 2
        errors = [line for line in done.stderr.splitlines() if line.startswith(b"error:")]
        assert [line.split(b":")[1].strip() for line in errors] == [b"a.py", b"c.py", b"d.py"]
        assert (tmp_path / "b.py").read_text() == NPU
        assert (tmp_path / "sub/e.py").read_text() == NPU
        assert (tmp_path / "c.py").read_text() == conflict

    def test_a_second_run_changes_nothing(self, tmp_path: Path) -> None:
        make(tmp_path, a=CUDA, b=PLAIN)
        run("rewrite", ".", cwd=tmp_path)
        before = {path: (path.read_bytes(), path.stat()) for path in tmp_path.iterdir()}
        done = run("rewrite", ".", cwd=tmp_path)
        assert b"2 files looked at, 0 changed" in done.stderr
        after = {path: (path.read_bytes(), path.stat()) for path in tmp_path.iterdir()}
        assert [(data, stat.st_mtime_ns) for data, stat in before.values()] == [
            (data, stat.st_mtime_ns) for data, stat in after.values()
        ]

    def test_links(self, tmp_path: Path) -> None:
        make(tmp_path, outside=CUDA, in__real=CUDA)
        (tmp_path / "in/inner.py").symlink_to("real.py")
        (tmp_path / "in/outer.py").symlink_to("../outside.py")
        done = run("rewrite", "in", cwd=tmp_path)
        assert done.returncode == 2
        assert b"error: in/outer.py: is a link to" in done.stderr
        assert (tmp_path / "outside.py").read_text() == CUDA
        assert (tmp_path / "in/real.py").read_text() == NPU
        assert (tmp_path / "in/inner.py").is_symlink()

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    def test_read_only(self, tmp_path: Path) -> None:
        make(tmp_path, a=CUDA, locked__b=CUDA)
        (tmp_path / "a.py").chmod(0o444)
        (tmp_path / "locked").chmod(0o555)
        try:
            done = run("rewrite", ".", cwd=tmp_path)
        finally:
            (tmp_path / "locked").chmod(0o755)
        assert done.returncode == 2
        assert b"error: a.py: is read-only" in done.stderr
        assert b"error: locked/b.py: cannot be replaced" in done.stderr

    def test_output(self, tmp_path: Path) -> None:
        make(tmp_path, in__a=CUDA, in__sub__b=PLAIN, in__c=BROKEN)
        (tmp_path / "in/run.sh").write_text("#!/bin/sh\n")
        (tmp_path / "in/run.sh").chmod(0o755)
        done = run("rewrite", "in", "--output", "out", cwd=tmp_path)
        assert done.returncode == 2
        assert (tmp_path / "in/a.py").read_text() == CUDA
        assert (tmp_path / "out/a.py").read_text() == NPU
        assert (tmp_path / "out/sub/b.py").read_text() == PLAIN
        assert (tmp_path / "out/c.py").read_text() == BROKEN
        assert os.access(tmp_path / "out/run.sh", os.X_OK)

    def test_output_of_a_file(self, tmp_path: Path) -> None:
        make(tmp_path, a=CUDA)
        assert run("rewrite", "a.py", "--output", "x/y", cwd=tmp_path).returncode == 0
        assert (tmp_path / "x/y/a.py").read_text() == NPU

    def test_exclude(self, tmp_path: Path) -> None:
        make(tmp_path, a=CUDA, gen__b=CUDA)
        run("rewrite", ".", "--exclude", "gen/", cwd=tmp_path)
        assert (tmp_path / "a.py").read_text() == NPU
        assert (tmp_path / "gen/b.py").read_text() == CUDA


class TestSettings:
    def test_the_file_counts_and_the_command_line_wins(self, tmp_path: Path) -> None:
        make(tmp_path, a=CUDA)
        (tmp_path / "pyproject.toml").write_text('[tool.cuda2npu]\nignore = ["NPU101"]\n')
        assert run("check", "a.py", cwd=tmp_path).returncode == 0
        assert run("check", "--ignore", "NPU110", "a.py", cwd=tmp_path).returncode == 1

    def test_select_takes_beginnings_and_commas(self, tmp_path: Path) -> None:
        make(tmp_path, a=CUDA)
        for select, code in (("NPU101", 1), ("NPU1", 1), ("NPU0,NPU12", 0), ("NPU0, NPU101", 1)):
            assert run("check", "--select", select, "a.py", cwd=tmp_path).returncode == code

    def test_an_unknown_key(self, tmp_path: Path) -> None:
        make(tmp_path, a=PLAIN)
        (tmp_path / "pyproject.toml").write_text("[tool.cuda2npu]\nexlude = []\n")
        done = run("check", "a.py", cwd=tmp_path)
        assert done.returncode == 2
        assert b"pyproject.toml: [tool.cuda2npu] exlude: unknown key; the nearest is exclude" in (
            done.stderr
        )


class TestRules:
    def test_list(self, tmp_path: Path) -> None:
        done = run("rules", cwd=tmp_path)
        assert done.returncode == 0
        assert b"NPU101  tensor-cuda-call" in done.stdout

    def test_one(self, tmp_path: Path) -> None:
        done = run("rules", "npu101", cwd=tmp_path)
        assert done.stdout.startswith(b"NPU101 tensor-cuda-call\n")
        for word in (b"before\n", b"after\n", b"fix: safe"):
            assert word in done.stdout


class TestPathsThatAreNoSource:
    def test_a_broken_notebook_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "nb.ipynb").write_text('{"cuda": ')
        make(tmp_path, a=CUDA)
        done = run("check", "nb.ipynb", "a.py", "--format", "json", cwd=tmp_path)
        assert done.returncode == 2
        assert b"nb.ipynb: line 1: is no JSON (Expecting value). Mend it" in done.stderr
        assert len(json.loads(done.stdout)["findings"]) == 1

    def test_every_missing_path_is_named_and_the_others_are_done(self, tmp_path: Path) -> None:
        make(tmp_path, a=CUDA)
        for options in ((), ("--output", "out")):
            done = run("rewrite", "x.py", "a.py", "y", *options, cwd=tmp_path)
            assert done.returncode == 2
            for name in (b"x.py", b"y"):
                assert b"error: " + name + b": no such file or folder\n" in done.stderr
        assert (tmp_path / "a.py").read_text() == NPU
        assert (tmp_path / "out/a.py").exists()

    def test_a_pipe_is_never_opened(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe.py")
        for name in ("pipe.py", "/dev/null"):
            done = run("check", name, cwd=tmp_path)
            assert done.returncode == 2
            assert b"is not a regular file" in done.stderr

    def test_excluded_files_that_are_named(self, tmp_path: Path) -> None:
        make(tmp_path, gen__a=CUDA, b=CUDA)
        (tmp_path / "pyproject.toml").write_text('[tool.cuda2npu]\nexclude = ["gen/"]\n')
        done = run("rewrite", "gen/a.py", "b.py", cwd=tmp_path)
        assert done.returncode == 0
        assert b"note: excluded by the settings: gen/a.py\n" in done.stderr
        assert (tmp_path / "gen/a.py").read_text() == CUDA
        assert (tmp_path / "b.py").read_text() == NPU
        name = ("-", "--stdin-filename", "gen/a.py")
        assert run("rewrite", *name, cwd=tmp_path, stdin=CUDA.encode()).stdout == CUDA.encode()

    def test_closed_stdin(self, tmp_path: Path) -> None:
        command = " ".join([*COMMAND, "rewrite", "-", "<&-"])
        done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True)
        assert (done.returncode, done.stdout) == (2, b"")
        assert done.stderr == b"error: standard input is closed\n"


class TestNotes:
    def test_an_unknown_code_in_a_comment(self, tmp_path: Path) -> None:
        make(tmp_path, a=CUDA.rstrip("\n") + "  # cuda2npu: ignore[NPU999, NPU101]\n")
        done = run("check", "a.py", cwd=tmp_path)
        assert done.returncode == 0
        assert b"note: a.py: line 3: ignore[NPU999, NPU101]: no rule has the code" in done.stderr
        make(tmp_path, a=CUDA.rstrip("\n") + "  # cuda2npu: ignore[npu101]\n")
        assert run("check", "a.py", cwd=tmp_path).returncode == 1

    def test_the_shim_of_a_named_script(self, tmp_path: Path) -> None:
        make(
            tmp_path,
            script="import torch\n\nx = torch.ones(1).cuda()\n",
            module="import torch\n\n\ndef f(x):\n    return x.cuda()\n",
        )
        done = run("rewrite", "--target", "shim", "script.py", "module.py", cwd=tmp_path)
        assert "transfer_to_npu" in (tmp_path / "script.py").read_text()
        assert "transfer_to_npu" not in (tmp_path / "module.py").read_text()
        assert b"note: module.py: not a script: " in done.stderr
        assert b"script.py: not a script" not in done.stderr

    def test_python_2_is_not_doubly_punctuated(self, tmp_path: Path) -> None:
        make(tmp_path, a=BROKEN)
        assert b"?. " not in run("check", "a.py", cwd=tmp_path).stderr

    def test_settings_that_are_not_utf_8(self, tmp_path: Path) -> None:
        make(tmp_path, a=PLAIN)
        settings = '[tool.cuda2npu]\nexclude = ["ä"]\n'
        for encoding, words in (("latin-1", b"in line 2 is not UTF-8"), ("utf-16", b"is UTF-16")):
            (tmp_path / "pyproject.toml").write_bytes(settings.encode(encoding))
            done = run("check", "a.py", cwd=tmp_path)
            assert done.returncode == 2
            assert b"pyproject.toml: " in done.stderr
            assert words in done.stderr
        (tmp_path / "pyproject.toml").write_bytes(settings.encode("utf-8-sig"))
        assert run("check", "a.py", cwd=tmp_path).returncode == 0

    def test_a_second_run_after_one_literal_of_two_rules(self, tmp_path: Path) -> None:
        make(
            tmp_path, a='import os\nos.system("CUDA_VISIBLE_DEVICES=0 python a.py --device cuda")\n'
        )
        done = run("rewrite", "--unsafe", "a.py", cwd=tmp_path)
        assert b"left for you" not in done.stderr
        assert (
            "ASCEND_RT_VISIBLE_DEVICES=0 python a.py --device npu"
            in (tmp_path / "a.py").read_text()
        )
        assert b"0 changed" in run("rewrite", "--unsafe", "a.py", cwd=tmp_path).stderr


BIG = CUDA + "\n".join(f"x{number} = torch.zeros({number}).cuda()" for number in range(400)) + "\n"


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("new")
    return run("rewrite", "-", cwd=folder, stdin=BIG.encode()).stdout.decode()


class TestInterruption:
    """Each file is large enough that a run is met in its middle."""

    FILES = 30

    def start(self, folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
        for number in range(self.FILES):
            (folder / f"{number:02}.py").write_text(BIG)
        return subprocess.Popen(
            [*COMMAND, "rewrite", ".", *arguments],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
            start_new_session=True,
        )

    def states(self, folder: Path, new: str) -> list[bool]:
        """Of each file whether it is new; it must be old or new."""
        texts = [path.read_text() for path in sorted(folder.glob("*.py"))]
        assert len(texts) == self.FILES
        assert all(text in (BIG, new) for text in texts)
        return [text == new for text in texts]

    @pytest.mark.parametrize("workers", ["1", "2"])
    def test_ctrl_c(self, tmp_path: Path, new: str, workers: str) -> None:
        process = self.start(tmp_path, "--jobs", workers)
        while (tmp_path / "00.py").read_text() == BIG and process.poll() is None:
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        _, messages = process.communicate(timeout=60)
        done = sum(self.states(tmp_path, new))
        assert process.returncode == 130
        assert 0 < done < self.FILES
        told = f"Stopped: {done} files? done, up to {done - 1:02}.py; ".encode()
        assert re.search(told, messages)
        assert f"{self.FILES - done} not begun".encode() in messages
        assert b"Traceback" not in messages
        assert list(tmp_path.glob(".cuda2npu-*")) == []

    @pytest.mark.parametrize("workers", ["1", "2"])
    def test_kill(self, tmp_path: Path, new: str, workers: str) -> None:
        randomly = random.Random(workers)
        met_midway = 0
        for _ in range(8):
            process = self.start(tmp_path, "--jobs", workers)
            while (tmp_path / "00.py").read_text() == BIG and process.poll() is None:
                time.sleep(0.005)
            time.sleep(randomly.uniform(0, 0.3))
            process.kill()
            process.communicate(timeout=30)  # ends when the workers have closed the pipes too
            met_midway += 0 < sum(self.states(tmp_path, new)) < self.FILES
        assert met_midway

    @pytest.mark.parametrize("workers", ["1", "2"])
    @pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
    @pytest.mark.parametrize("group", [False, True])
    def test_ended_from_outside(
        self, tmp_path: Path, new: str, workers: str, name: str, group: bool
    ) -> None:
        process = self.start(tmp_path, "--jobs", workers)
        while (tmp_path / "00.py").read_text() == BIG and process.poll() is None:
            time.sleep(0.01)
        number = signal.Signals[name]
        (os.killpg if group else os.kill)(process.pid, number)
        _, messages = process.communicate(timeout=60)
        assert process.returncode == 128 + number
        assert 0 < sum(self.states(tmp_path, new)) < self.FILES
        assert b"Stopped: " in messages
        assert b"Traceback" not in messages
        assert list(tmp_path.glob(".cuda2npu-*")) == []


class TestPacks:
    """Packs of others that cannot be used."""

    @pytest.mark.parametrize(
        ("module", "rules"),
        [
            ("import nothing_like_that\n", ""),
            ("pack = 1\n", ""),
            (
                "from cuda2npu.pack import Pack\npack = Pack('a', ('cuda',), ('a_rules',))\n",
                "1 / 0\n",
            ),
        ],
    )
    def test_it_is_named(self, tmp_path: Path, module: str, rules: str) -> None:
        make(tmp_path, site__a_pack=module, site__a_rules=rules, a=CUDA, b=BIG * 40)
        info = tmp_path / "site/their_rules-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-rules\nVersion: 1\n")
        (info / "entry_points.txt").write_text("[cuda2npu.packs]\nabc = a_pack:pack\n")
        path = {"PYTHONPATH": str(tmp_path / "site")}
        commands = (("check", "a.py"), ("rules",), ("rewrite", "b.py", "a.py"), ("check", "-"))
        for arguments in commands:
            done = run(*arguments, cwd=tmp_path, env=path, stdin=CUDA.encode())
            assert done.returncode == 2
            assert b"error: the rule pack a" in done.stderr
            assert b"of the package their-rules cannot be loaded" in done.stderr
        assert (tmp_path / "a.py").read_text() == CUDA

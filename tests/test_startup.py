"""A call that has nothing to do imports nothing heavy: pre-commit runs it at each commit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {
    "concurrent.futures",
    "cuda2npu.engine",
    "cuda2npu.rule",
    "cuda2npu.simulator",
    "cuda2npu.survey",
    "cuda2npu.tokens",
    "difflib",
    "libcst",
    "multiprocessing",
    "rich",
    "tempfile",
    "tomllib",
    "torch",
    "yaml",
}


def imported(*arguments: str, cwd: Path, stdin: str = "") -> set[str]:
    """The modules loaded at the end of a call, beyond those of an empty Typer application."""
    probe = (
        "import json, sys, typer\n"
        "empty = typer.Typer()\n"
        "empty.command('a')(lambda: None)\n"
        "empty.command('b')(lambda: None)\n"
        "try:\n"
        "    empty(['a'])\n"
        "except SystemExit:\n"
        "    pass\n"
        "before = set(sys.modules)\n"
        "from cuda2npu.cli import app\n"
        f"sys.argv = ['cuda2npu', *{list(arguments)!r}]\n"
        "try:\n"
        "    app()\n"
        "except SystemExit:\n"
        "    pass\n"
        "print(json.dumps(sorted(set(sys.modules) - before)), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], cwd=cwd, input=stdin, capture_output=True, text=True
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    (tmp_path / "plain.py").write_text("import os\nprint(os.getcwd())\n")
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "plain.py"),
        ("check", "."),
        ("check", "--format", "concise", "plain.py"),
        ("check", "--jobs", "4", "--exclude", "gen/", "plain.py"),
        ("rewrite", "plain.py"),
        ("rewrite", "--diff", "plain.py"),
        ("--version",),
    ],
)
def test_nothing_heavy_without_trigger_words(plain: Path, arguments: tuple[str, ...]) -> None:
    loaded = imported(*arguments, cwd=plain)
    assert "cuda2npu.cli" in loaded
    assert loaded & HEAVY == set()


def test_stdin_without_trigger_words(plain: Path) -> None:
    assert imported("rewrite", "-", cwd=plain, stdin="x = 1\n") & HEAVY == set()


def test_a_settings_file_that_does_not_concern_us_is_not_parsed(plain: Path) -> None:
    (plain / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert "tomllib" not in imported("check", "plain.py", cwd=plain)


def test_trigger_words_need_libcst_but_never_torch(plain: Path) -> None:
    (plain / "plain.py").write_text("import torch\nx = torch.zeros(1).cuda()\n")
    loaded = imported("check", "plain.py", cwd=plain)
    assert "libcst" in loaded
    assert not {"torch", "torch_npu", "libcst.matchers", "libcst.codemod"} & loaded

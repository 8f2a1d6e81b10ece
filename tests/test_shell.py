"""Shell scripts and makefiles: words and their places, what is renamed, what stays."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuda2npu import formats
from cuda2npu.formats import makefile, shell
from cuda2npu.knowledge import Knowledge
from cuda2npu.model import Options, Result, SourceError
from cuda2npu.tokens import Command, Directive, InlinePython, Mention, Parameter, Token

BASH = shutil.which("bash")


def rewrite(text: str, path: str = "a.sh", *, unsafe: bool = False) -> Result:
    return formats.rewrite_bytes(text.encode(), Options(unsafe=unsafe), path=path)[1]


def commands(text: str) -> list[list[str]]:
    found = [token for token in shell.tokenize(text) if isinstance(token, Command)]
    return [[word.value for word in token.words] for token in found if not token.in_string]


class TestWords:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("a b|c d;e&f&&g||h", [["a", "b"], ["c", "d"], ["e"], ["f"], ["g"], ["h"]]),
            ("a \\\n  b # c 'd\nd", [["a", "b"], ["d"]]),
            ("A=1 B=2 c 2>&1 >d <e &>f", [["c"]]),
            ("if a; then b; elif c; then d; else e; fi", [["a"], ["b"], ["c"], ["d"], ["e"]]),
            ("case $x in a|b) c;; (d) e ;& *) f; esac; g", [["c"], ["e"], ["f"], ["g"]]),
            ("x=$(case a in a) b;; esac); c", [["b"], ["c"]]),
            ("f() { a; }\nfunction g { b; }\nfunction h() { c; }", [["a"], ["b"], ["c"]]),
            ("[[ $a =~ ^(b|c)$ && d < e ]] && f", [["[[", "$a", "=~", "^", "b", "c", "$", "&&", "d",
                                                    "<", "e", "]]"], ["f"]]),
            ("for ((i=0; i<3; i++)); do a; done", [["for"], ["a"]]),
            ("a $((1 << 2)) $[3] ${b#*)} ${c%%'}'} `d e`",
             [["a", "$((1 << 2))", "$[3]", "${b#*)}", "${c%%}}", "`d e`"], ["d", "e"]]),
            ("a <<X b <<-'Y' # c\nd $(e)\nX\n\tf $(g)\n\tY\nh", [["a", "b"], ["e"], ["h"]]),
            ("a <<<b; diff <(c) <(d)", [["a"], ["diff", "<(c)", "<(d)"], ["c"], ["d"]]),
            ("(a; (b)) | { c; }", [["a"], ["b"], ["c"]]),
            ("a 'b c'\"d $e\"\\ f $'g\\'h'", [["a", "b cd $e f", "$g\\h'"]]),
            ("x=(a $(b) # c\n d)\ne", [["b"], ["e"]]),
        ],
    )  # fmt: skip
    def test_commands_are_told_apart(self, text: str, expected: list[list[str]]) -> None:
        found = commands(text)
        if "[[" in text or "$'" in text:  # how a test's own operators are cut does not matter
            assert [words[0] for words in found] == [words[0] for words in expected]
        else:
            assert sorted(found) == sorted(expected)

    @pytest.mark.parametrize("text", ["a 'b", 'a "b', "a $(b", "a ${b", "a `b", "x=(a", "\na $'b"])
    def test_what_is_never_closed_is_an_error(self, text: str) -> None:
        with pytest.raises(SourceError, match=r"^line \d: what opens here is never closed by "):
            shell.tokenize(text)

    @given(st.lists(st.text("ab '\"\\$\t#(){}é", min_size=1, max_size=6), min_size=1, max_size=4))
    def test_quoted_words_are_those_of_posix(self, words: list[str]) -> None:
        line = "a " + shlex.join(words)
        (found,) = commands(line)
        assert [word.replace("'\"'\"'", "'") for word in found[1:]] == [
            word.replace("\\", "\\") for word in words
        ] or shlex.split(line) == ["a", *words]

    @given(st.text("ab=$(){}[]<>|&;'\"`\\#\n\t !*?0CUDA_", max_size=60))
    def test_noise_raises_nothing_else(self, text: str) -> None:
        for tokenize in (shell.tokenize, makefile.tokenize):
            try:
                tokens = tokenize(text)
            except SourceError:
                continue
            _hold_places(text, tokens)


def _hold_places(text: str, tokens: list[Token]) -> None:
    for token in tokens:
        assert text[token.start : token.end] == token.text
        for word in getattr(token, "words", ()):
            assert text[word.start : word.end] == word.text
    assert [token.start for token in tokens] == sorted(token.start for token in tokens)


VARIABLE = "CUDA_VISIBLE_DEVICES"
WORDS = st.sampled_from(
    [
        "a", "'b c'", f"${VARIABLE}", f'"d ${VARIABLE} e"', f"'${VARIABLE}'", f"\\${VARIABLE}",
        f"${{{VARIABLE}:-0,1}}", f'"${{{VARIABLE}:-"x y"}}"', f"$(echo ${VARIABLE})",
        f"`echo ${VARIABLE}`", f"${{#{VARIABLE}}}", f"{VARIABLE}", f"'{VARIABLE}=1'", "\"it's\"",
        f"$(( ${{{VARIABLE}:+1}} + 2 ))", f'"$(printf "%s" "${VARIABLE}")"', "a\\ b", '"\\""',
        f"${{{VARIABLE}%%,*}}", "$'x\\ty'", f"${{x:-${VARIABLE}}}", "{1,2}", "\\#", "x#y",
    ]
)  # fmt: skip
STATEMENTS = st.sampled_from(
    [
        "show <W> <W>", f"{VARIABLE}=<W> show <W>", f"export {VARIABLE}=<W>", f"unset {VARIABLE}",
        f"export x=<W> {VARIABLE}", f"x=<W> {VARIABLE}=<W>", "# don't <W>\nshow", "show <W> # it's",
        f"env {VARIABLE}=<W> bash -c 'echo ${VARIABLE}'", f"eval '{VARIABLE}=3 show x'",
        f'cmd="{VARIABLE}=4 show \\"q r\\" x"\neval "$cmd"',
        f"a=({VARIABLE} <W>)\nshow ${{a[@]}}",
        "if [[ <W> == a && -n <W> ]]; then show <W>; else show no; fi",
        f"case <W> in a|*0*) show <W>;; (*) {VARIABLE}=<W> show x;; esac",
        f"for i in <W> <W>; do {VARIABLE}=$i show $i; done", f"( {VARIABLE}=<W>; show <W> )",
        f"cat <<E\n${VARIABLE} \\${VARIABLE} '${VARIABLE}' $(echo ${VARIABLE})\nE",
        f"cat <<'E'\n${VARIABLE} {VARIABLE}=1 show\nE",
        f"bash <<'E'\n{VARIABLE}=5; echo ${VARIABLE}\nE",
        "show <W> | cat 2>&1 >&2", f"x=$(case a in a) echo ${VARIABLE};; esac); show $x",
        f"f() {{ local {VARIABLE}=7; show <W>; }}; f",
        "show \\\n  <W> \\\n  <W>",
        "while false; do :; done",
    ]
)  # fmt: skip


@st.composite
def scripts(draw: st.DrawFn) -> str:
    lines = draw(st.lists(STATEMENTS, min_size=1, max_size=5))
    text = "\n".join(lines)
    while "<W>" in text:
        text = text.replace("<W>", draw(WORDS), 1)
    return f'show() {{ printf "[%s]" "$@"; echo "${{{VARIABLE}-unset}}"; }}\n{text}\n'


def _run(text: str) -> tuple[int, str]:
    assert BASH is not None
    done = subprocess.run(
        [BASH],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": "/usr/bin:/bin"},
    )
    return done.returncode, done.stdout


@pytest.mark.skipif(BASH is None, reason="compares scripts by running them in bash")
@settings(max_examples=60, deadline=None)
@given(scripts())
def test_a_renamed_script_does_what_it_did(text: str) -> None:
    result = rewrite(text)
    assert _run(result.text) == _run(text)
    assert not rewrite(result.text).changed
    if any(isinstance(token, Mention) for token in shell.tokenize(text)):
        assert result.text == text
        return
    for line in result.text.splitlines():
        if "show()" in line:
            assert "ASCEND_RT_VISIBLE_DEVICES" in line


class TestRenamingWhole:
    """A variable is renamed at every place of a script, or at none."""

    @pytest.mark.parametrize(
        "text",
        [
            "read -r X; echo $X",
            "if [[ -v X ]]; then echo $X; fi",
            "X=0; env -u X a; printenv X",
            "printf -v X '%s' 0; export X",
            "mapfile -t X < f; echo ${X[0]}",
            "let 'X = 2'; (( X = X + 1 )); echo $(( X ))",
            "parallel X={} python a.py ::: 0 1",
            'local X; declare X=0; readonly X; test -n "$X"',
            "srun --export=ALL,X=0 python a.py",
            "qsub -v A=1,X=0 a.sh",
        ],
    )
    def test_every_place(self, text: str) -> None:
        result = rewrite(text.replace("X", VARIABLE))
        assert result.text == text.replace("X", "ASCEND_RT_VISIBLE_DEVICES")

    @pytest.mark.parametrize(
        "text",
        [
            "v=X; export X=0; echo ${!v}",
            "v='X'; export X=0; echo ${!v}",
            "export X=0; use X",
            "export X=0; echo $(use X)",
            "export X=0; env -u X printenv X",
            "export X=0\nawk '{print ENVIRON[\"X\"]}'",
            "export X=0\ncase $1 in X) a;; esac",
            "export X=0; a <<< X",
            "use ${x:-X} $X",
        ],
    )
    def test_none_where_one_is_not_plain(self, text: str) -> None:
        result = rewrite(text.replace("X", VARIABLE))
        assert not result.changed
        assert len(result.findings) == text.count("X") > 1
        whole = rewrite(text.replace("X", VARIABLE), unsafe=True)
        assert whole.text == text.replace("X", "ASCEND_RT_VISIBLE_DEVICES")

    @pytest.mark.parametrize(
        ("text", "changed"),
        [
            ("X = 0\nundefine X\nunexport X\nA = $(origin X) $(value X) $(flavor X)\n", True),
            ("X = 0\nelse ifdef X\ndefine X\na\nendef\n", True),
            ("X = 0\nB = $(foreach v,X,$($(v)))\n", False),
            ("X = 0\nifeq (X,$(A))\nendif\n", False),
        ],
    )
    def test_makefiles(self, text: str, changed: bool) -> None:
        result = rewrite(text.replace("X", VARIABLE), "Makefile")
        new = "ASCEND_RT_VISIBLE_DEVICES" if changed else VARIABLE
        assert result.text == text.replace("X", new)

    def test_code_in_quotes_is_read_once(self) -> None:
        text = "nohup bash -c 'CUDA_VISIBLE_DEVICES=2 python a.py --device cuda' &"
        assert [f.code for f in rewrite(text).findings] == ["NPU820", "NPU824"]


class TestInlinePython:
    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ("python3 -u -c 'import torch; x.cuda()'", "import torch; import torch_npu; x.npu()'"),
            ('python -c "import torch; x.cuda()"', 'import torch; import torch_npu; x.npu()"'),
            ('$PYTHON -c "import torch; x.cuda()"', 'import torch; import torch_npu; x.npu()"'),
            ("srun python - <<'E'\nimport torch\nx.cuda()\nE", "  # noqa: F401\nx.npu()\nE"),
            ("python <<E\nimport torch\nx.cuda()\nE", "  # noqa: F401\nx.npu()\nE"),
        ],
    )  # fmt: skip
    def test_rewritten(self, before: str, after: str) -> None:
        assert rewrite(before + "\n").text.endswith(after + "\n")

    @pytest.mark.parametrize(
        "text",
        [
            'python -c "import torch; x.to(\\"cuda\\")"',
            "python -c \"import torch; x.to('cuda:$1')\"",
            "python <<E\nimport torch\nx.to('cuda:$1')\nE",
        ],
    )
    def test_reported(self, text: str) -> None:
        result = rewrite(text)
        assert not result.changed
        assert [finding.code for finding in result.findings] == ["NPU829"]

    @pytest.mark.parametrize(
        "text", ["cat <<'E'\nx.cuda()\nE", "echo 'x.cuda()'", "grep -c 'cuda'"]
    )
    def test_other_text_is_left(self, text: str) -> None:
        assert not rewrite(text).findings
        assert not any(isinstance(token, InlinePython) for token in shell.tokenize(text))

    def test_python_2_is_left(self) -> None:
        assert not rewrite("python -c 'print \"cuda\"'").findings


class TestMakefiles:
    def test_make_expands_first(self) -> None:
        text = 'a:\n\t@b $$CUDA_HOME $(CUDA_PATH) "$(shell c $(D))" $@ $$(e)\n\n\t-f\nG = h$(I)\n'
        tokens = makefile.tokenize(text)
        _hold_places(text, tokens)
        names = {token.name for token in tokens if isinstance(token, Parameter)}
        assert names == {"CUDA_HOME", "CUDA_PATH", "D", "I"}
        first = {token.words[0].text for token in tokens if isinstance(token, Command)}
        assert first == {"b", "c", "e", "f", "h$(I)"}

    def test_a_recipe_that_only_make_understands_costs_nothing(self) -> None:
        text = "define A\n\techo 'it\nendef\nb:\n\tCUDA_VISIBLE_DEVICES=0 c\n"
        assert "ASCEND_RT_VISIBLE_DEVICES=0 c" in rewrite(text, "Makefile").text

    @pytest.mark.skipif(shutil.which("make") is None, reason="compares recipes by running make")
    def test_a_renamed_makefile_does_what_it_did(self) -> None:
        text = (
            "CUDA_VISIBLE_DEVICES ?= 0,1\nexport CUDA_VISIBLE_DEVICES\n"
            "X = $(CUDA_VISIBLE_DEVICES)!\nall: export CUDA_LAUNCH_BLOCKING = 1\nall:\n"
            "\t@echo $$CUDA_VISIBLE_DEVICES $X \\\n\t\t$${CUDA_LAUNCH_BLOCKING}\n"
            "\t@CUDA_VISIBLE_DEVICES=3 sh -c 'echo $$CUDA_VISIBLE_DEVICES'\n"
        )
        environ = {"PATH": os.environ["PATH"]}  # and nothing of a make that runs the tests
        runs = [
            subprocess.run(
                ["make", "-f", "-", "all"], input=t, capture_output=True, text=True, env=environ
            )
            for t in (text, rewrite(text, "Makefile").text)
        ]
        assert runs[0].stdout == runs[1].stdout == "0,1 0,1! 1\n3\n"


def test_directives() -> None:
    text = "#!/bin/sh\n#SBATCH -G 4 # gpus\n##SBATCH -G 8\n #SBATCH -G 2\n"
    (token,) = (token for token in shell.tokenize(text) if isinstance(token, Directive))
    assert [word.text for word in token.words] == ["-G", "4"]


def test_windows_line_ends_stay() -> None:
    data = (
        b"export CUDA_VISIBLE_DEVICES=0\r\ncat <<E\r\n$CUDA_VISIBLE_DEVICES\r\nE\r\nnvidia-smi\r\n"
    )
    new, result = formats.rewrite_bytes(data, Options(), path="a.sh")
    assert new == data.replace(b"CUDA_V", b"ASCEND_RT_V")
    assert [finding.code for finding in result.remaining] == ["NPU826"]


def test_comments_keep_rules_away() -> None:
    assert not rewrite("nvidia-smi  # cuda2npu: ignore[NPU826]\n").findings
    assert not rewrite("python -c 'x.cuda()'  # cuda2npu: ignore[NPU101]\n").changed
    assert not rewrite("# cuda2npu: skip-file\nCUDA_VISIBLE_DEVICES=0 a\n").changed


def test_unsafe_edits_follow() -> None:
    text = 'a --device "cuda:$1"\nx="CUDA_VISIBLE_DEVICES=0 python b.py"\n'
    assert rewrite(text, unsafe=True).text == (
        'a --device "npu:$1"\nx="ASCEND_RT_VISIBLE_DEVICES=0 python b.py"\n'
    )


def test_options_that_the_project_is_known_to_take_are_safe() -> None:
    sinks = {"dist_backend": frozenset({"backend"}), "device": frozenset({"device", "foreign"})}
    known = Knowledge(sinks=sinks, programs={"/x/a.py": frozenset({"device", "dist_backend"})})
    for text, after in (
        ("python a.py --dist-backend nccl", "python a.py --dist-backend hccl"),
        ("srun torchrun -m a --dist-backend nccl", "srun torchrun -m a --dist-backend hccl"),
        ("python a.py --dist-backend=nccl --device cuda", None),
        ("python a.py --device cuda", None),
        ("a --dist-backend nccl", None),
        ("python b.py --dist-backend nccl", None),
        ("cd tools && python a.py --dist-backend nccl", None),
        ('ARGS="a.py --dist-backend nccl"', None),
    ):
        data = text.encode()
        new = formats.rewrite_bytes(data, Options(), path="a.sh", knowledge=known)
        assert new[0].decode() == (after or text)
        assert new[1].findings[0].fix.value == ("safe" if after else "unsafe")


class TestCommandLine:
    """A folder with one file of each kind, in real processes."""

    @pytest.fixture
    def project(self, tmp_path: Path) -> Path:
        folder = tmp_path / "project"
        (folder / "jobs").mkdir(parents=True)
        (folder / "a.py").write_text("import torch\nx.cuda()\n")
        (folder / "train.sh").write_text(
            "#!/bin/sh\nCUDA_VISIBLE_DEVICES=0 python a.py\nnvidia-smi\n"
        )
        (folder / "train.sh").chmod(0o755)
        (folder / "jobs" / "job.slurm").write_text("#SBATCH --gres=gpu:1\nexport NCCL_DEBUG=INFO\n")
        (folder / "Makefile").write_text("a:\n\tCUDA_VISIBLE_DEVICES=0 python a.py\n")
        (folder / "README.md").write_text("CUDA_VISIBLE_DEVICES=0 sh train.sh\n")
        cell = {
            "cell_type": "code",
            "source": "import torch\nx.cuda()",
            "metadata": {},
            "outputs": [],
        }
        notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
        (folder / "nb.ipynb").write_text(json.dumps(notebook))
        return folder

    def run(self, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "cuda2npu", *arguments]
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)
        assert "Traceback" not in done.stderr
        return done

    def test_check(self, project: Path) -> None:
        done = self.run("check", "project", "--format", "json", cwd=project.parent)
        assert done.returncode == 1
        found = {(item["path"], item["code"]) for item in json.loads(done.stdout)["findings"]}
        assert found == {
            ("project/Makefile", "NPU820"),
            ("project/a.py", "NPU101"),
            ("project/jobs/job.slurm", "NPU822"),
            ("project/jobs/job.slurm", "NPU827"),
            ("project/nb.ipynb", "NPU101"),
            ("project/train.sh", "NPU820"),
            ("project/train.sh", "NPU826"),
        }

    def test_diff_is_a_patch_that_applies(self, project: Path) -> None:
        patch = self.run("rewrite", ".", "--diff", cwd=project).stdout
        assert patch.count("\n+++ b/") == 4
        subprocess.run(["git", "apply", "-"], cwd=project, input=patch, text=True, check=True)
        assert self.run("rewrite", ".", "--diff", cwd=project).stdout == ""

    def test_output_converts_and_copies(self, project: Path) -> None:
        done = self.run("rewrite", "project", "--output", "new", cwd=project.parent)
        assert done.returncode == 0
        new = project.parent / "new"
        assert (
            (new / "train.sh").read_text().splitlines()[1].startswith("ASCEND_RT_VISIBLE_DEVICES=0")
        )
        assert (new / "train.sh").stat().st_mode & 0o777 == 0o755
        assert "torch_npu" in (new / "nb.ipynb").read_text()
        assert (new / "README.md").read_text() == (project / "README.md").read_text()
        assert "new/train.sh:3:1: NPU826" in done.stdout

    def test_a_named_script_goes_by_its_first_line(self, tmp_path: Path) -> None:
        (tmp_path / "run").write_text("#!/usr/bin/env bash\nexport CUDA_VISIBLE_DEVICES=0\n")
        assert self.run("rewrite", "run", cwd=tmp_path).returncode == 0
        assert "ASCEND" in (tmp_path / "run").read_text()

    def test_a_broken_script_is_named_and_the_others_are_done(self, project: Path) -> None:
        (project / "b.sh").write_text("echo 'CUDA_VISIBLE_DEVICES\n")
        done = self.run("rewrite", ".", cwd=project)
        assert done.returncode == 2
        assert "error: b.sh: line 1: what opens here is never closed by '." in done.stderr
        assert "npu()" in (project / "a.py").read_text()

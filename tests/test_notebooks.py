"""Notebooks: code cells are one program, every byte outside their changed lines stays."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuda2npu import formats
from cuda2npu.engine import rewrite_source
from cuda2npu.formats.json_text import lines, members, offsets, parse
from cuda2npu.formats.magics import python_of
from cuda2npu.formats.positions import Lines
from cuda2npu.model import Options, Result, SourceError, Target

PYTHON = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}


def code(source: str, **more: Any) -> dict[str, Any]:
    cell: dict[str, Any] = {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
    }
    return {**cell, "source": source.splitlines(keepends=True), **more}


def notebook(*cells: dict[str, Any] | str, **more: Any) -> dict[str, Any]:
    made = [code(cell) if isinstance(cell, str) else cell for cell in cells]
    top = {"cells": made, "metadata": PYTHON, "nbformat": 4, "nbformat_minor": 4}
    return {**top, **more}


def dumped(*cells: dict[str, Any] | str, **more: Any) -> bytes:
    return (json.dumps(notebook(*cells, **more), indent=1, ensure_ascii=False) + "\n").encode()


def rewrite(data: bytes, options: Options | None = None) -> tuple[bytes, Result]:
    return formats.rewrite_bytes(data, options or Options(), path="nb.ipynb")


def sources(data: bytes) -> list[str]:
    """The sources of the cells, of a notebook that nbformat finds valid."""
    loaded = nbformat.reads(data.decode(), as_version=4)  # type: ignore[no-untyped-call]
    nbformat.validate(loaded)
    return [cell["source"] for cell in loaded["cells"]]


class TestOneProgram:
    def test_imports_and_names_hold_across_cells(self) -> None:
        data = dumped("import torch as th", "from torch import nn", "m = nn.Linear(2, 2).cuda()")
        new, _ = rewrite(data)
        assert sources(new) == [
            "import torch as th\nimport torch_npu  # noqa: F401",
            "from torch import nn",
            "m = nn.Linear(2, 2).npu()",
        ]

    def test_a_class_of_another_cell_that_defines_cuda_makes_the_call_unsafe(self) -> None:
        cells = ("class Net:\n    def cuda(self): return self", "Net().cuda()")
        _, result = rewrite(dumped(*cells))
        assert not result.changed
        fixes = {finding.code: finding.fix.value for finding in result.findings}
        assert fixes["NPU101"] == "unsafe"

    def test_imports_that_became_unused_go_with_their_line(self) -> None:
        cells = ("import torch\nfrom torch import cuda", "cuda.synchronize()")
        new, _ = rewrite(dumped(*cells))
        alone = rewrite_source("\n".join(cells), Options()).text
        assert "\n".join(sources(new)) == alone

    def test_every_other_byte_stays(self) -> None:
        outputs = [{"name": "stdout", "output_type": "stream", "text": ["on cuda\n"]}]
        data = dumped(
            {"cell_type": "markdown", "metadata": {}, "source": ["torch.cuda"]},
            code("import torch\nx.cuda()\nprint('cuda é')  ", outputs=outputs, id="a1"),
            metadata={**PYTHON, "accelerator": "GPU", "note": "cuda"},
            nbformat_minor=5,
        )
        new, _ = rewrite(data)
        changed = [line for line in new.splitlines() if line not in data.splitlines()]
        assert [line.strip() for line in changed] == [
            b'"import torch_npu  # noqa: F401\\n",',
            b'"x.npu()\\n",',
        ]
        assert new.replace(changed[0] + b"\n", b"").replace(b"x.npu()", b"x.cuda()") == data

    def test_unchanged_bytes_are_the_same_object(self) -> None:
        data = dumped("cuda = 1", "print('cuda')")
        assert rewrite(data)[0] is data

    def test_a_second_run_changes_nothing(self) -> None:
        new, _ = rewrite(dumped("import torch", "x.cuda()", "%time y.cuda()"))
        assert rewrite(new)[0] is new

    def test_the_shim_goes_into_a_notebook(self) -> None:
        new, _ = rewrite(dumped("import torch", "x.cuda()"), Options(target=Target.SHIM))
        assert "transfer_to_npu" in sources(new)[0]


class TestSpelling:
    @pytest.mark.parametrize("ascii_only", [False, True])
    @pytest.mark.parametrize("indent", [None, 1, 4])
    @pytest.mark.parametrize("end", ["", "\n", "\n\n"])
    def test_indent_escapes_and_end_stay(
        self, ascii_only: bool, indent: int | None, end: str
    ) -> None:
        made = notebook("import torch", "f('模型 😀', x.cuda(), \"\\t\")\ny = 1")
        text = json.dumps(made, indent=indent, ensure_ascii=ascii_only) + end
        expected = notebook(
            "import torch\nimport torch_npu  # noqa: F401",
            "f('模型 😀', x.npu(), \"\\t\")\ny = 1",
        )
        new, _ = rewrite(text.encode())
        assert new.decode() == json.dumps(expected, indent=indent, ensure_ascii=ascii_only) + end

    def test_uncommon_escapes_stay(self) -> None:
        data = dumped("import torch", "x = '/<' + y.cuda()").replace(b"/<", b"\\/\\u003C")
        assert b"'\\/\\u003C' + y.npu()" in rewrite(data)[0]

    def test_source_as_one_string(self) -> None:
        data = json.dumps(notebook(code("") | {"source": "import torch\nx.cuda()\n"})).encode()
        new, _ = rewrite(data)
        assert b'"import torch\\nimport torch_npu  # noqa: F401\\nx.npu()\\n"' in new

    def test_mark_and_windows_line_ends(self) -> None:
        data = b"\xef\xbb\xbf" + dumped("import torch", "x.cuda()").replace(b"\n", b"\r\n")
        new, _ = rewrite(data)
        assert new.startswith(b"\xef\xbb\xbf{\r\n")
        assert b'"import torch\\n",\r\n    "import torch_npu  # noqa: F401"\r\n' in new

    def test_format_3(self) -> None:
        cells = [
            {"cell_type": "code", "collapsed": False, "input": ["import torch\n", "x.cuda()"],
             "language": "python", "metadata": {}, "outputs": []},
        ]  # fmt: skip
        old = {"metadata": {"name": ""}, "nbformat": 3, "nbformat_minor": 0,
               "worksheets": [{"cells": cells, "metadata": {}}]}  # fmt: skip
        new, _ = rewrite(json.dumps(old, indent=1).encode())
        assert sources(new) == ["import torch\nimport torch_npu  # noqa: F401\nx.npu()"]


class TestMagics:
    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ("%matplotlib inline\nx.cuda()", "%matplotlib inline\nx.npu()"),
            ("%%time\nx.cuda()", "%%time\nx.npu()"),
            ("%%capture out --no-stderr\nx.cuda()", "%%capture out --no-stderr\nx.npu()"),
            ("%timeit -n 10 x.cuda()", "%timeit -n 10 x.npu()"),
            ("%time y = x.cuda()", "%time y = x.npu()"),
            ("for i in y:\n    !echo {i}\n    x.cuda()", "for i in y:\n    !echo {i}\n    x.npu()"),
            ("files = !ls 'it''s\nx.cuda()", "files = !ls 'it''s\nx.npu()"),
            ("!pip install a \\\n  cuda\nx.cuda()", "!pip install a \\\n  cuda\nx.npu()"),
            ("x.cuda?\n?x.cuda\nx.cuda??\nx.cuda()", "x.cuda?\n?x.cuda\nx.cuda??\nx.npu()"),
            ("y = (a\n  % b)\n%cd 'cuda\nx.cuda()", "y = (a\n  % b)\n%cd 'cuda\nx.npu()"),
            ("!nvcc -x cuda '\nx.cuda()", "!nvcc -x cuda '\nx.npu()"),
        ],
    )
    def test_python_around_them_is_rewritten(self, before: str, after: str) -> None:
        new, result = rewrite(dumped("import torch", before))
        assert sources(new)[1] == after
        assert not result.notes

    @pytest.mark.parametrize(
        ("cell", "note"),
        [
            ("%%cu\n__global__ void f() {} // cuda", "cell 2: %%cu is not Python. Left as it was."),
            ("%%html\n<b>cuda</b>", "cell 2: %%html is not Python. Left as it was."),
            ("x = torch.cuda.(", "cell 2, line 1: invalid syntax. Mend the syntax"),
            ("%%javascript\nlet x;", ""),
            ("broken(", ""),
        ],
    )
    def test_a_cell_that_is_no_python_is_left_and_named(self, cell: str, note: str) -> None:
        new, result = rewrite(dumped("import torch", cell, "x.cuda()"))
        assert sources(new)[1:] == [cell, "x.npu()"]
        assert [*result.notes, ""][0].startswith(note)
        assert bool(result.notes) == bool(note)

    def test_a_file_that_a_cell_writes_is_a_program_of_its_own(self) -> None:
        new, _ = rewrite(dumped("%%writefile a.py\nimport torch\nx.cuda()"))
        expected = "%%writefile a.py\nimport torch\nimport torch_npu  # noqa: F401\nx.npu()"
        assert sources(new) == [expected]

    @given(st.text("%!?x=\n\r \\'\"(){}#é0time", max_size=60))
    def test_what_is_blanked_out_keeps_its_place(self, cell: str) -> None:
        masked = python_of(cell)
        assert len(masked.text) == len(cell)
        assert [c for c in masked.text if c in "\r\n"] == [c for c in cell if c in "\r\n"]


class TestKernels:
    @pytest.mark.parametrize("language", ["R", "julia", "scala", "javascript"])
    def test_other_languages_are_left(self, language: str) -> None:
        metadata = {"kernelspec": {"language": language, "name": "x"}}
        data = dumped("import torch\nx.cuda()", metadata=metadata)
        new, result = rewrite(data)
        assert new is data
        assert not result.findings

    def test_python_2_is_refused_as_a_file_is(self) -> None:
        metadata = {"kernelspec": {"language": "python", "name": "python2"}}
        cells = ("import torch\nx.cuda()", "y = 1\nprint 'cuda'")
        with pytest.raises(SourceError, match=r"cell 2, line 2: Missing .* This is Python 2: "):
            rewrite(dumped(*cells, metadata=metadata))

    @pytest.mark.parametrize(
        "text", ["[]", "1", '{"a": 1}', '{"cells": 1}', '{"worksheets": []}', "{", "{} x", ""]
    )
    def test_no_notebook(self, text: str) -> None:
        with pytest.raises(SourceError, match=r"is no (JSON|notebook)"):
            rewrite(text.encode())


class TestPlaces:
    def test_findings_name_the_cell_and_the_line_of_the_file(self) -> None:
        data = dumped("import torch", code("y = 1\nz = '\\t' + x.cuda()"))
        _, result = rewrite(data)
        (finding,) = result.findings
        assert finding.cell is not None
        assert finding.cell[:6] == (2, 2, 14, 2, 18, "z = '\\t' + x.cuda()")
        line = data.decode().split("\n")[finding.line - 1]
        assert line[finding.column - 1 : finding.end_column - 1] == "cuda"

    @pytest.mark.parametrize(
        ("cell", "found"),
        [
            ("%set_env CUDA_VISIBLE_DEVICES 0", ["NPU820"]),
            ("%env CUDA_VISIBLE_DEVICES 0", ["NPU820"]),
            ("%env CUDA_VISIBLE_DEVICES=0", ["NPU820"]),
            ("%run train.py --device cuda", ["NPU824"]),
            ("%run -i setup --device cuda", []),
            ("%env HOME cuda", []),
        ],
    )
    def test_magics_that_set_variables_and_run_programs(self, cell: str, found: list[str]) -> None:
        data = dumped(cell)
        after, result = rewrite(data)
        assert after is data
        assert [finding.code for finding in result.findings] == found

    def test_comments_keep_rules_away(self) -> None:
        _, result = rewrite(dumped("import torch", "x.cuda()  # cuda2npu: ignore[NPU101]"))
        assert not result.findings
        data = dumped("import torch\nx.cuda()", "# cuda2npu: skip-file")
        assert rewrite(data)[0] is data

    def test_notes_name_the_cell(self) -> None:
        _, result = rewrite(dumped("import torch", "y = 1\nx.cuda()  # cuda2npu: ignore[NPU999]"))
        assert result.notes[0].startswith("cell 2, line 2: ignore[NPU999]: no rule")


STRINGS = st.text(st.sampled_from("ab\\/\"'\n\u2028é😀\x7f\t<{["), max_size=30)


@given(STRINGS, st.booleans())
def test_each_character_of_a_string_is_found(value: str, ascii_only: bool) -> None:
    text = json.dumps({"a": [value], "b": value}, ensure_ascii=ascii_only)
    string = members(text, parse(text))["b"]
    places = offsets(text, string)
    assert len(places) == len(value) + 1
    for index, character in enumerate(value):
        assert json.loads(f'"{text[places[index] : places[index + 1]]}"') == character
    cut = lines(text[string.start + 1 : string.end - 1])
    assert [json.loads(f'"{line}"') for line in cut] == [
        line for line in value.replace("\n", "\n\0").split("\0") if line
    ]


LINES = st.sampled_from(
    [
        "import torch\n", "x = y.cuda()\n", "%time x.cuda()\n", "!nvidia-smi 'a\n", "\n",
        "if torch.cuda.is_available():\n    x.to('cuda:0')  # 模型\n", "print('cuda \\n')\n",
        "from torch.cuda.amp import autocast\n", "with autocast(): f('😀', \"\\u00e9\")\n",
        "z = torch.zeros(2,\n    device='cuda',\n)\n", "from torch import cuda\n",
        "cuda.synchronize()\n", "def cuda(: \n", "'''\ncuda\n'''\n",
    ]
)  # fmt: skip
CELLS = st.lists(st.lists(LINES, max_size=5).map("".join), max_size=5)


@given(CELLS, st.booleans(), st.booleans(), st.sampled_from([None, 1, 2]), st.booleans())
def test_laws_over_made_up_notebooks(
    cells: list[str], strip: bool, ascii_only: bool, indent: int | None, one_string: bool
) -> None:
    made = [code(cell.rstrip("\n") if strip else cell) for cell in cells]
    if one_string:
        made = [cell | {"source": "".join(cell["source"])} for cell in made]
    text = json.dumps(notebook(*made), indent=indent, ensure_ascii=ascii_only)
    new, result = rewrite(text.encode())
    # What differs is what the same program, loaded, edited and dumped, would differ in.
    loaded = json.loads(new)
    assert new.decode() == json.dumps(loaded, indent=indent, ensure_ascii=ascii_only)
    assert {**loaded, "cells": None} == {**json.loads(text), "cells": None}
    for old, now in zip(json.loads(text)["cells"], loaded["cells"], strict=True):
        assert {**old, "source": None} == {**now, "source": None}
        if not one_string:
            assert "".join(now["source"]).splitlines(keepends=True) == now["source"]
    sources(new)
    assert _edited(text, result) == new.decode()
    assert rewrite(new)[0] is new
    assert result.changed == (new.decode() != text)


def _edited(text: str, result: Result) -> str:
    """The text with the edits that the result tells, which services offer as fixes."""
    lines = Lines(text)
    for edit in reversed(result.edits):
        start = lines.offset(edit.line, edit.column)
        text = text[:start] + edit.text + text[lines.offset(edit.end_line, edit.end_column) :]
    return text


class TestCommandLine:
    def run(self, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "cuda2npu", *arguments]
        return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)

    def test_check_and_rewrite(self, tmp_path: Path) -> None:
        (tmp_path / "nb.ipynb").write_bytes(dumped("import torch", "y = 1\nx.cuda()"))
        done = self.run("check", "nb.ipynb", cwd=tmp_path)
        assert done.stdout.startswith("nb.ipynb:cell 2:2:3: NPU101 ")
        assert "    2 | x.cuda()\n      |   ^^^^\n" in done.stdout
        listed = json.loads(self.run("check", ".", "--format", "json", cwd=tmp_path).stdout)
        (finding,) = listed["findings"]
        assert (finding["cell"], finding["line"], finding["column"]) == (2, 19, 8)
        patch = self.run("rewrite", "nb.ipynb", "--diff", cwd=tmp_path).stdout
        assert '-    "x.cuda()"\n+    "x.npu()"\n' in patch
        assert self.run("rewrite", ".", cwd=tmp_path).returncode == 0
        assert sources((tmp_path / "nb.ipynb").read_bytes())[1] == "y = 1\nx.npu()"

    def test_findings_that_remain_have_their_line_in_the_new_cell(self, tmp_path: Path) -> None:
        cell = "import torch\ntorch.cuda.comm.broadcast(x)\nx.cuda()"
        (tmp_path / "nb.ipynb").write_bytes(dumped(cell))
        done = self.run("rewrite", "nb.ipynb", cwd=tmp_path)
        assert done.stdout.startswith("nb.ipynb:cell 1:3:1: NPU")
        assert "    3 | torch.cuda.comm.broadcast(x)\n" in done.stdout

from __future__ import annotations

import io
import json
import re
import subprocess
from pathlib import Path

import pytest
from rich.cells import cell_len

from cuda2npu.model import Finding, FixLevel, UsageError
from cuda2npu.project import Mode, Outcome
from cuda2npu.report import FORMATS, reporter, tags, wants_color
from cuda2npu.report.diff import diff
from cuda2npu.report.full import FullReporter, excerpt
from cuda2npu.report.progress import Progress
from cuda2npu.report.summary import Summary


def finding(
    line: int = 1,
    column: int = 1,
    end: int = 5,
    *,
    code: str = "NPU101",
    path: str = "a.py",
    message: str = "say: 50%, then\nmore",
    fix: FixLevel = FixLevel.SAFE,
    quiet: bool = False,
    applied: bool = False,
    end_line: int | None = None,
) -> Finding:
    last = end_line or line
    return Finding(
        path, line, column, last, end, code, "a-name", message, fix, quiet, applied=applied
    )


def outcome(
    *findings: Finding, excerpts: tuple[str, ...] = (), error: str | None = None
) -> Outcome:
    lines = excerpts or ("x = 1",) * len(findings)
    return Outcome("a.py", bool(findings), findings, lines, error)


class TestFull:
    def carets(self, line: str, start: int, end: int) -> list[str]:
        shown, padding, carets = excerpt(line, start, end)
        return [shown, padding + carets]

    def test_a_finding(self) -> None:
        text = FullReporter().add(outcome(finding(12, 5, 8), excerpts=("x = abc + 1",)))
        assert text.splitlines() == [
            "a.py:12:5: NPU101 say: 50%, then more [fixable]",
            "   12 | x = abc + 1",
            "      |     ^^^",
            "",
        ]

    def test_tabs_stay_tabs(self) -> None:
        assert self.carets("\tx.cuda()", 1, 9) == ["\tx.cuda()", "\t^^^^^^^^"]

    def test_wide_and_combining_characters(self) -> None:
        assert self.carets('s = "表"; y', 9, 10)[1] == " " * 10 + "^"
        assert self.carets("e\u0301 = y", 5, 6)[1] == " " * 4 + "^"
        assert self.carets("表", 0, 1)[1] == "^^"

    def test_control_characters_do_not_reach_the_terminal(self) -> None:
        assert "\x1b" not in self.carets("x = '\x1b[31m'", 0, 1)[0]

    def test_a_span_of_several_lines(self) -> None:
        text = FullReporter().add(outcome(finding(1, 5, 2, end_line=3), excerpts=("x = f(",)))
        assert text.splitlines()[2] == "      |     ^^ ..."

    def test_a_long_line_is_cut_around_the_place(self) -> None:
        line = "a" * 5000 + "cuda" + "b" * 5000
        shown, under = self.carets(line, 5000, 5004)
        assert len(shown) < 200
        place = under.index("^^^^")
        assert shown[place : place + 4] == "cuda"

    def test_a_place_behind_the_line_does_not_fail(self) -> None:
        assert self.carets("ab", 2, 3) == ["ab", "  ^"]

    def test_colour(self) -> None:
        assert "\x1b[" in FullReporter(color=True).add(outcome(finding()))
        assert "\x1b[" not in FullReporter().add(outcome(finding()))


def test_tags() -> None:
    assert tags(finding()) == "[fixable]"
    assert tags(finding(fix=FixLevel.NUMERICS)) == "[fixable, changes results]"
    assert tags(finding(fix=FixLevel.UNSAFE)) == "[fixable with --unsafe]"
    assert tags(finding(fix=FixLevel.NONE, quiet=True)) == "[by hand] [quiet]"


def test_concise_is_one_line_each() -> None:
    text = reporter("concise", color=False).add(outcome(finding(), finding(2)))
    assert text.splitlines() == [
        "a.py:1:1: NPU101 say: 50%, then more [fixable]",
        "a.py:2:1: NPU101 say: 50%, then more [fixable]",
    ]


class TestJson:
    def parsed(self, *outcomes: Outcome) -> dict[str, list[dict[str, object]]]:
        json_reporter = reporter("json", color=True)
        text = "".join(map(json_reporter.add, outcomes)) + json_reporter.end()
        result: dict[str, list[dict[str, object]]] = json.loads(text)
        return result

    def test_nothing(self) -> None:
        assert self.parsed() == {"findings": [], "errors": []}

    def test_shape(self) -> None:
        parsed = self.parsed(
            outcome(finding(quiet=True), finding(2, fix=FixLevel.NUMERICS)),
            outcome(error="cannot be read"),
        )
        assert parsed["errors"] == [{"path": "a.py", "message": "cannot be read"}]
        assert parsed["findings"][0] == {
            "path": "a.py",
            "line": 1,
            "column": 1,
            "end_line": 1,
            "end_column": 5,
            "code": "NPU101",
            "name": "a-name",
            "message": "say: 50%, then\nmore",
            "fix": "safe",
            "quiet": True,
        }
        assert parsed["findings"][1]["fix"] == "numerics"


class TestGithub:
    def test_escaping(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
        monkeypatch.chdir(tmp_path)
        text = reporter("github", color=False).add(outcome(finding(path="a,b:c.py")))
        assert text == (
            "::warning file=a%2Cb%3Ac.py,line=1,col=1,endColumn=5,endLine=1,"
            "title=NPU101 a-name::say: 50%25, then%0Amore [fixable]\n"
        )

    def test_paths_are_those_of_the_workspace(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "sub").mkdir()
        monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
        monkeypatch.chdir(tmp_path / "sub")
        github = reporter("github", color=False)
        assert "file=sub/a.py," in github.add(outcome(finding()))
        assert github.add(outcome(error="bad")) == "::error file=sub/a.py::bad\n"

    def test_several_lines_have_no_columns(self) -> None:
        assert "col" not in reporter("github", color=False).add(outcome(finding(end_line=3)))


def test_formats_that_are_not_there() -> None:
    with pytest.raises(UsageError, match="none of full"):
        reporter("xml", color=False)
    for name in FORMATS:
        reporter(name, color=False)


class TestColor:
    def test_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stream = io.StringIO()
        for name in ("NO_COLOR", "FORCE_COLOR"):
            monkeypatch.delenv(name, raising=False)
        assert not wants_color("auto", stream)
        assert wants_color("always", stream)
        monkeypatch.setenv("FORCE_COLOR", "1")
        assert wants_color("auto", stream)
        monkeypatch.setenv("NO_COLOR", "1")
        assert not wants_color("auto", stream)
        assert wants_color("always", stream)
        assert not wants_color("never", stream)


CASES = {
    "plain": (b"a\nb\nc\n", b"a\nB\nc\n"),
    "crlf": (b"a\r\nb\r\n", b"a\r\nB\r\n"),
    "mixed": (b"a\rb\r\nc\nd\n", b"a\rB\r\nc\nd\n"),
    "no last newline": (b"a\nb", b"a\nB"),
    "newline gained": (b"a\nb", b"a\nb\n"),
    "newline lost": (b"a\nb\n", b"a\nb"),
    "bom": (b"\xef\xbb\xbfa\nb\n", b"\xef\xbb\xbfA\nb\n"),
    "gbk": (b"# \xb1\xed\nb\n", b"# \xb1\xed\nB\n"),
    "one line to two": (b"a", b"a\nb"),
    "far apart": (b"a\n" + b"x\n" * 50 + b"b\n", b"A\n" + b"x\n" * 50 + b"B\n"),
    "form feed": (b"a\x0cb\nc\n", b"a\x0cb\nC\n"),
}


class TestDiff:
    @pytest.mark.parametrize("tool", [["git", "apply"], ["patch", "-p1", "--binary"]])
    @pytest.mark.parametrize("case", CASES)
    @pytest.mark.parametrize("name", ["a.py", "sub dir/b.py", "ä/表.py", 'q"uote.py'])
    def test_tools_accept_it(self, tmp_path: Path, tool: list[str], case: str, name: str) -> None:
        if tool[0] == "patch" and not name.isascii():
            name = "c.py"
        before, after = CASES[case]
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(before)
        patch = diff(name, before, after)
        subprocess.run(tool, input=patch, cwd=tmp_path, check=True, capture_output=True)
        assert path.read_bytes() == after

    def test_the_path_is_that_below_the_working_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert diff(str(tmp_path / "s/a.py"), b"a\n", b"b\n").startswith(b"--- a/s/a.py\n+++ b/s/")
        assert diff("./a.py", b"a\n", b"b\n").startswith(b"--- a/a.py\n")
        assert diff("/else/a.py", b"a\n", b"b\n").startswith(b"--- a/else/a.py\n")

    def test_colour_adds_only_colour(self) -> None:
        for before, after in CASES.values():
            plain = diff("a.py", before, after)
            colored = diff("a.py", before, after, color=True)
            assert colored != plain
            assert re.sub(rb"\x1b\[\d*m", b"", colored) == plain


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class TestProgress:
    def test_a_long_run_on_a_terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now = 0.0
        monkeypatch.setattr("cuda2npu.report.progress.time.monotonic", lambda: now)
        monkeypatch.setenv("COLUMNS", "100")
        monkeypatch.setenv("TERM", "xterm")
        stream = Terminal()
        progress = Progress([f"{number}.py" for number in range(9)], stream)
        for now in (0.1, 1.0, 1.05):
            progress.tell(round(10 * now))
        assert [line for line in ("1.py", "8.py") if line in stream.getvalue()] == []
        now = 1.2
        progress.tell(3)
        assert stream.getvalue().startswith("\r\x1b[K")
        assert re.search(r"3/9.*left.*3\.py$", stream.getvalue())
        progress.clear()
        progress.clear()
        assert stream.getvalue().endswith("3.py\r\x1b[K")

    def test_a_long_file_is_named_at_once(self, tmp_path: Path) -> None:
        large = tmp_path / "large.py"
        large.write_bytes(b"#" * 300_000)
        stream = Terminal()
        Progress([str(large)], stream).tell(0)
        assert "0/1" in stream.getvalue()

    @pytest.mark.parametrize("columns", [20, 61, 80, 200])
    def test_it_stays_on_one_line(self, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)
        stream = Terminal()
        progress = Progress(["表/\x1b[31m" + "a" * 300 + "/end.py"] * 5000, stream)
        progress._next = 0.0
        progress.tell(4000)
        shown = re.sub(r"\x1b\[[0-9;]*[mK]|\r", "", stream.getvalue())
        assert "\x1b" not in shown
        assert "\n" not in shown
        assert cell_len(shown) < columns
        assert ("/end.py" in shown) is (columns > 60)

    @pytest.mark.parametrize("term", ["dumb", "xterm"])
    def test_nothing_off_a_terminal(self, monkeypatch: pytest.MonkeyPatch, term: str) -> None:
        monkeypatch.setenv("TERM", term)
        stream = Terminal() if term == "dumb" else io.StringIO()
        for target in (stream, None):
            progress = Progress(["a.py"] * 9, target)
            progress._next = 0.0
            progress.tell(1)
            progress.clear()
            progress.stop()
        assert stream.getvalue() == ""


class TestSummary:
    def text(self, mode: Mode, *outcomes: Outcome) -> str:
        summary = Summary(mode)
        for item in outcomes:
            summary.add(item)
        return summary.text()

    def test_check_tells_quiet_findings_first(self) -> None:
        text = self.text(
            Mode.CHECK,
            outcome(
                finding(applied=True),
                finding(2, applied=True),
                finding(3, code="NPU900", quiet=True),
            ),
            outcome(),
        )
        assert text.startswith("3 findings in 1 file, 2 files looked at.\n")
        assert text.index("NPU900") < text.index("NPU101")
        assert "    2  NPU101  a-name  [fixable]" in text
        assert "[quiet]: does not fail on an NPU machine" in text
        assert "`cuda2npu rewrite` makes the fixable edits" in text

    def test_rewrite_names_each_change_of_results(self) -> None:
        numerics = finding(7, fix=FixLevel.NUMERICS, applied=True, message="nearest, not bilinear")
        text = self.text(Mode.WRITE, outcome(numerics, finding(applied=True)))
        assert text.startswith("1 file looked at, 1 changed, 2 edits.\n")
        assert "Changing results: 1 edit; --preserve-numerics keeps the original:" in text
        assert "  a.py:7: NPU101 nearest, not bilinear" in text
        assert "Next: read the changes" in text

    def test_rewrite_counts_what_remains(self) -> None:
        text = self.text(Mode.WRITE, outcome(finding(fix=FixLevel.NONE)))
        assert "1 finding left for you:" in text
        assert "Next: go through the findings" in text

    def test_errors_are_named(self) -> None:
        text = self.text(Mode.WRITE, outcome(error="line 1: no"))
        assert "error: a.py: line 1: no\n" in text
        assert "Next: mend the files named above" in text

    def test_diff_says_how_to_write(self) -> None:
        assert "without --diff" in self.text(Mode.DIFF, outcome(finding(applied=True)))

    def test_nothing_found(self) -> None:
        assert self.text(Mode.CHECK, outcome()) == "No findings, 1 file looked at.\n"
        assert "Next: nothing to do." in self.text(Mode.WRITE, outcome())

    def test_stopped(self) -> None:
        summary = Summary(Mode.WRITE)
        summary.add(outcome())
        text = summary.text(stopped=True, waiting=4)
        assert "Stopped: 1 file done, up to a.py; 4 not begun; every file is whole." in text
        assert "Changed:" not in text
        assert text.endswith("Next: the same command does the rest.\n")
        summary.add(outcome(finding(applied=True)))
        assert "\nChanged: a.py\n" in summary.text(stopped=True, waiting=3)

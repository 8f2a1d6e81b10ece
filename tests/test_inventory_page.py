"""The page of ``check --report``, looked at in a real browser."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, browser

from cuda2npu.model import Finding, FixLevel
from cuda2npu.project import Outcome
from cuda2npu.report import page as page_module
from cuda2npu.report.diff_rows import diff_rows
from cuda2npu.report.inventory import Inventory
from cuda2npu.report.page import Page

TAKE = "document.title='taken'"
EVIL = f'</script><script>{TAKE}</script><img src=x onerror="{TAKE}">&\'`${{{TAKE}}}'
EVIL_NAME = EVIL.replace("/", "%") + ".py"
SOURCES = {
    EVIL_NAME: "import torch\nx = torch.ones(1).cuda()  "
    f"# {EVIL} \u2028 \u202e \x0c \x1b[31m -->\n",
    "a/long.py": f"import torch\nx = [{'0, ' * 50_000}]; y = torch.ones(1).cuda()\n",
    "a/setup.py": "from torch.utils.cpp_extension import CUDAExtension\n"
    f"ext = CUDAExtension(name={EVIL!r}, sources=[])\n",
    "b/resize.py": "import torch.nn.functional as F\ndef f(x):\n    return F.interpolate(\n"
    "        x, scale_factor=2, mode='bilinear')\n",
    "b/quiet.py": "import torch\nif torch.cuda.is_available():\n    pass\n",
    "c/broken.py": f"import torch\nprint 'cuda {EVIL}'\n",
    **{f"many/m{n:03}.py": "import torch\nx = torch.ones(1).cuda()\n" * 3 for n in range(80)},
}
COMMAND = [sys.executable, "-m", "cuda2npu", "check"]


def check(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    command = [*COMMAND, *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=120)
    assert b"Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a project that tries to take it over."""
    folder = tmp_path_factory.mktemp("project")
    for name, text in SOURCES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())
    latin = b"# coding: latin-1\nimport torch\nx = torch.ones(1).cuda()  # \xe9\n"
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff.py")).write_bytes(latin)
    page = folder / "out.html"
    done = check(folder, ".", "--report", page)
    assert done.returncode == 2  # one file does not parse
    return page


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


TOLD = "document.getElementById('told').textContent"
PLACES = "[...document.querySelectorAll('#rows tr td:first-child')].map(cell => cell.textContent)"
WIDTHS = "[document.documentElement.scrollWidth, innerWidth]"


def column(number: int) -> str:
    cell = f"#rows tr td:nth-child({number})"
    return f"[...document.querySelectorAll('{cell}')].map(cell => cell.textContent)"


def choose(name: str, value: str) -> str:
    field = f"document.getElementById('filters').elements.{name}"
    event = "new Event('input', {bubbles: true})"
    return f"{{ {field}.value = {value!r}; {field}.dispatchEvent({event}) }}"


class TestBrowser:
    def test_nothing_of_the_users_code_runs(self, tab: Browser, written: Path) -> None:
        tab.open(written)
        title = tab.run("document.title")
        tab.run("document.querySelectorAll('details').forEach(file => { file.open = true })")
        assert tab.run("document.title") == title
        assert "taken" not in title
        assert tab.run("document.querySelectorAll('img, script:not([type])').length") == 1
        assert tab.requests == [written.as_uri()]
        assert tab.faults == []
        text = tab.run("document.body.textContent")
        assert text.count(EVIL) > 3
        assert "\u202e" not in text
        assert "\x1b" not in text

    def test_it_finds_a_finding_by_its_file(self, tab: Browser, written: Path) -> None:
        tab.open(written)
        assert tab.run(TOLD) == "246 of 246 findings, the first 200 shown"
        tab.run("document.querySelector('input[name=file]').focus()")
        tab.send("Input.insertText", text="B/RESIZE")
        assert tab.run(PLACES) == ["b/resize.py:3"]
        assert tab.run(TOLD) == "1 of 246 findings"
        shown = "[...document.querySelectorAll('details.file')].filter(file => !file.hidden).length"
        assert tab.run(shown) == 1
        tab.run("document.querySelector('#rows a').click()")
        time.sleep(0.1)
        assert tab.run("document.querySelector('.here').closest('details').open")
        assert "NPU401" in tab.run("document.querySelector('.here').textContent")
        diff = tab.run("document.querySelector('.here').closest('.diff').innerText")
        assert "-        x, scale_factor=2, mode='bilinear')" in diff
        assert "+        x, scale_factor=2, mode='nearest')" in diff

    def test_it_filters(self, tab: Browser, written: Path) -> None:
        tab.open(written)
        tab.run(choose("rule", "NPU520"))
        assert tab.run(PLACES) == ["a/setup.py:2"]
        tab.run(choose("rule", ""))
        tab.run(choose("quiet", "quiet"))
        assert set(tab.run(column(4))) == {"quiet"}
        assert "b/quiet.py:2" in tab.run(PLACES)
        tab.run(choose("quiet", ""))
        tab.run(choose("level", "numerics"))
        assert set(tab.run(column(3))) == {"fixable, changes results"}
        tab.run(choose("level", ""))
        tab.run(choose("left", "left"))
        assert set(tab.run(column(5))) == {"you"}
        tab.run(choose("left", ""))
        tab.run(choose("text", "nothing like that"))
        assert tab.run(TOLD) == "0 of 246 findings"
        tab.run(choose("text", ""))
        tab.run("document.getElementById('more').click()")
        assert tab.run(TOLD) == "246 of 246 findings"
        assert len(tab.run(PLACES)) == 246

    def test_it_sorts_with_the_keyboard(self, tab: Browser, written: Path) -> None:
        tab.open(written)
        tab.run("document.querySelector('select[name=left]').focus()")
        for _ in range(3):  # the box of the table, the first heading, the second one
            tab.press("Tab", 9)
        focused = "document.activeElement.closest('th').dataset.key"
        assert tab.run(focused) == "code"
        sorting = "document.activeElement.closest('th').getAttribute('aria-sort')"
        for expected in ("ascending", "descending"):
            tab.press("Enter", 13, "\r")
            assert tab.run(sorting) == expected
            tab.run("document.getElementById('more').click()")
            codes = tab.run(column(2))
            assert codes == sorted(codes, reverse=expected == "descending")
        assert codes[0].startswith("NPU520")

    @pytest.mark.parametrize("width", [320, 360, 1100])
    def test_it_fits(self, tab: Browser, written: Path, width: int) -> None:
        for dark in (False, True):
            tab.open(written, width=width, dark=dark)
            tab.run("document.querySelectorAll('details').forEach(file => { file.open = true })")
            content, window = tab.run(WIDTHS)
            assert content <= window == width
            colours = "['color', 'backgroundColor'].map(n => getComputedStyle(document.body)[n])"
            ink = tab.run(colours)[0]
            assert ink == ("rgb(255, 255, 255)" if dark else "rgb(0, 0, 0)")
        # The table and a long line scroll in boxes of their own.
        assert tab.run("getComputedStyle(document.getElementById('table')).overflowX") == "auto"
        long = "Math.max(...[...document.querySelectorAll('.diff')].map(box => box.scrollWidth))"
        assert width < tab.run(long) < 6000

    def test_without_scripts_the_files_are_there(self, tab: Browser, written: Path) -> None:
        tab.send("Emulation.setScriptExecutionDisabled", value=True)
        try:
            tab.open(written)
            assert "The table needs JavaScript" in tab.run("document.body.innerText")
            assert tab.run("document.querySelectorAll('details.file').length") > 80
        finally:
            tab.send("Emulation.setScriptExecutionDisabled", value=False)


def test_nothing_is_loaded(written: Path) -> None:
    text = written.read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    assert "'unsafe-inline'; base-uri" in text
    assert not re.search(r"https?://|\bhref=\"(?!#)|url\(|@import|<link", text)
    assert text.count("<script>") == 1


class TestWriting:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        (tmp_path / "a.py").write_text("import torch\nx = torch.ones(1).cuda()\n")
        return tmp_path

    @pytest.mark.parametrize(
        ("name", "fault"),
        [
            ("a.py", "the name has to end in .html"),
            ("none/out.html", "there is no folder none"),
            ("dir.html", "is a folder"),
        ],
    )
    def test_a_path_that_cannot_be_written(self, folder: Path, name: str, fault: str) -> None:
        (folder / "dir.html").mkdir()
        done = check(folder, ".", "--report", name)
        assert done.returncode == 2
        assert done.stdout == b""  # before the work began
        assert done.stderr.decode() == f"error: --report {name}: {fault}\n"
        assert (folder / "a.py").read_text().startswith("import torch")

    def test_the_page_is_whole_and_nothing_else_is_left(self, folder: Path) -> None:
        page = folder / "out.html"
        page.write_text("old")
        assert check(folder, ".", "--report", page).returncode == 1
        assert page.read_text().endswith("</body></html>\n")
        assert sorted(path.name for path in folder.iterdir()) == ["a.py", "out.html"]
        mask = os.umask(0)
        os.umask(mask)
        assert stat.S_IMODE(page.stat().st_mode) == 0o666 & ~mask

    def test_stdin_and_a_reader_that_leaves(self, folder: Path) -> None:
        command = " ".join([*COMMAND, "-", "--report", "out.html", "< a.py | head -c 1"])
        subprocess.run(command, shell=True, cwd=folder, timeout=60, capture_output=True)
        assert "NPU101" in (folder / "out.html").read_text()

    def test_no_findings(self, folder: Path) -> None:
        (folder / "a.py").write_text("x = 1\n")
        assert check(folder, ".", "--report", "out.html").returncode == 0
        assert "No findings." in (folder / "out.html").read_text()

    def test_ctrl_c_leaves_the_old_page(self, folder: Path) -> None:
        page = folder / "out.html"
        page.write_text("old")
        lines = "\n".join(f"x{number} = torch.ones({number}).cuda()" for number in range(400))
        for number in range(20):
            (folder / f"b{number:02}.py").write_text(f"import torch\n{lines}\n")
        process = subprocess.Popen(
            [*COMMAND, ".", "--report", page, "--jobs", "1", "--format", "concise"],
            cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, messages = process.communicate(timeout=60)
        assert process.returncode == 130
        assert b"Stopped: " in messages
        assert page.read_text() == "old"
        assert list(folder.glob(".cuda2npu-*")) == []


class TestSize:
    """What is cut is said."""

    def page(self, folder: Path, files: int, findings: int) -> str:
        inventory = Inventory()
        source = b"x.cuda()\n" * findings
        with Page(folder / "out.html", "title", "subtitle") as page:
            for number in range(files):
                path = f"{number}.py"
                found = tuple(
                    Finding(path, line, 1, line, 2, "NPU101", "n", "m", FixLevel.SAFE, False)
                    for line in range(1, findings + 1)
                )
                outcome = Outcome(path, True, found, before=source, after=source * 2)
                inventory.add(outcome)
                page.add(outcome)
            page.end(inventory, ())
        return (folder / "out.html").read_text()

    def test_nothing_is_cut(self, tmp_path: Path) -> None:
        text = self.page(tmp_path, 2, 3)
        assert "left out" not in text
        assert "The table has" not in text

    def test_findings(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(page_module, "TABLE", 5)
        text = self.page(tmp_path, 2, 3)
        assert "The table has the first 5 of 6 findings." in text

    def test_diffs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(page_module, "DIFFS", 1)
        text = self.page(tmp_path, 3, 3)
        assert "The diffs of the last 2 files are left out." in text
        assert text.count('class="diff"') == 1

    def test_lines(self, tmp_path: Path) -> None:
        text = self.page(tmp_path, 1, 5000)
        assert "The rest of this file is left out." in text
        assert len(text) < 2_500_000


def test_rows_of_a_diff() -> None:
    before = [f"line {number}" for number in range(1, 31)]
    after = [*before[:9], "new 10", *before[10:]]
    place = ("a.py", 25, 1, 25, 2, "NPU101", "n", "m", FixLevel.NONE, False)
    rows = list(diff_rows(before, after, [Finding(*place)]))
    assert [(row.kind, row.number) for row in rows if row.kind != "="] == [
        ("gap", 6),
        ("-", 10),
        ("+", 10),
        ("gap", 8),
        ("gap", 2),
    ]
    assert [row.number for row in rows if row.findings] == [25]
    assert list(diff_rows([], [], [])) == []

"""Both runs begin with the same files, and the user's folders lose nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cuda2npu.smoke.putback import as_before
from cuda2npu.smoke.table import left_behind
from smoke.support import Smoke

KEEP = """
import os, sys
from pathlib import Path
from cuda2npu.smoke.kept import keep
keep(Path(sys.argv[1]), [os.getcwd()])
"""


def tree(folder: Path) -> dict[str, str]:
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"link to {path.readlink()}"
        else:
            found[name] = "folder" if path.is_dir() else path.read_text("latin-1")
    return found


@pytest.fixture
def work(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    (work / "runs" / "exp0").mkdir(parents=True)
    (work / "runs" / "exp0" / "log").write_text("first")
    (work / "last.pt").write_text("weights")
    (work / "latest").symlink_to("runs/exp0")
    (work / ".cache").mkdir()
    return work


def run_in(work: Path, code: str) -> Path:
    """Run code in the folder with what it changes kept; where it is kept."""
    kept = work.parent / "space" / "kept"
    kept.mkdir(parents=True)
    environment = {**os.environ, "TMPDIR": str(work.parent)}
    subprocess.run(
        [sys.executable, "-c", KEEP + code, str(kept)], cwd=work, env=environment, check=True
    )
    return kept


@pytest.mark.parametrize(
    "code",
    [
        "open('last.pt', 'w').write('other')",
        "open('last.pt', 'a').write('more')",
        "open('new.pt', 'w').write('new')",
        "os.makedirs('runs/exp1/deep'); open('runs/exp1/deep/log', 'w').write('second')",
        "open('x.tmp', 'w').write('other'); os.replace('x.tmp', 'last.pt')",
        "os.rename('last.pt', 'old.pt'); open('last.pt', 'w').write('other')",
        "import tempfile; name = tempfile.mkstemp()[1]; os.replace(name, 'last.pt')",
        "os.remove('last.pt')",
        "import shutil; shutil.rmtree('runs'); os.mkdir('runs')",
        "os.remove('latest'); os.symlink('runs', 'latest')",
        "os.truncate('last.pt', 0)",
        "import sqlite3; base = sqlite3.connect('a.db'); base.execute('create table t (x)')",
        "if os.fork(): os.wait()\nelse: open('last.pt', 'w').write('other'); os._exit(0)",
    ],
)
def test_the_second_run_finds_what_the_first_one_found(work: Path, code: str) -> None:
    before = tree(work)
    kept = run_in(work, code)
    after = tree(work)
    assert after != before
    with as_before(kept):
        assert tree(work) == before
    assert {*before, *after} == {*tree(work)}


def test_what_the_second_run_makes_is_newer(work: Path) -> None:
    kept = run_in(work, "os.mkdir('out'); open('out/a', 'w').write('1'); open('out/b', 'w')")
    with as_before(kept):
        (work / "out").mkdir()
        (work / "out" / "a").write_text("2")
    assert (tree(work)["out/a"], tree(work)["out/b"]) == ("2", "")


def test_folders_that_are_renamed_and_caches_stay_as_the_run_left_them(work: Path) -> None:
    """What cannot be put back for certain is not touched at all."""
    kept = run_in(work, "os.rename('runs', 'old'); open('.cache/weights', 'w').write('fetched')")
    after = tree(work)
    with as_before(kept):
        assert tree(work) == after
    assert tree(work) == after


def test_a_file_keeps_its_mode_and_its_time(work: Path) -> None:
    (work / "last.pt").chmod(0o640)
    os.utime(work / "last.pt", (1_000_000_000, 1_000_000_000))
    with as_before(run_in(work, "open('last.pt', 'w')")):
        status = (work / "last.pt").stat()
        assert (status.st_mode & 0o777, status.st_mtime) == (0o640, 1_000_000_000)


RESUMES = """
import sys, torch
from pathlib import Path
last = Path(sys.argv[1])
net = torch.nn.Linear(3, 2).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
if last.exists():
    net.load_state_dict(torch.load(last, map_location="cuda"))
Path(f"runs/exp{len(list(Path('runs').iterdir()))}").mkdir()
for _ in range(2):
    net(torch.ones(2, 3).cuda()).sum().backward()
    optimizer.step()
torch.save(net.state_dict(), last)
"""


@pytest.mark.parametrize("inside", [True, False])
def test_a_script_that_resumes(
    run: Smoke, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: bool
) -> None:
    """In its folder both runs begin anew; a checkpoint elsewhere is named as the likely cause."""
    (folder / "resumes.py").write_text(RESUMES)
    (folder / "runs").mkdir()
    monkeypatch.chdir(folder)
    last = "last.pt" if inside else str(tmp_path / "last.pt")
    report = run("resumes.py", steps=0, arguments=(last,))
    assert report.code == (0 if inside else 1)
    assert report.left_behind == ([] if inside else [last])
    assert bool(left_behind(report)) is not inside
    assert [path.name for path in (folder / "runs").iterdir()] == ["exp0"]
    assert Path(last).exists()

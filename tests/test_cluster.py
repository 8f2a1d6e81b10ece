"""``--executor dask://…`` with real clusters: results, deaths, and what cannot be used."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from distributed import Client
from test_cli import COMMAND, CUDA, ENVIRONMENT, run

from cuda2npu import files, project, writing
from cuda2npu.cluster import Cluster
from cuda2npu.exclude import Exclude
from cuda2npu.files import Job
from cuda2npu.model import Options, UsageError
from cuda2npu.project import DeadlyFileError, Mode, Outcome

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "fixtures" / "scripts"


@contextmanager
def cluster(
    workers: int, kind: str, *flags: str, env: dict[str, str] | None = None
) -> Iterator[str]:
    """The ``dask://`` address of a new cluster, whose workers are processes or threads."""
    process = subprocess.Popen(
        [sys.executable, *flags, ROOT / "tests" / "dask_cluster.py", str(workers), kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=ENVIRONMENT | (env or {}),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip().replace("tcp://", "dask://")
    finally:
        process.stdin.close()
        process.wait(60)


@pytest.fixture(scope="module")
def two() -> Iterator[str]:
    """A cluster of two workers, each a process of its own."""
    with cluster(2, "processes") as url:
        yield url


@contextmanager
def client(url: str) -> Iterator[Any]:
    with Client(url.replace("dask://", "tcp://"), set_as_default=False) as made:  # type: ignore[no-untyped-call]
        yield made


def make(folder: Path, number: int) -> list[Job]:
    """Copies of the fixtures, each with a first line of its own."""
    folder.mkdir()
    sources = sorted(SCRIPTS.glob("*/before.py"))
    for index in range(number):
        text = sources[index % len(sources)].read_text(encoding="utf-8")
        (folder / f"{index:03}.py").write_text(f"{text}\n# {index}\n", encoding="utf-8")
    return files.discover([str(folder)], Exclude()).jobs


def texts(jobs: list[Job]) -> list[str]:
    return [Path(job.path).read_text(encoding="utf-8") for job in jobs]


def relative(outcomes: list[Outcome]) -> list[str]:
    """The outcomes as text, without the folder that they were made in."""
    folder = str(Path(outcomes[0].path).parent)
    return [str(outcome).replace(folder, "") for outcome in outcomes]


def test_a_check_is_that_of_this_machine(two: str) -> None:
    arguments = ("check", "fixtures/scripts", "--format", "json")
    here = run(*arguments, cwd=ROOT)
    there = run(*arguments, "--executor", two, cwd=ROOT)
    assert len(here.stdout) > 50_000
    assert (there.returncode, there.stdout, there.stderr) == (1, here.stdout, here.stderr)


def test_the_command_line_writes_here(tmp_path: Path, two: str) -> None:
    jobs = make(tmp_path / "a", 10)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    here = run("rewrite", "b", cwd=tmp_path)
    copied = run("rewrite", "a", "--output", "c", "--executor", two, cwd=tmp_path)
    there = run("rewrite", "a", "--executor", two, cwd=tmp_path)
    assert there.returncode == copied.returncode == 0
    assert there.stdout == here.stdout.replace(b"b/", b"a/")
    assert copied.stdout == here.stdout.replace(b"b/", b"c/")
    for job in jobs:
        name = Path(job.path).name
        expected = (tmp_path / "b" / name).read_bytes()
        assert (tmp_path / "a" / name).read_bytes() == expected
        assert (tmp_path / "c" / name).read_bytes() == expected


def test_a_worker_that_is_killed_costs_nothing(
    tmp_path: Path, two: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = make(tmp_path / "local", 36)
    expected = list(project.run(local, Options(), Mode.WRITE, workers=1))
    jobs = make(tmp_path / "remote", 36)
    written: Counter[str] = Counter()
    write = writing.replace_file

    def counted(path: str, *arguments: Any, **keywords: Any) -> None:
        written[path] += 1
        write(path, *arguments, **keywords)

    monkeypatch.setattr(writing, "replace_file", counted)
    with client(two) as outside:
        processes = outside.run(os.getpid)
        victim = next(iter(processes.values()))
        workers = Cluster(two)
        told = project.run(
            jobs, Options(), Mode.WRITE, workers=2, executor=lambda _: workers, remote=True
        )
        outcomes = [next(told) for _ in range(5)]
        assert any(len(tasks) > 1 for tasks in outside.processing().values())
        os.kill(victim, signal.SIGKILL)
        outcomes += told
        assert victim not in outside.run(os.getpid).values()
    assert relative(outcomes) == relative(expected)
    assert texts(jobs) == texts(local)
    changed = [outcome.path for outcome in outcomes if outcome.changed]
    assert len(changed) > 20
    assert written == Counter(changed)


def test_ctrl_c_leaves_whole_files_and_no_work_behind(tmp_path: Path, two: str) -> None:
    jobs = make(tmp_path / "a", 48)
    before = texts(jobs)
    process = subprocess.Popen(
        [*COMMAND, "rewrite", "a", "--executor", two],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    )
    while texts(jobs[:8]) == before[:8]:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGINT, said
    assert b"not begun; every file is whole." in said
    assert b"Traceback" not in said
    after = texts(jobs)
    assert after[-1] == before[-1]
    expected = dict(zip(before, rewritten(tmp_path / "b", 48), strict=True))
    assert all(new in (old, expected[old]) for old, new in zip(before, after, strict=True))
    with client(two) as outside:
        while any(outside.processing().values()):
            time.sleep(0.1)


def rewritten(folder: Path, number: int) -> list[str]:
    jobs = make(folder, number)
    list(project.run(jobs, Options(), Mode.WRITE, workers=1))
    return texts(jobs)


def test_a_task_that_kills_every_worker_is_named() -> None:
    env = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"}
    with cluster(1, "processes", env=env) as url:
        workers = Cluster(url)
        with pytest.raises(DeadlyFileError):
            workers.submit(os._exit, 9).result()
        workers.shutdown()


class TestErrors:
    def fault(self, folder: Path, url: str, env: dict[str, str] | None = None) -> str:
        """What is said of an executor that cannot be used; nothing is done then."""
        (folder / "a.py").write_text(CUDA)
        done = run("rewrite", "a.py", "--executor", url, cwd=folder, env=env)
        assert (done.returncode, done.stdout) == (2, b"")
        assert (folder / "a.py").read_text() == CUDA
        return done.stderr.decode()

    @pytest.mark.parametrize("url", ["tcp://127.0.0.1:1", "dask://nix", "dask://", "4"])
    def test_no_address(self, tmp_path: Path, url: str) -> None:
        said = self.fault(tmp_path, url)
        assert said == f"error: --executor {url}: is no dask://HOST:PORT\n"

    def test_no_scheduler(self, tmp_path: Path) -> None:
        said = self.fault(tmp_path, "dask://127.0.0.1:1")
        assert "no Dask scheduler answers there" in said

    def test_no_workers(self, tmp_path: Path) -> None:
        with cluster(0, "threads") as url:
            assert "the cluster has no workers" in self.fault(tmp_path, url)

    def test_no_distributed(self, tmp_path: Path) -> None:
        (tmp_path / "distributed.py").write_text("raise ImportError\n")
        said = self.fault(tmp_path, "dask://127.0.0.1:1", {"PYTHONPATH": str(tmp_path)})
        assert "needs the package distributed: pip install 'cuda2npu[dask]'" in said

    def test_another_version(self, tmp_path: Path) -> None:
        other = tmp_path / "there" / "cuda2npu-9.9.dist-info"
        other.mkdir(parents=True)
        (other / "METADATA").write_text("Metadata-Version: 2.1\nName: cuda2npu\nVersion: 9.9\n")
        with cluster(1, "threads", env={"PYTHONPATH": str(tmp_path / "there")}) as url:
            said = self.fault(tmp_path, url)
        assert "has cuda2npu 9.9, but this is 0." in said

    def test_other_rule_packs(self, tmp_path: Path) -> None:
        pack = tmp_path / "there" / "acme-1.0.dist-info"
        pack.mkdir(parents=True)
        (pack / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
        (pack / "entry_points.txt").write_text("[cuda2npu.packs]\nacme = acme:PACK\n")
        with cluster(1, "threads", env={"PYTHONPATH": str(tmp_path / "there")}) as url:
            said = self.fault(tmp_path, url)
        assert "has other rule packs (acme of acme 1.0, builtin of cuda2npu" in said

    def test_no_cuda2npu(self, tmp_path: Path) -> None:
        """A worker with every installed package but ours."""
        packages = tmp_path / "packages"
        packages.mkdir()
        for entry in Path(sysconfig.get_path("purelib")).iterdir():
            if "cuda2npu" not in entry.name:
                (packages / entry.name).symlink_to(entry)
        with cluster(1, "threads", "-S", env={"PYTHONPATH": str(packages)}) as url:
            said = self.fault(tmp_path, url)
        assert "has no cuda2npu; run `pip install cuda2npu==0." in said

    def test_a_scheduler_that_goes_away(self, tmp_path: Path) -> None:
        jobs = make(tmp_path / "a", 30)
        with cluster(1, "processes") as url:
            workers = Cluster(url)
            told = project.run(
                jobs, Options(), Mode.CHECK, workers=1, executor=lambda _: workers, remote=True
            )
            next(told)
        with pytest.raises(UsageError, match="the scheduler went away"):
            list(told)

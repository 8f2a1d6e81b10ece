"""The run over many files, with an engine that replaces one word."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from pathlib import Path
from types import ModuleType

import pytest

from cuda2npu import formats, project
from cuda2npu.files import Job
from cuda2npu.knowledge import Knowledge
from cuda2npu.model import Finding, FixLevel, Options, Result, SourceError
from cuda2npu.project import Mode, Outcome
from cuda2npu.workers import Each, by_workers, one_by_one

OPTIONS = Options()


def fake_rewrite(
    data: bytes, options: Options, *, path: str, knowledge: Knowledge | None = None
) -> tuple[bytes, Result]:
    """Says what happens by the words of the file."""
    if b"unparsable" in data:
        raise SourceError("line 1: cannot be parsed")
    if b"defect" in data:
        raise ZeroDivisionError("a rule divides")
    if b"deadly" in data:
        os._exit(9)
    if b"slow" in data:
        time.sleep(0.2)
    after = data.replace(b"cuda", b"npu")
    found = tuple(
        Finding(path, number, 1, number, 5, "NPU101", "n", "m", FixLevel.SAFE, False, True)
        for number, line in enumerate(data.split(b"\n"), 1)
        if b"cuda" in line
    )
    return (after if after != data else data), Result(path, after.decode(), after != data, found)


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = ModuleType("cuda2npu.engine")
    engine.rewrite_bytes = fake_rewrite  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cuda2npu.engine", engine)
    monkeypatch.setattr(formats, "trigger_pattern", lambda options: re.compile(b"cuda"))


def forked(workers: int) -> Executor:
    """A process pool that inherits the engine above on every Python."""
    return ProcessPoolExecutor(workers, mp_context=get_context("fork"))


def jobs(folder: Path, *texts: str) -> list[Job]:
    made = []
    for number, text in enumerate(texts):
        path = folder / f"{number}.py"
        path.write_text(text)
        made.append(Job(str(path), str(folder.resolve())))
    return made


def texts(made: list[Job]) -> list[str]:
    return [Path(job.path).read_text() for job in made]


def test_check_and_diff_write_nothing(tmp_path: Path) -> None:
    made = jobs(tmp_path, "cuda\n", "plain\n")
    checked = list(project.run(made, OPTIONS, Mode.CHECK))
    assert [(outcome.changed, len(outcome.findings)) for outcome in checked] == [
        (True, 1),
        (False, 0),
    ]
    assert checked[0].excerpts == ("cuda",)
    assert checked[0].after == b""
    (shown,) = project.run(made[:1], OPTIONS, Mode.DIFF)
    assert (shown.before, shown.after) == (b"cuda\n", b"npu\n")
    assert texts(made) == ["cuda\n", "plain\n"]


def test_write(tmp_path: Path) -> None:
    made = jobs(tmp_path, "cuda\n", "plain\n")
    plain = Path(made[1].path).stat()
    outcomes = list(project.run(made, OPTIONS, Mode.WRITE))
    assert texts(made) == ["npu\n", "plain\n"]
    assert outcomes[0].excerpts == ("npu",)
    assert Path(made[1].path).stat() == plain


def test_an_output_gets_every_file(tmp_path: Path) -> None:
    out = tmp_path / "out"
    made = [
        job._replace(output=str(out / Path(job.path).name), folder=str(out))
        for job in jobs(tmp_path, "cuda\n", "plain\n", "cuda unparsable\n")
    ]
    outcomes = list(project.run(made, OPTIONS, Mode.WRITE))
    assert [path.read_text() for path in sorted(out.iterdir())] == [
        "npu\n",
        "plain\n",
        "cuda unparsable\n",
    ]
    assert texts(made)[0] == "cuda\n"
    assert outcomes[0].findings[0].path == str(out / "0.py")
    assert outcomes[2].error == "line 1: cannot be parsed"


@pytest.mark.parametrize("workers", [1, 2])
def test_one_bad_file_costs_no_other(tmp_path: Path, workers: int) -> None:
    made = jobs(tmp_path, "cuda unparsable", "cuda defect", "cuda")
    made.insert(0, Job(str(tmp_path / "gone.py"), str(tmp_path)))
    outcomes = list(project.run(made, OPTIONS, Mode.WRITE, workers=workers))
    errors = [outcome.error or "" for outcome in outcomes]
    assert errors[0] == "cannot be read: No such file or directory"
    assert errors[1] == "line 1: cannot be parsed"
    assert "internal error, please report" in errors[2]
    assert "ZeroDivisionError: a rule divides" in errors[2]
    assert errors[3] == ""
    assert texts(made[1:]) == ["cuda unparsable", "cuda defect", "npu"]


def test_the_places_of_findings_are_those_of_the_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_import(
        data: bytes, options: Options, *, path: str, knowledge: Knowledge | None = None
    ) -> tuple[bytes, Result]:
        _, result = fake_rewrite(data, options, path=path)
        text = result.text.replace("import torch\n", "import torch\nimport torch_npu\n")
        return text.encode(), Result(path, text, True, result.findings)

    monkeypatch.setattr(sys.modules["cuda2npu.engine"], "rewrite_bytes", with_import)
    made = jobs(tmp_path, "import torch\n\n\nx = cuda\n")
    (outcome,) = project.run(made, OPTIONS, Mode.WRITE)
    assert (outcome.findings[0].line, outcome.findings[0].end_line) == (5, 5)
    assert outcome.excerpts == ("x = npu",)


class TestKnowledge:
    def test_is_not_collected_without_a_trigger_word(self, tmp_path: Path) -> None:
        run = project.run(
            jobs(tmp_path, "plain", "plain"),
            OPTIONS,
            Mode.CHECK,
            knowledge=lambda _: pytest.fail("collected"),
        )
        assert len(list(run)) == 2

    @pytest.mark.parametrize("workers", [1, 2])
    def test_is_collected_once_and_seen_from_each_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
    ) -> None:
        calls: list[int] = []

        def collect(each: Each) -> Knowledge:
            assert dict(each(len, [("a", b"xy")])) == {"a": 2}
            calls.append(1)
            return Knowledge(sinks={"kind": frozenset(["device"])})

        def noted(
            data: bytes, options: Options, *, path: str, knowledge: Knowledge | None = None
        ) -> tuple[bytes, Result]:
            assert knowledge is not None
            note = f"{Path(knowledge.here).name} {sorted(knowledge.feeds('train.kind'))}"
            return data, Result(path, data.decode(), False, notes=(note,))

        monkeypatch.setattr(sys.modules["cuda2npu.engine"], "rewrite_bytes", noted)
        made = jobs(tmp_path, "cuda", "plain", "cuda")
        outcomes = project.run(
            made, OPTIONS, Mode.CHECK, workers=workers, knowledge=collect,
            executor=ThreadPoolExecutor if workers > 1 else None,
        )  # fmt: skip
        notes = [outcome.notes for outcome in outcomes]
        names = [Path(job.path).name for job in made]
        assert notes == [(f"{names[0]} ['device']",), (), (f"{names[2]} ['device']",)]
        assert calls == [1]


def deadly_for_workers(data: bytes) -> int:
    if b"deadly" in data and parent_process() is not None:
        os._exit(9)
    return len(data)


class TestEach:
    CONTENTS = tuple((str(number), b"x" * number * 200) for number in range(200))

    @pytest.mark.parametrize("deadly", [False, True])
    def test_workers_tell_what_one_alone_does(self, deadly: bool) -> None:
        """In the same order; what a worker dies of is done here."""
        contents = [*self.CONTENTS, *([("deadly", b"deadly")] if deadly else []), *self.CONTENTS]
        expected = list(one_by_one(deadly_for_workers, contents))
        with forked(2) as executor:
            assert list(by_workers(executor, 2)(deadly_for_workers, contents)) == expected

    def test_not_all_bytes_are_read_ahead(self) -> None:
        read: list[str] = []

        def contents() -> Iterator[tuple[str, bytes]]:
            for path, data in self.CONTENTS:
                read.append(path)
                yield path, data

        with forked(2) as executor:
            next(iter(by_workers(executor, 2)(len, contents())))
        assert len(read) < len(self.CONTENTS)


class TestExecutor:
    def test_small_runs_start_no_pool(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(project, "process_pool", pytest.fail)
        outcomes = project.run(jobs(tmp_path, *["cuda"] * 50), OPTIONS, Mode.CHECK, workers=8)
        assert len(list(outcomes)) == 50

    def test_large_runs_start_one(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(project, "POOL_BYTES", 20)
        asked: list[int] = []

        def factory(workers: int) -> Executor:
            asked.append(workers)
            return ThreadPoolExecutor(workers)

        monkeypatch.setattr(project, "process_pool", factory)
        made = jobs(tmp_path, "plain", *["cuda"] * 50, "plain")
        outcomes = list(project.run(made, OPTIONS, Mode.WRITE, workers=3))
        assert asked == [3]
        assert [outcome.path for outcome in outcomes] == [job.path for job in made]
        assert texts(made) == ["plain", *["npu"] * 50, "plain"]

    def test_results_come_in_order_from_processes(self, tmp_path: Path) -> None:
        made = jobs(tmp_path, "cuda slow", *["cuda"] * 20, "plain", "cuda")
        outcomes = list(project.run(made, OPTIONS, Mode.CHECK, workers=2, executor=forked))
        assert [outcome.path for outcome in outcomes] == [job.path for job in made]

    def test_the_queue_is_bounded(self, tmp_path: Path) -> None:
        class Lazy(Executor):
            """Does a job when its result is asked for."""

            open = 0
            most = 0

            def submit(self, fn, /, *args, **kwargs):  # type: ignore[no-untyped-def]
                Lazy.open += 1
                Lazy.most = max(Lazy.most, Lazy.open)

                class Later(Future[Outcome]):
                    def result(self, timeout: float | None = None) -> Outcome:
                        Lazy.open -= 1
                        outcome: Outcome = fn(*args, **kwargs)
                        return outcome

                return Later()

        made = jobs(tmp_path, *["cuda"] * 60)
        outcomes = project.run(made, OPTIONS, Mode.CHECK, workers=2, executor=lambda _: Lazy())
        assert len(list(outcomes)) == 60
        assert Lazy.most <= 9

    def test_a_dying_worker_is_named_and_loses_no_other_file(self, tmp_path: Path) -> None:
        made = jobs(tmp_path, *["cuda"] * 5, "cuda deadly", *["cuda"] * 30)
        outcomes = list(project.run(made, OPTIONS, Mode.WRITE, workers=2, executor=forked))
        assert len(outcomes) == len(made)
        assert [outcome.path for outcome in outcomes if outcome.error] == [made[5].path]
        assert "the worker process died" in (outcomes[5].error or "")
        assert texts(made) == [*["npu"] * 5, "cuda deadly", *["npu"] * 30]

    def test_a_file_that_an_executor_calls_deadly_is_named(self, tmp_path: Path) -> None:
        class Wary(ThreadPoolExecutor):
            def submit(self, fn, /, *args, **kwargs):  # type: ignore[no-untyped-def]
                if b"deadly" not in args[1]:
                    return super().submit(fn, *args, **kwargs)
                future: Future[Outcome] = Future()
                future.set_exception(project.DeadlyFileError())
                return future

        made = jobs(tmp_path, "cuda", "cuda deadly", "cuda")
        outcomes = list(project.run(made, OPTIONS, Mode.WRITE, workers=2, executor=Wary))
        assert [outcome.path for outcome in outcomes if outcome.error] == [made[1].path]
        assert texts(made) == ["npu", "cuda deadly", "npu"]

    def test_remote_workers_see_no_file(self, tmp_path: Path) -> None:
        """What a remote worker is given holds all, and what it gives back is written here."""
        out = tmp_path / "out"
        made = jobs(tmp_path, "cuda", "plain", "cuda unparsable")
        made = [
            job._replace(output=str(out / Path(job.path).name), folder=str(out)) for job in made
        ]
        asked: list[Future[Outcome]] = []

        class Far(ThreadPoolExecutor):
            def submit(self, fn, /, *args, **kwargs):  # type: ignore[no-untyped-def]
                job, data, *rest = args
                assert rest[-1].here == os.path.realpath(job.path)  # known here alone
                hidden = job._replace(root="", output=None, folder="")
                asked.append(super().submit(fn, hidden, data, *rest))
                return asked[-1]

        outcomes = project.run(made, OPTIONS, Mode.WRITE, workers=2, executor=Far, remote=True)
        assert [outcome.error for outcome in outcomes] == [None, None, "line 1: cannot be parsed"]
        assert asked[0].result().after == b"npu"
        assert [path.read_text() for path in sorted(out.iterdir())] == [
            "npu",
            "plain",
            "cuda unparsable",
        ]

    def test_stopping_cancels_what_waits_for_a_worker(self, tmp_path: Path) -> None:
        class Idle(Executor):
            def submit(self, fn, /, *args, **kwargs):  # type: ignore[no-untyped-def]
                return Future()

        made = jobs(tmp_path, *["cuda"] * 3)
        told = project.run(
            made,
            OPTIONS,
            Mode.WRITE,
            workers=2,
            executor=lambda _: Idle(),
            stopped=iter([False] * 4 + [True] * 9).__next__,
        )
        assert list(told) == []
        assert texts(made) == ["cuda"] * 3

    @pytest.mark.parametrize("pooled", [False, True])
    def test_stopping_drops_what_has_not_begun(self, tmp_path: Path, pooled: bool) -> None:
        made = jobs(tmp_path, *["cuda slow"] * 30)
        stop = False
        executor = forked if pooled else None
        outcomes: Iterator[Outcome] = project.run(
            made, OPTIONS, Mode.WRITE, workers=2, executor=executor, stopped=lambda: stop
        )
        done = [next(outcomes)]
        stop = True
        done += outcomes
        assert 0 < len(done) < 30
        # What is told is done and what is done is told.
        assert texts(made).count("npu slow") == len(done)

    def test_closing_the_iterator_closes_the_pool(self, tmp_path: Path) -> None:
        pools: list[ThreadPoolExecutor] = []

        def factory(workers: int) -> Executor:
            pools.append(ThreadPoolExecutor(workers))
            return pools[-1]

        made = jobs(tmp_path, *["cuda"] * 30)
        outcomes = project.run(made, OPTIONS, Mode.CHECK, workers=2, executor=factory)
        next(outcomes)
        outcomes.close()  # type: ignore[attr-defined]
        with pytest.raises(RuntimeError):
            pools[0].submit(print)


def test_bytes_that_are_no_file() -> None:
    plain = project.process_bytes("<stdin>", b"plain", OPTIONS, Mode.WRITE)
    assert (plain.after, plain.changed) == (b"plain", False)
    changed = project.process_bytes("<stdin>", b"cuda", OPTIONS, Mode.WRITE)
    assert (changed.after, changed.changed) == (b"npu", True)
    bad = project.process_bytes("<stdin>", b"cuda unparsable", OPTIONS, Mode.WRITE)
    assert (bad.after, bad.error) == (b"", "line 1: cannot be parsed")


def test_cores_counts_those_of_this_process() -> None:
    assert project.cores() >= 1

"""One call of check or rewrite: what it prints where, and the code it exits with."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cuda2npu import project, writing
from cuda2npu.cli.options import FINDINGS
from cuda2npu.config import Config
from cuda2npu.files import Job, Plan
from cuda2npu.formats import PYTHON, format_of
from cuda2npu.knowledge import Knowledge
from cuda2npu.model import UsageError
from cuda2npu.project import Mode, Outcome
from cuda2npu.report import BROKEN_PIPE, Output, reporter, wants_color
from cuda2npu.report.progress import Progress
from cuda2npu.report.summary import Summary
from cuda2npu.report.usage import ERROR
from cuda2npu.workers import Each, one_by_one
from cuda2npu.writing import WriteError

if TYPE_CHECKING:
    from cuda2npu.cluster import Cluster

SIGNALLED = 128
"""What a shell adds to the number of the signal that ended a program."""


class Run:
    """One call of check or rewrite: what it prints where, and the code it exits with."""

    def __init__(
        self,
        mode: Mode,
        config: Config,
        color: str,
        *,
        keep: Callable[[Outcome], Outcome] = lambda outcome: outcome,
        sources: bool = False,
        survey: bool = False,
    ) -> None:
        """``keep`` takes from an outcome the findings that are not to be told.

        ``sources`` keeps them in the outcomes of a check; ``survey`` makes one in any case.
        """
        if color not in ("auto", "always", "never"):
            raise UsageError(f"--color {color}: is none of auto, always, never")
        self.mode = mode
        self.config = config
        self.stdout = Output(sys.stdout)
        self.stderr = Output(sys.stderr)
        self.stdout_color = wants_color(color, sys.stdout)
        self.stderr_color = wants_color(color, sys.stderr)
        self.summary = Summary(mode, self.stderr_color)
        if config.exclude.force:
            self.summary.by_hand = " without --force-exclude"
        self.accepted = False
        """Whether findings are no failure."""
        self._cluster: Cluster | None = None
        self._keep = keep
        self._sources = sources
        self._work = Mode.DIFF if sources else mode
        self._survey = survey
        self._waiting = 0
        self._interrupted = 0  # the signal that asked for the end

    def use(self, executor: str | None) -> None:
        """Have the workers of a Dask cluster do the files. Raises UsageError."""
        if executor is not None:
            from cuda2npu.cluster import Cluster

            self._cluster = Cluster(executor)

    def all(self, plan: Plan, show: Callable[[Outcome], None]) -> None:
        """Do every file of a plan and show each outcome as soon as its turn comes."""
        cluster = self._cluster
        progress = Progress([job.path for job in plan.jobs], sys.stderr)
        self.summary.skipped(plan.excluded)
        self.summary.left_out(plan.left_out)
        self.summary.large(plan.large)
        for fault in plan.errors:
            self.summary.errors.append(fault)
            show(Outcome(fault.path, error=fault.message))
        progress.tell(0)
        with self._interruptible(progress):
            outcomes = project.run(
                plan.jobs,
                self.config.options,
                self._work,
                workers=self.config.jobs or (cluster.threads if cluster else None),
                executor=(lambda _: cluster) if cluster else None,
                remote=cluster is not None,
                stopped=lambda: self.stopped,
                knowledge=lambda each: self._knowledge(plan.jobs, each),
            )
            for outcome in map(self._keep, chain(outcomes, self._copies(plan))):
                if outcome.findings or outcome.changed or outcome.error:
                    progress.clear()
                self.summary.add(outcome)
                show(outcome)
                progress.tell(self.summary.files)
            progress.clear()
            self._waiting = max(len(plan.jobs) - self.summary.files, 0)
            self._look_around(plan)

    def _look_around(self, plan: Plan) -> None:
        """Complete the inventory of a project: a folder was named, or more than the text asks."""
        inventory = self.summary.inventory
        whole = self._survey or any(not job.named for job in plan.jobs)
        found = inventory.total.findings or plan.cuda_sources
        if self.mode is Mode.CHECK and whole and found and not self.stopped:
            from cuda2npu.survey import survey

            python = [job.path for job in plan.jobs if format_of(job.path) in (None, PYTHON)]
            inventory.survey = survey(
                python, plan.cuda_sources, inventory.kernels, lambda: self.stopped
            )

    def _knowledge(self, jobs: list[Job], each: Each = one_by_one) -> Knowledge:
        from cuda2npu.gathering import collect
        from cuda2npu.gathering.roots import project_files

        return collect(project_files(jobs, self.config.exclude), self.config.options, each)

    def stdin(self, name: str, show: Callable[[Outcome], None]) -> None:
        self.summary.is_stdin = True
        data = _read_stdin()
        if name != "<stdin>" and self.config.exclude.covers_named(Path(name)):
            self.summary.skipped([name])
            outcome = Outcome(name, after=data)
        else:
            options = replace(self.config.options, named=True)
            job = Job(name, "", named=True)
            outcome = self._keep(
                project.process_bytes(
                    name, data, options, self._work, lambda: self._knowledge([job])
                )
            )
        self.summary.add(outcome)
        show(outcome)

    def end(self) -> None:
        """Print the summary and leave with the exit code."""
        if self.stdout.broken and self.mode is not Mode.WRITE:  # as every program in a pipe
            raise typer.Exit(BROKEN_PIPE)
        stopped = bool(self._interrupted)
        with suppress(UsageError):  # nowhere to say that there is nowhere to say it
            self.stderr.write(self.summary.text(stopped=stopped, waiting=self._waiting))
        if stopped:
            raise typer.Exit(SIGNALLED + self._interrupted)
        if self.summary.errors:
            raise typer.Exit(ERROR)
        if self.mode is Mode.CHECK and self.summary.findings and not self.accepted:
            raise typer.Exit(FINDINGS)

    def show_remaining(self, outcome: Outcome) -> None:
        """Findings that the rewritten file still has, on stdout."""
        self.stdout.write(self._full(outcome, self.stdout_color))

    def show_diff(self, outcome: Outcome) -> None:
        """A patch on stdout, and nothing else there; findings go to stderr."""
        if outcome.changed:
            from cuda2npu.report.diff import diff

            patch = diff(outcome.path, outcome.before, outcome.after, self.stdout_color)
            self.stdout.write(patch)
        self.stderr.write(self._full(outcome, self.stderr_color))

    def show_source(self, outcome: Outcome) -> None:
        """The rewritten source of stdin on stdout, and nothing else there."""
        self.stdout.write(outcome.after)
        self.stderr.write(self._full(outcome, self.stderr_color))

    def _full(self, outcome: Outcome, color: bool) -> str:
        if not outcome.findings:
            return ""
        pairs = zip(outcome.findings, outcome.excerpts, strict=True)
        left = [(finding, line) for finding, line in pairs if not finding.applied]
        findings = tuple(finding for finding, _ in left)
        excerpts = tuple(line for _, line in left)
        return reporter("full", color).add(outcome._replace(findings=findings, excerpts=excerpts))

    def _copies(self, plan: Plan) -> Iterator[Outcome]:
        """Copy what ``--output`` does not convert; tells the failures alone."""
        for copy in plan.copies:
            if self.stopped:
                return
            try:
                writing.copy_file(copy)
            except WriteError as error:
                yield Outcome(copy.path, error=str(error))

    @property
    def stopped(self) -> bool:
        """A reader of stdout that went away ends a run that only prints."""
        only_prints = self.mode is not Mode.WRITE and not self._sources
        return bool(self._interrupted) or (self.stdout.broken and only_prints)

    @contextmanager
    def _interruptible(self, progress: Progress) -> Iterator[None]:
        """The first Ctrl-C ends the run after the files in work, the second one at once.

        So do SIGTERM and SIGHUP, unless the caller, such as nohup, has them ignored.
        """

        def stop(number: int, _: object) -> None:
            self._interrupted = number
            for each in previous:
                signal.signal(each, stop_at_once)
            with suppress(UsageError, RuntimeError):  # in the middle of another write
                progress.stop()
                self.stderr.write("Finishing the files in work; Ctrl-C again stops at once.\n")

        def stop_at_once(number: int, _: object) -> None:
            raise SystemExit(SIGNALLED + number)

        numbers = [getattr(signal, name, None) for name in ("SIGINT", "SIGTERM", "SIGHUP")]
        previous = {n: signal.getsignal(n) for n in numbers if n is not None}
        previous = {n: old for n, old in previous.items() if old is not signal.SIG_IGN}
        for number in previous:
            signal.signal(number, stop)
        try:
            yield
        finally:
            for number, old in previous.items():
                signal.signal(number, old)


def _read_stdin() -> bytes:
    if sys.stdin is None:
        raise UsageError("standard input is closed")
    try:
        return sys.stdin.buffer.read()
    except OSError as error:
        raise UsageError(f"standard input cannot be read: {error.strerror}") from None

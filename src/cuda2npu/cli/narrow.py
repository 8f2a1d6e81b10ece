"""The findings of a check that are told: none that a baseline knows, none on unchanged lines."""

from __future__ import annotations

from pathlib import Path

from cuda2npu.baseline import Baseline
from cuda2npu.cli.options import is_stdin
from cuda2npu.config import Config
from cuda2npu.files import Plan
from cuda2npu.model import UsageError
from cuda2npu.project import Outcome
from cuda2npu.report import plural
from cuda2npu.report.summary import Summary


class Narrowed:
    """What ``--baseline``, ``--write-baseline`` and ``--diff-base`` make of a check."""

    def __init__(
        self, config: Config, paths: list[str], diff_base: str | None, write: bool
    ) -> None:
        """Raises UsageError for options that do not go together, and files that cannot be read."""
        self._write = write
        if write and config.baseline is None:
            raise UsageError(
                "--write-baseline: say where with --baseline FILE, or with the key baseline of "
                "[tool.cuda2npu] in pyproject.toml"
            )
        if write and (diff_base is not None or is_stdin(paths)):
            raise UsageError("--write-baseline goes neither with --diff-base nor with stdin")
        if diff_base is not None and is_stdin(paths):
            raise UsageError("--diff-base goes not with stdin, of which git knows nothing")
        self._baseline = None
        if config.baseline is not None:
            self._baseline = Baseline.read(config.baseline, must_exist=not write)
        self._changed = None
        if diff_base is not None:
            from cuda2npu.changed import ChangedLines

            start = Path(paths[0])
            self._changed = ChangedLines(diff_base, start if start.is_dir() else start.parent)
            self._since = f"only lines changed since {diff_base} ({self._changed.base[:10]})"

    @property
    def is_new(self) -> bool:
        """Whether what is told is new against a baseline."""
        return self._baseline is not None and not self._write

    def plan(self, plan: Plan) -> Plan:
        """The plan without the baseline itself, and without files that have no changed line."""
        if self._baseline is not None:
            plan.leave_out(self._baseline.path)
        if self._changed is not None:
            plan.jobs = [job for job in plan.jobs if self._changed.touches(job.path)]
            plan.cuda_sources = []  # who builds them may stand in a file that is left out
        return plan

    def keep(self, outcome: Outcome) -> Outcome:
        """The outcome with the findings that are told."""
        if self._baseline is not None:
            new = self._baseline.new(outcome)
            outcome = outcome if self._write else new
        if self._changed is not None:
            found = enumerate(outcome.findings)
            outcome = outcome.only([index for index, f in found if self._changed.covers(f)])
        return outcome

    def end(self, summary: Summary) -> bool:
        """Write the baseline if asked; whether that was done, so that findings are no failure."""
        if self._changed is not None:
            summary.notes.append(self._since)
        if self._baseline is None:
            return False
        path = self._baseline.path
        if not self._write:
            gone = self._baseline.gone()
            if gone:
                summary.notes.append(
                    f"{gone} of the findings in {path} are gone; write it again with "
                    "--write-baseline, so that they stay away"
                )
            return False
        if summary.errors:
            summary.notes.append(f"{path} was not written, because of the errors")
            return False
        held = plural(self._baseline.write(), "finding")
        summary.notes.append(f"{path} holds {held} now")
        return True

"""What a run did, in a few lines on stderr."""

from __future__ import annotations

from cuda2npu.model import FileError, Finding, FixLevel
from cuda2npu.project import Mode, Outcome
from cuda2npu.report import plural, style, tags

_NAMED = 5
"""More excluded paths than this are not listed."""


class Summary:
    """Counts over the outcomes of a run."""

    def __init__(self, mode: Mode, color: bool = False) -> None:
        self.mode = mode
        self.color = color
        self.files = 0
        self.changed = 0
        self.edits = 0
        self.with_findings = 0
        self.numerics: list[Finding] = []  # the applied edits that change results
        self.errors: list[FileError] = []
        self.notes: list[str] = []
        # By whether findings are loud and by code, so that quiet ones sort first.
        self.counts: dict[tuple[bool, str], int] = {}
        self.samples: dict[tuple[bool, str], Finding] = {}

    def add(self, outcome: Outcome) -> None:
        """Count an outcome. In check every finding is shown, else those that remain."""
        self.files += 1
        if outcome.error is not None:
            self.errors.append(FileError(outcome.path, outcome.error))
        self.notes += [f"{outcome.path}: {note}" for note in outcome.notes]
        applied = [finding for finding in outcome.findings if finding.applied]
        shown = [
            finding
            for finding in outcome.findings
            if self.mode is Mode.CHECK or not finding.applied
        ]
        self.with_findings += bool(shown)
        self.changed += outcome.changed
        self.edits += len(applied)
        if self.mode is not Mode.CHECK:
            self.numerics += [item for item in applied if item.fix is FixLevel.NUMERICS]
        for finding in shown:
            key = (not finding.quiet, finding.code)
            self.counts[key] = self.counts.get(key, 0) + 1
            self.samples.setdefault(key, finding)

    @property
    def findings(self) -> int:
        return sum(self.counts.values())

    def text(self, *, stopped: bool = False, waiting: int = 0) -> str:
        """The summary; ``waiting`` files were not begun when the user stopped the run."""
        lines = [self._headline(), *self._numerics(), *self._findings(), *self._notes()]
        lines += self._errors()
        if stopped:
            lines.append(
                f"Stopped: {plural(self.files, 'file')} done, {waiting} not begun; "
                "every file is whole."
            )
        elif self.mode is not Mode.CHECK:
            lines.append(f"Next: {self._next()}")
        elif self.findings:
            lines.append(self._advice())
        return "".join(f"{line}\n" for line in lines)

    def _headline(self) -> str:
        looked = f"{plural(self.files, 'file')} looked at"
        if self.mode is Mode.CHECK:
            if not self.findings:
                text = f"No findings, {looked}."
            else:
                places = plural(self.with_findings, "file")
                text = f"{plural(self.findings, 'finding')} in {places}, {looked}."
        else:
            verb = "would change" if self.mode is Mode.DIFF else "changed"
            text = f"{looked}, {self.changed} {verb}, {plural(self.edits, 'edit')}."
        if self.errors:
            text = f"{text[:-1]}, {plural(len(self.errors), 'error')}."
        return style(text, "1", self.color)

    def _numerics(self) -> list[str]:
        if not self.numerics:
            return []
        head = (
            f"Changing results: {plural(len(self.numerics), 'edit')}; "
            "--preserve-numerics keeps the original:"
        )
        return [
            style(head, "33", self.color),
            *(
                f"  {item.path}:{item.line}: {item.code} {' '.join(item.message.split())}"
                for item in self.numerics
            ),
        ]

    def _findings(self) -> list[str]:
        lines = []
        if self.mode is not Mode.CHECK and self.counts:
            lines.append(
                style(f"{plural(self.findings, 'finding')} left for you:", "33", self.color)
            )
        for key in sorted(self.counts):
            sample = self.samples[key]
            lines.append(f"  {self.counts[key]:>5}  {sample.code}  {sample.name}  {tags(sample)}")
        if any(not loud for loud, _ in self.counts):
            lines.append(
                "  [quiet]: does not fail on an NPU machine, but runs on the CPU, in another "
                "precision or over another backend."
            )
        return lines

    def skipped(self, excluded: list[str], notebooks: int) -> None:
        """Tell of named paths that the patterns leave out, and of notebooks in folders."""
        if excluded:
            more = ", …" if len(excluded) > _NAMED else ""
            names = ", ".join(excluded[:_NAMED]) + more
            self.notes.append(f"excluded by the settings: {names}")
        if notebooks:
            self.notes.append(
                f"{plural(notebooks, 'notebook')} not looked at: they are not read yet"
            )

    def _notes(self) -> list[str]:
        return [f"{style('note:', '1;33', self.color)} {note}" for note in self.notes]

    def _errors(self) -> list[str]:
        return [
            f"{style('error:', '1;31', self.color)} {error.path}: {error.message}"
            for error in self.errors
        ]

    def _advice(self) -> str:
        explain = "`cuda2npu rules CODE` explains a finding"
        if any(sample.applied for sample in self.samples.values()):
            return f"`cuda2npu rewrite` makes the fixable edits; {explain}."
        return f"{explain[0].upper()}{explain[1:]}."

    def _next(self) -> str:
        if self.errors:
            return "mend the files named above and run the same command again."
        if self.mode is Mode.DIFF and self.changed:
            return "run the same command without --diff to write these changes."
        if self.findings:
            return "go through the findings; `cuda2npu rules CODE` explains one and what to do."
        if self.changed:
            return "read the changes, then run the program on an NPU machine."
        return "nothing to do."

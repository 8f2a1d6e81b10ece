"""What a run did, in a few lines on stderr."""

from __future__ import annotations

from cuda2npu.boundary import MANY
from cuda2npu.model import FileError, Finding, FixLevel
from cuda2npu.project import Mode, Outcome
from cuda2npu.report import place, plural, style, tags
from cuda2npu.report.inventory import Inventory

_NAMED = 5
"""More paths than this are not listed in a note."""
_CHANGED = 10
"""More changed files than this are not listed when a run is stopped."""


def _some(paths: list[str]) -> str:
    more = len(paths) - _NAMED
    return ", ".join(paths[:_NAMED]) + (f" and {more} more" if more > 0 else "")


class Summary:
    """Counts over the outcomes of a run."""

    def __init__(self, mode: Mode, color: bool = False) -> None:
        self.mode = mode
        self.color = color
        self.inventory = Inventory()
        self.changed: list[str] = []
        self.numerics: list[Finding] = []  # the applied edits that change results
        self.errors: list[FileError] = []
        self.notes: list[str] = []
        self._said: dict[str, list[str]] = {}  # what is noted of files, and of which
        self.unread: list[str] = []  # documents of folders that their parser refused, and why
        self.last = ""
        """The file that was done last; files are done in order."""
        self.generated: list[str] = []
        self.is_stdin = False
        self.by_hand = ""
        """What else it takes to have a named file done that is left out of folders."""

    def add(self, outcome: Outcome) -> None:
        """Count an outcome. In check every finding is shown, else those that remain."""
        self.inventory.add(outcome)
        self.last = outcome.path
        if outcome.error is not None:
            self.errors.append(FileError(outcome.path, outcome.error))
        if outcome.generated:
            self.generated.append(outcome.path)
        for note in outcome.notes:
            self._said.setdefault(note, []).append(outcome.path)
        if outcome.unread is not None:
            self.unread.append(f"{outcome.path}: {outcome.unread}")
        if outcome.changed:
            self.changed.append(outcome.path)
        if self.mode is not Mode.CHECK:
            self.numerics += [
                item for item in outcome.findings if item.applied and item.fix is FixLevel.NUMERICS
            ]

    @property
    def files(self) -> int:
        return self.inventory.files

    @property
    def findings(self) -> int:
        """How many findings are shown."""
        total = self.inventory.total
        return total.findings if self.mode is Mode.CHECK else total.left

    def text(self, *, stopped: bool = False, waiting: int = 0) -> str:
        """The summary; ``waiting`` files were not begun when the user stopped the run."""
        lines = [self._headline(), *self._numerics(), *self._findings(), *self._overview()]
        lines += [*self._notes(), *self._errors()]
        if stopped:
            lines += self._stopped(waiting)
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
                places = plural(len(self.inventory.found), "file")
                text = f"{plural(self.findings, 'finding')} in {places}, {looked}."
        else:
            verb = "would change" if self.mode is Mode.DIFF else "changed"
            edits = plural(self.inventory.total.automatic, "edit")
            text = f"{looked}, {len(self.changed)} {verb}, {edits}."
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
                f"  {place(item)}: {item.code} {' '.join(item.message.split())}"
                for item in self.numerics
            ),
        ]

    def _findings(self) -> list[str]:
        lines = []
        if self.mode is not Mode.CHECK and self.findings:
            lines.append(
                style(f"{plural(self.findings, 'finding')} left for you:", "33", self.color)
            )
        quiet = False
        for kind, count in self.inventory.in_order():
            number = count.findings if self.mode is Mode.CHECK else count.left
            if number:
                lines.append(f"  {number:>5}  {kind.code}  {kind.name}  {tags(kind)}")
                quiet = quiet or kind.quiet
        if quiet:
            lines.append(
                "  [quiet]: does not fail on an NPU machine, but runs on the CPU, in another "
                "precision or over another backend."
            )
        return lines

    def _overview(self) -> list[str]:
        """What a person plans with, when a whole project was looked through."""
        if self.mode is not Mode.CHECK or self.inventory.survey is None:
            return []
        from cuda2npu.report.overview import overview

        return overview(self.inventory, self.color)

    def skipped(self, excluded: list[str]) -> None:
        """Tell of named paths that the patterns leave out."""
        if excluded:
            self.notes.append(f"excluded by the settings: {_some(excluded)}")

    def left_out(self, folders: dict[str, int]) -> None:
        """Tell of vendored and generated code in the folders, and how to have it done, too."""
        if folders:
            names = (
                f"{name} ({'more than ' * (n >= MANY)}{plural(n, 'file')})"
                for name, n in sorted(folders.items())
            )
            self.notes.append(
                f"left out as vendored or generated: {', '.join(names)}; name "
                f'it{self.by_hand}, or set exclude = ["!NAME"] in pyproject.toml, to include it'
            )

    def large(self, paths: list[str]) -> None:
        """Tell of files in folders that are data by their size."""
        if paths:
            self.notes.append(
                f"{plural(len(paths), 'file')} not read, too large for settings: "
                f"{_some(paths)}. Name a file to have it read"
            )

    def _notes(self) -> list[str]:
        notes = [f"{_some(paths)}: {note}" for note, paths in self._said.items()]
        notes += [*self.notes, *self.unread[:_NAMED]]
        if len(self.unread) > _NAMED:
            more = len(self.unread) - _NAMED
            notes.append(f"{plural(more, 'more file')} could not be read, as templates are not")
        if self.generated:
            notes.append(
                "left out, as a program wrote it and edits would be lost: "
                f"{_some(self.generated)}; change what "
                f"it is made from, or name the file{self.by_hand} to include it"
            )
        return [f"{style('note:', '1;33', self.color)} {note}" for note in notes]

    def _errors(self) -> list[str]:
        return [
            f"{style('error:', '1;31', self.color)} {error.path}: {error.message}"
            for error in self.errors
        ]

    def _stopped(self, waiting: int) -> list[str]:
        """Where the run was stopped; what is done is done in order."""
        last = f", up to {self.last}" if self.last else ""
        lines = [
            f"Stopped: {plural(self.files, 'file')} done{last}; {waiting} not begun; "
            "every file is whole."
        ]
        if self.mode is Mode.WRITE and 0 < len(self.changed) <= _CHANGED:
            lines.append(f"Changed: {', '.join(self.changed)}")
        if self.mode is Mode.WRITE:
            lines.append("Next: the same command does the rest.")
        return lines

    def _advice(self) -> str:
        explain = "`cuda2npu rules CODE` explains a finding"
        if self.inventory.total.automatic:
            return f"`cuda2npu rewrite` makes the fixable edits; {explain}."
        return f"{explain[0].upper()}{explain[1:]}."

    def _next(self) -> str:
        if self.errors:
            return "mend the files named above and run the same command again."
        if self.mode is Mode.DIFF and self.changed:
            aim = "print the rewritten source" if self.is_stdin else "write these changes"
            return f"run the same command without --diff to {aim}."
        if self.findings:
            return "go through the findings; `cuda2npu rules CODE` explains one and what to do."
        if self.changed:
            return "read the changes, then run the program on an NPU machine."
        return "nothing to do."

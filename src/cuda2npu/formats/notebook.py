"""Jupyter notebooks: the code cells are one program, everything else is the same bytes."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

from cuda2npu.engine import rewrite_source
from cuda2npu.formats.cells import Cell, Notebook, Splice, in_notebook, read, spliced
from cuda2npu.formats.document import findings_of
from cuda2npu.formats.embedded import splices
from cuda2npu.formats.magics import Masked, python_of, shell_parts, shell_text
from cuda2npu.formats.positions import Lines
from cuda2npu.formats.shell import Shell
from cuda2npu.knowledge import Knowledge
from cuda2npu.model import CellPlace, Edit, Finding, Options, Result, SourceError
from cuda2npu.packs import rule_word_pattern
from cuda2npu.source import decode
from cuda2npu.suppress import Suppressions, comments_of_lines

_BETWEEN = "\n\n"
"""Stands between two cells, so that a line behind the first is not in the second."""
_LINE = re.compile(r"\bline (\d+)")


def rewrite_bytes(
    data: bytes, options: Options, *, path: str, knowledge: Knowledge | None = None
) -> tuple[bytes, Result]:
    """Rewrite a notebook's bytes. Unchanged input comes back as the same object.

    Raises SourceError when the bytes are no notebook, or one of Python 2 that does not parse.
    """
    text, encoding = decode(data)
    notebook = read(text)
    if not notebook.is_python:
        return data, Result(path, text, changed=False)
    work = _Work(notebook, options, path, knowledge)
    work.do()
    edits = in_notebook(notebook, work.changes)
    new = spliced(text, edits)
    _verify(notebook, work.changes, new)
    findings = tuple(sorted(map(work.finished, work.findings, work.places)))
    result = Result(path, new, new != text, findings, tuple(work.notes), work.as_edits(edits))
    return (encoding.encode(new) if result.changed else data), result


def _verify(notebook: Notebook, changes: dict[Cell, list[Splice]], new: str) -> None:
    """Hold the new text to what every cell is meant to say."""
    expected = [spliced(cell.text, changes.get(cell, ())) for cell in notebook.cells]
    if [cell.text for cell in read(new).cells] != list(filter(None, expected)):
        raise SourceError("internal error: a cell did not become what it should. Left as it was.")


@dataclass(frozen=True)
class _Program:
    """Cells that run as one program, one behind the other."""

    cells: tuple[Cell, ...]
    texts: tuple[str, ...]

    @cached_property
    def text(self) -> str:
        return _BETWEEN.join(self.texts)

    @cached_property
    def lines(self) -> Lines:
        return Lines(self.text)

    @cached_property
    def _starts(self) -> list[int]:
        lengths = (len(text) + len(_BETWEEN) for text in self.texts)
        return list(accumulate(lengths, initial=0))[:-1]

    def cell_at(self, offset: int) -> tuple[Cell, int]:
        """The cell of a character offset, and the offset in it, which is not behind its end."""
        index = bisect_right(self._starts, offset) - 1
        cell = self.cells[index]
        return cell, min(offset - self._starts[index], len(cell.text))

    def in_cell(self, splice: Splice) -> tuple[Cell, Splice]:
        """An edit of the program as one of a cell."""
        cell, start = self.cell_at(splice.start)
        end = min(start + splice.end - splice.start, len(cell.text))
        new = splice.new
        behind = splice.start == splice.end and splice.start > self._starts_of(cell) + start
        if behind:  # a line behind the last one of the cell
            new = "\n" + new.rstrip("\r\n")
        elif not new and end == len(cell.text) and cell.text[start - 1 : start] == "\n":
            start -= not cell.text.endswith("\n")  # the last line goes, with the end before it
        return cell, Splice(start, end, new)

    def _starts_of(self, cell: Cell) -> int:
        return self._starts[self.cells.index(cell)]

    def localised(self, message: str) -> str:
        """A message about a line of the program as one about a line of a cell."""

        def place(match: re.Match[str]) -> str:
            cell, offset = self.cell_at(self.lines.offset(int(match[1]), 1))
            return f"cell {cell.number}, line {Lines(cell.text).position(offset)[0]}"

        return _LINE.sub(place, message, count=1)


class _Work:
    """The work on one notebook."""

    def __init__(
        self, notebook: Notebook, options: Options, path: str, knowledge: Knowledge | None
    ) -> None:
        self.notebook = notebook
        self.options = options
        self.path = path
        self.knowledge = knowledge
        self.findings: list[Finding] = []
        self.places: list[tuple[Cell, int, int]] = []
        self.changes: dict[Cell, list[Splice]] = {}
        self.notes: list[str] = []
        self._lines = Lines(notebook.text)

    def do(self) -> None:
        for program in self._programs():
            try:
                result = rewrite_source(
                    program.text, self.options, path=self.path, knowledge=self.knowledge
                )
            except SourceError as error:
                raise SourceError(program.localised(str(error))) from None
            self.notes += map(program.localised, result.notes)
            for splice in splices(program.text, result):
                cell, own = program.in_cell(splice)
                self.changes.setdefault(cell, []).append(own)
            for finding in result.findings:
                start = program.lines.offset(finding.line, finding.column)
                end = program.lines.offset(finding.end_line, finding.end_column)
                cell, inside = program.cell_at(start)
                self._add(finding, cell, inside, inside + end - start)

    def as_edits(self, splices: list[Splice]) -> tuple[Edit, ...]:
        """Edits of the notebook's text with their lines and columns."""
        position = self._lines.position
        return tuple(Edit(*position(start), *position(end), new) for start, end, new in splices)

    def _programs(self) -> Iterator[_Program]:
        """The notebook's own program, and those that cells run or write by themselves."""
        main: list[tuple[Cell, str]] = []
        for cell in self.notebook.cells:
            masked = python_of(cell.text)
            self._commands(cell, masked)
            if masked.reason:
                self._leave(cell, masked)
            elif masked.program:
                yield _Program((cell,), (masked.text,))
            else:
                main.append((cell, masked.text))
        if main:
            cells, texts = zip(*main, strict=True)
            yield _Program(cells, texts)

    def _commands(self, cell: Cell, masked: Masked) -> None:
        """Report what the shell commands of a cell say; they are magics, and not edited."""
        text = shell_text(cell.text)
        shell = Shell(text, text)
        for start, end in shell_parts(cell.text, masked):
            try:
                shell.read(start, end)
            except SourceError:
                continue  # IPython puts Python's values in
        suppressions = Suppressions(comments_of_lines(cell.text))
        lines = Lines(cell.text)
        for finding in findings_of(
            cell.text, shell.tokens(), self.options, self.path, self.knowledge
        ):
            if not (suppressions.skip_file or suppressions.covers(finding)):
                start = lines.offset(finding.line, finding.column)
                end = lines.offset(finding.end_line, finding.end_column)
                self._add(finding, cell, start, end)

    def _leave(self, cell: Cell, masked: Masked) -> None:
        """Say that a cell is left as it is, if there would have been something to look at."""
        words = rule_word_pattern(self.options)
        if masked.shell or words.search(cell.text.encode("utf-8", "replace")) is None:
            return
        place = f"cell {cell.number}"
        syntax = masked.reason.startswith("line")
        message = f"{place}, {masked.reason}" if syntax else f"{place}: {masked.reason}"
        if syntax and self.notebook.is_python2:
            raise SourceError(message)
        self.notes.append(message if syntax else f"{message}. Left as it was.")

    def _add(self, finding: Finding, cell: Cell, start: int, end: int) -> None:
        first, last = cell.place(self.notebook.text, start, end)
        line, column = self._lines.position(first)
        end_line, end_column = self._lines.position(last)
        self.findings.append(
            replace(finding, line=line, column=column, end_line=end_line, end_column=end_column)
        )
        self.places.append((cell, start, end))

    def finished(self, finding: Finding, place: tuple[Cell, int, int]) -> Finding:
        """The finding with its place in the cell, as it is and as it will be."""
        cell, start, end = place
        lines, edits = Lines(cell.text), self.changes.get(cell, ())
        line, column = lines.position(start)
        before = [edit for edit in edits if edit.end <= start]
        now = line + sum(
            edit.new.count("\n") - cell.text.count("\n", edit.start, edit.end) for edit in before
        )
        text = Lines(spliced(cell.text, edits)).line(now)
        span = (line, column, *lines.position(end))
        return replace(finding, cell=CellPlace(cell.number, *span, lines.line(line), (now, text)))

"""The inventory as one HTML page: charts, a table of the findings, each file's diff.

What belongs to a file is written when its outcome comes, so that a page takes no more memory for
more files; what needs all of them goes before it at the end.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from cuda2npu.model import FileError, Finding
from cuda2npu.places import source_lines
from cuda2npu.project import Outcome
from cuda2npu.report import LEVELS, plural
from cuda2npu.report.diff_rows import Row, diff_rows
from cuda2npu.report.full import excerpt
from cuda2npu.report.html import END, escape, head
from cuda2npu.report.inventory import Inventory, Kind
from cuda2npu.report.page_file import PageFile
from cuda2npu.report.page_parts import content

TABLE = 20_000
"""More findings than this are counted, not listed: a browser gets slow."""
DIFFS = 5_000_000
"""Bytes of diffs; the files after them are listed without."""
_ROWS = 4_000
"""Lines of one file's diff."""
_LINE = 300
"""Characters of a line; of a longer one, what stands around the finding."""


class Page:
    """A page that is written while a run goes on. Use it as a context: it cleans up."""

    def __init__(self, path: Path, title: str, subtitle: str) -> None:
        """Raise UsageError when nothing can be written there."""
        self._title = title
        self._subtitle = subtitle
        self._files = 0
        self._findings = 0
        self._bytes = 0
        self._without_diff = 0
        self._kinds: dict[Kind, int] = {}
        self._messages: dict[str, int] = {}
        self._file = PageFile(path)
        self._stack = ExitStack()
        self._stack.enter_context(self._file)
        try:
            self._spool_name = self._file.temporary()
            self._spool = self._stack.enter_context(Path(self._spool_name).open("wb"))  # noqa: SIM115
        except OSError as error:
            self._stack.close()
            raise self._file.failed(error) from None

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add(self, outcome: Outcome) -> None:
        """Write the part of one file."""
        if outcome.findings:
            self._write("".join(self._section(outcome)))
            self._files += 1

    def end(self, inventory: Inventory, errors: Sequence[FileError]) -> None:
        """Write what is said about all files, and put the page in its place."""
        try:
            self._spool.close()
            with self._file.draft.open("wb") as page, Path(self._spool_name).open("rb") as spool:
                page.write(_bytes(self._before(inventory, errors)))
                shutil.copyfileobj(spool, page)
                page.write(_bytes(self._after()))
            self._file.put()
        except OSError as error:
            raise self._file.failed(error) from None

    def _write(self, text: str) -> None:
        try:
            self._spool.write(_bytes(text))
        except OSError as error:
            raise self._file.failed(error) from None

    def _section(self, outcome: Outcome) -> Iterator[str]:
        section = f"f{self._files}"
        left = sum(not finding.applied for finding in outcome.findings)
        told = f"{plural(len(outcome.findings), 'finding')}, "
        told += f"{left} left for you" if left else "all automatic"
        yield f'<details class="file" id="{section}"><summary><code>{escape(outcome.path)}</code> '
        yield f"<span>{told}</span></summary>"
        if self._bytes < DIFFS:
            diff = "".join(_diff(outcome, section))
            self._bytes += len(diff)
            yield diff
        else:
            self._without_diff += 1
            yield "<p class=dim>No diff here: see cuda2npu rewrite --diff.</p>"
        yield f'<script type="application/json" class="rows">{self._rows(outcome, section)}'
        yield "</script></details>\n"

    def _rows(self, outcome: Outcome, section: str) -> str:
        """The file's rows of the table: line, kind, whether it is automatic, message."""
        listed = outcome.findings[: max(TABLE - self._findings, 0)]
        self._findings += len(listed)
        rows = [
            (
                finding.line,
                self._kinds.setdefault(
                    Kind(finding.code, finding.name, finding.fix, finding.quiet), len(self._kinds)
                ),
                finding.applied,
                self._messages.setdefault(finding.message, len(self._messages)),
            )
            for finding in listed
        ]
        return _json({"path": outcome.path, "section": section, "rows": rows})

    def _before(self, inventory: Inventory, errors: Sequence[FileError]) -> str:
        parts = content(inventory, errors, self._title, self._subtitle, self._cuts(inventory))
        return head(f"{self._title}: cuda2npu inventory", _asset("page.css"), _script()) + parts

    def _cuts(self, inventory: Inventory) -> str:
        """What the page does not show, for its size."""
        cuts = []
        if self._findings < inventory.total.findings:
            cuts.append(
                f"The table has the first {self._findings} of {inventory.total.findings} findings."
            )
        if self._without_diff:
            number = plural(self._without_diff, "file")
            cuts.append(f"The diffs of the last {number} are left out.")
        return " ".join(cuts)

    def _after(self) -> str:
        about = {
            "rules": [(kind.code, kind.name, kind.fix.value, kind.quiet) for kind in self._kinds],
            "messages": list(self._messages),
            "levels": {level.value: words for level, words in LEVELS.items()},
            "order": [level.value for level in LEVELS],
        }
        return (
            f'<script type="application/json" id="about">{_json(about)}</script>'
            f"<script>{_script()}</script>{END}"
        )


def _diff(outcome: Outcome, section: str) -> Iterator[str]:
    before = source_lines(outcome.before)
    after = source_lines(outcome.after) if outcome.changed else before
    yield '<div class="diff" tabindex="0" role="region" aria-label="Changes and findings"><div>'
    for number, row in enumerate(diff_rows(before, after, outcome.findings)):
        if number == _ROWS:
            yield '<div class="g">The rest of this file is left out.</div>'
            break
        yield from _row(row, section)
    yield "</div></div>"


_SHOWN = {"=": ("l", " "), "-": ("l d", "-"), "+": ("l a", "+")}


def _row(row: Row, section: str) -> Iterator[str]:
    if row.kind == "gap":
        yield f'<div class="g">… {plural(row.number, "line")}</div>'
        return
    kind, sign = _SHOWN[row.kind]
    text = row.text
    if len(text) > _LINE:
        start = row.findings[0].column - 1 if row.findings else 0
        text = excerpt(text, start, start + 1)[0]
    yield f'<div class="{kind}" data-n="{row.number}">{sign}{escape(text)}</div>'
    for index, finding in enumerate(row.findings):
        anchor = "" if index else f' id="{section}-{row.number}"'
        yield f'<p class="f"{anchor}>{_finding(finding)}</p>'


def _finding(finding: Finding) -> str:
    """A finding below its line."""
    quiet = ' <span class="tag quiet">quiet</span>' if finding.quiet else ""
    level = f'<span class="tag {finding.fix.value}">{LEVELS[finding.fix]}</span>'
    place = f"column {finding.column}: " if finding.column > _LINE else ""
    return f"<b>{escape(finding.code)}</b> {level}{quiet} {place}{escape(finding.message)}"


def _json(value: object) -> str:
    """JSON that cannot end the element it stands in."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _script() -> str:
    return _asset("page.js")

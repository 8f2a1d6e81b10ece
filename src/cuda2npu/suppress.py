"""Comments by which a user keeps cuda2npu away from a line or a file."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Iterator

from cuda2npu.model import Finding
from cuda2npu.packs import rule_codes

_COMMENT = re.compile(r"#\s*cuda2npu:\s*(?:(skip-file)|ignore(?:\[([^\]]*)\])?)")


def comments_of_python(text: str) -> Iterator[tuple[int, str]]:
    """The comments of a Python source with their lines, if one speaks of cuda2npu."""
    if "cuda2npu:" in text:
        for token in tokenize.generate_tokens(io.StringIO(text, newline=None).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string


def comments_of_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a document that speak of cuda2npu, whatever leads its comments."""
    if "cuda2npu:" in text:
        yield from enumerate(re.split(r"\r\n?|\n", text), 1)


class Suppressions:
    """``# cuda2npu: ignore``, ``… ignore[NPU101, NPU2]`` and ``# cuda2npu: skip-file``."""

    def __init__(self, comments: Iterable[tuple[int, str]]) -> None:
        self.skip_file = False
        self.lines: dict[int, tuple[str, ...]] = {}
        self.notes: list[str] = []
        for line, comment in comments:
            match = _COMMENT.search(comment)
            if match and match[1]:
                self.skip_file = True
            elif match:
                self._add(line, match[2])

    def _add(self, line: int, listed: str | None) -> None:
        if listed is None:
            self.lines[line] = ("",)  # the beginning of every code, also of other packs
            return
        codes = tuple(code.strip() for code in listed.split(","))
        unknown = [c for c in codes if not c or not any(r.startswith(c) for r in rule_codes())]
        if unknown:
            self.notes.append(
                f"line {line}: ignore[{listed}]: no rule has the code {', '.join(unknown)!r}; "
                "`cuda2npu rules` lists them all"
            )
        self.lines[line] = tuple(code for code in codes if code not in unknown)

    def covers(self, finding: Finding) -> bool:
        """Whether a comment on one of the finding's lines names its code or a prefix of it."""
        return any(
            finding.code.startswith(self.lines[line])
            for line in range(finding.line, finding.end_line + 1)
            if line in self.lines
        )

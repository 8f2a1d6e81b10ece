"""Comments by which a user keeps cuda2npu away from a line or a file."""

from __future__ import annotations

import io
import re
import tokenize

from cuda2npu.model import Finding
from cuda2npu.packs import rule_codes
from cuda2npu.source import Source

_COMMENT = re.compile(r"#\s*cuda2npu:\s*(?:(skip-file)|ignore(?:\[([^\]]*)\])?)")


class Suppressions:
    """``# cuda2npu: ignore``, ``… ignore[NPU101, NPU2]`` and ``# cuda2npu: skip-file``."""

    def __init__(self, source: Source) -> None:
        self.skip_file = False
        self.lines: dict[int, tuple[str, ...]] = {}
        self.notes: list[str] = []
        if "cuda2npu:" not in source.text:
            return
        for token in tokenize.generate_tokens(io.StringIO(source.text, newline=None).readline):
            match = token.type == tokenize.COMMENT and _COMMENT.search(token.string)
            if match and match[1]:
                self.skip_file = True
            elif match:
                self._add(token.start[0], "NPU" if match[2] is None else match[2])

    def _add(self, line: int, listed: str) -> None:
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

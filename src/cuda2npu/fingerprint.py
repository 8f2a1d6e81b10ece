"""What a finding is known by when its line has moved: its rule, its source line, its turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import sha256

from cuda2npu.model import Finding

_LONGEST = 200


def normal_line(line: str) -> str:
    """A source line without what indenting or aligning it changes; a long one is cut.

    What is cut off is stood for by its hash, so that the data of a generated file do not fill
    what the line is written to.
    """
    words = " ".join(line.split()).encode("utf-8", "backslashreplace").decode()
    if len(words) <= _LONGEST:
        return words
    return f"{words[:_LONGEST]}… {sha256(words.encode()).hexdigest()[:16]}"


def occurrences(findings: Iterable[Finding], lines: Iterable[str]) -> tuple[int, ...]:
    """For each finding of a file, how many before it have the same code and source line."""
    seen: Counter[tuple[str, str]] = Counter()
    numbers = []
    for finding, line in zip(findings, lines, strict=True):
        key = (finding.code, normal_line(line))
        numbers.append(seen[key])
        seen[key] += 1
    return tuple(numbers)


def fingerprint(finding: Finding, line: str, occurrence: int) -> str:
    """The same for a finding in two versions of a file, unless its own line was changed."""
    text = f"{finding.code}\n{normal_line(line)}\n{occurrence}"
    return sha256(text.encode()).hexdigest()[:32]

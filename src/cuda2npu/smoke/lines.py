"""Lines of a rewritten file beside those of the original."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from pathlib import Path

from cuda2npu.source import decode


@dataclass(frozen=True, slots=True)
class Pair:
    """One line of the rewritten file and the one it came from."""

    path: str
    line: int
    """In the original; 0 when the line is new."""
    original: str
    rewritten_line: int
    rewritten: str


@lru_cache(maxsize=64)
def _matcher(
    old: tuple[str, ...], new: tuple[str, ...]
) -> tuple[tuple[str, int, int, int, int], ...]:
    return tuple(SequenceMatcher(None, old, new, autojunk=False).get_opcodes())


def original_line(old: list[str], new: list[str], line: int) -> int:
    """The number in ``old`` of line ``line`` of ``new``, both from 1; 0 when it was added."""
    index = line - 1
    for _, i1, i2, j1, j2 in _matcher(tuple(old), tuple(new)):
        if j1 <= index < j2:
            if i1 == i2:
                return 0
            # A changed block with lines put in front of it ends with the changed ones.
            place = i1 + (index - j1) - max((j2 - j1) - (i2 - i1), 0)
            return min(max(place, i1), i2 - 1) + 1 if place >= i1 else 0
    return 0


def changed_lines(old: list[str], new: list[str]) -> list[tuple[int, int]]:
    """Pairs of line numbers from 1, in ``old`` and in ``new``, where the two differ."""
    found = []
    for tag, i1, i2, j1, j2 in _matcher(tuple(old), tuple(new)):
        if tag != "equal":
            count = max(i2 - i1, j2 - j1)
            found += [(min(i1 + n, max(i2 - 1, i1)) + 1, min(j1 + n, max(j2 - 1, j1)) + 1)
                      for n in range(count)]  # fmt: skip
    return found


def read_lines(path: Path) -> list[str]:
    try:
        return re.split(r"\r\n|\r|\n", decode(path.read_bytes())[0])
    except Exception:
        return []


def pair(original: Path, rewritten: Path, line: int) -> Pair:
    old, new = read_lines(original), read_lines(rewritten)
    before = original_line(old, new, line)
    return Pair(
        str(original),
        before,
        old[before - 1] if 0 < before <= len(old) else "",
        line,
        new[line - 1] if 0 < line <= len(new) else "",
    )


def class_lines(path: Path, qualified: str) -> tuple[int, int] | None:
    """First and last line of a class, or of the function that makes it."""
    try:
        node: ast.AST = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    for name in qualified.split("."):
        if name == "<locals>":
            continue
        found = next(
            (
                child
                for child in ast.walk(node)
                if isinstance(child, (ast.ClassDef, ast.FunctionDef)) and child.name == name
            ),
            None,
        )
        if found is None:
            return None
        node = found
    assert isinstance(node, (ast.ClassDef, ast.FunctionDef))
    return node.lineno, node.end_lineno or node.lineno

"""Lines of a rewritten file beside those of the original."""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from pathlib import Path

from cuda2npu.source import decode

_COMPARED = 2_500
"""Pairs of lines that are compared letter by letter; larger blocks are paired by their order."""


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
def aligned(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[tuple[int, int], ...]:
    """Every line of both with its counterpart, as numbers from 1; 0 where there is none."""
    found: list[tuple[int, int]] = []
    for _, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        pairs = _pairs(old[i1:i2], new[j1:j2])
        found += [(i1 + i if i else 0, j1 + j if j else 0) for i, j in pairs]
    return tuple(found)


def _pairs(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Two blocks line by line; the longer one has lines of its own, where they fit least."""
    m, n = len(old), len(new)
    if not m or not n or m == n or m * n > _COMPARED:
        numbers = range(1, max(m, n) + 1)
        return [(k if k <= m else 0, k if k <= n else 0) for k in numbers]
    if m > n:
        return [(i, j) for j, i in _pairs(new, old)]
    best = [[0.0] * (n + 1) for _ in range(m + 1)]  # of the first lines, up to i and j
    for i in range(1, m + 1):
        for j in range(i, n - m + i + 1):
            with_it = best[i - 1][j - 1] + SequenceMatcher(None, old[i - 1], new[j - 1]).ratio()
            best[i][j] = with_it if j == i else max(with_it, best[i][j - 1])
    found, i = [], m
    for j in range(n, 0, -1):
        alone = i == 0 or (j > i and best[i][j - 1] >= best[i][j])
        found.append((0 if alone else i, j))
        i -= not alone
    return found[::-1]


def original_line(old: list[str], new: list[str], line: int) -> int:
    """The number in ``old`` of line ``line`` of ``new``, both from 1; 0 when it was added."""
    return next((i for i, j in aligned(tuple(old), tuple(new)) if j == line), 0)


def changed_lines(old: list[str], new: list[str]) -> list[tuple[int, int]]:
    """Pairs of line numbers from 1, in ``old`` and in ``new``, where the two differ.

    0 stands for the line that one of them does not have.
    """
    pairs = aligned(tuple(old), tuple(new))
    return [(i, j) for i, j in pairs if not i or not j or old[i - 1] != new[j - 1]]


def split_lines(data: bytes) -> list[str]:
    return re.split(r"\r\n|\r|\n", decode(data)[0])


def read_lines(path: Path) -> list[str]:
    try:
        return split_lines(path.read_bytes())
    except Exception:
        return []


def without_comments(lines: list[str]) -> list[str]:
    """The lines as far as they do something; as they are where they are no Python."""
    found = [*lines]
    text = iter([line + "\n" for line in lines])
    try:
        for token in tokenize.generate_tokens(lambda: next(text, "")):
            if token.type == tokenize.COMMENT:
                row, column = token.start
                found[row - 1] = lines[row - 1][:column]
    except (tokenize.TokenError, SyntaxError):
        return lines
    return [line.rstrip() for line in found]


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

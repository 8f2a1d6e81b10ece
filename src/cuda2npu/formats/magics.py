"""IPython's additions to Python: what of a cell is Python, with the rest blanked out.

A text keeps its length and its lines, so that places in it are places in the cell. The syntax
is that of IPython 8: ``%magic``, ``%%magic``, ``!command``, ``x = !command``, ``name?``.
"""

from __future__ import annotations

import ast
import re
import warnings
from typing import NamedTuple

from cuda2npu.model import SourceError
from cuda2npu.parsing import parse

_CELL_MAGIC = re.compile(r"\s*%%(!|\w+)([^\n]*)(?:\n|$)")
_PYTHON_CELLS = frozenset("time timeit capture prun memit mprun snakeviz debug".split())
"""Cell magics whose body runs in the notebook's own program."""
_OTHER_PROGRAMS = re.compile(r"(python[23]?|pypy3?|(writefile|file)\s.*\.py)\s*")
"""Cells that hold a Python program of their own, run or written to a file."""
_SHELL_CELLS = re.compile(r"(bash|sh|!|script\s+(/\S*/)?(ba|z)?sh)\b.*|!.*")

_MAGIC = re.compile(
    r"(?P<before>[ \t]*(?:[\w.,*\[\]\"' \t]+(?<![=!<>])=[ \t]*)?)"
    r"(?P<magic>(?:(?P<timed>%time(?:it)?[ \t]+(?:-[a-z]+[ \t]*\d*[ \t]+)*)|[%!]|\?)"
    r"(?:\\\r?\n|[^\n])*)"
)
_HELP = re.compile(r"(?P<before>[ \t]*)(?P<magic>[%\w.*]+\?\??[ \t;]*)(?=\r?\n|$)")
_SHELL_LINE = re.compile(
    r"(?P<start>[ \t]*(?:[\w.,\[\] \t]+=[ \t]*)?"
    r"(?:!!?|%(?:set_)?env[ \t]+|%(?=(?:pip|conda)[ \t])|%run[ \t]+(?=\S+\.py\b)))"
    r"(?P<command>(?:\\\r?\n|[^\n])*)"
)
_SET = re.compile(r"^([ \t]*%(?:set_)?env[ \t]+\w+)[ \t](?=[^\s=])", re.MULTILINE)
"""``%env NAME value``, which says the same as ``%env NAME=value``."""


class Masked(NamedTuple):
    """A cell's Python, or why it has none."""

    text: str
    program: bool = False
    """Whether it is a program of its own."""
    reason: str = ""
    shell: bool = False
    """Whether the cell is a shell script."""


def python_of(cell: str) -> Masked:
    """What of a code cell is Python."""
    magic = _CELL_MAGIC.match(cell)
    if magic is None:
        return _body(cell, 0)
    name, command = magic[1], (magic[1] + magic[2]).strip()
    if name in _PYTHON_CELLS:
        return _body(cell, magic.end())
    if _OTHER_PROGRAMS.fullmatch(command):
        return _body(cell, magic.end())._replace(program=True)
    shell = _SHELL_CELLS.fullmatch(command) is not None
    return Masked(_blank(cell), reason=f"%%{name} is not Python", shell=shell)


def _body(cell: str, start: int) -> Masked:
    text = _blank(cell[:start]) + cell[start:]
    while True:
        fault = _syntax_error(text)
        if fault is None:
            return Masked(text)
        masked = _mask_line(text, fault)
        if masked == text:
            try:
                parse(text)
            except SourceError as error:
                return Masked(_blank(cell), reason=str(error))
        text = masked


def _syntax_error(text: str) -> int | None:
    """The offset of the line that Python cannot read."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except SyntaxError as error:
        lines = text.split("\n")
        number = min(error.lineno or 1, len(lines))
        return sum(len(line) + 1 for line in lines[: number - 1])
    except (ValueError, RecursionError, MemoryError):
        return len(text)
    return None


def _mask_line(text: str, start: int) -> str:
    """The text with the magic that the line holds made a ``0``; the text itself without one."""
    magic = _MAGIC.match(text, start) or _HELP.match(text, start)
    if magic is None:
        return text
    begin, end = magic.span("magic")
    timed = magic.groupdict().get("timed")
    if timed and not magic["before"].strip():  # what is timed is a statement
        begun = text[:begin] + "0;".ljust(len(timed)) + text[begin + len(timed) :]
        if _syntax_error(begun) != start:
            return begun
    return text[:begin] + "0" + _blank(text[begin + 1 : end]) + text[end:]


def _blank(text: str) -> str:
    return re.sub(r"[^\r\n]", " ", text)


def shell_text(cell: str) -> str:
    """The cell with its variables set as in a shell; every character keeps its place."""
    return _SET.sub(r"\1=", cell)


def shell_parts(cell: str, masked: Masked) -> list[tuple[int, int]]:
    """Where the shell commands of a cell begin and end."""
    if masked.shell:
        magic = _CELL_MAGIC.match(cell)
        assert magic is not None
        return [(magic.end(), len(cell))]
    if masked.reason and not masked.reason.startswith("line"):
        return []
    return [
        match.span("command")
        for match in _SHELL_LINE.finditer(cell)
        if (match.start() == 0 or cell[match.start() - 1] == "\n")
        and masked.text[match.start() : match.end()] != match[0]
    ]

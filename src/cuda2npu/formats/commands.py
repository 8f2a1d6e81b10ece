"""Command lines inside other files, which rules report on and do not edit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from cuda2npu.formats.shell import Shell
from cuda2npu.model import SourceError
from cuda2npu.tokens import Command, InlinePython, Token, Word


def script(code: str, text: str, start: int, end: int) -> Iterator[Token]:
    """The commands of the shell script ``text[start:end]``; ``code`` is it without comments."""
    shell = Shell(code, text)
    try:
        shell.read(start, end)
    except SourceError:
        return  # a template, or another shell's
    for token in shell.tokens():
        if isinstance(token, InlinePython):
            yield replace(token, verbatim=False)
        elif isinstance(token, Command):
            yield token


def listed(text: str, words: Sequence[Word]) -> Iterator[Token]:
    """The command that a list of strings is, or the script that its shell is given."""
    if len(words) == 3 and words[1].value in ("-c", "-lc"):
        yield from scalar(text, words[2])
    elif words:
        start, end = words[0].start, words[-1].end
        options = words[0].value.startswith("-")  # of a program that is named elsewhere
        yield Command(text[start:end], start, end, tuple(words), in_string=options)


def scalar(text: str, token: Token) -> Iterator[Token]:
    """The commands of a script that is written as a plain, quoted or block text."""
    start, end = token.start, token.end
    if token.text[0] in "|>":
        start += token.text.find("\n") + 1
    elif token.text[0] in "\"'":
        start, end = start + 1, end - 1
    yield from script(text, text, start, end)

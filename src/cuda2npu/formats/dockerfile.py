"""Dockerfiles: instructions, and what their commands install."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from cuda2npu.formats.commands import listed, script
from cuda2npu.formats.document import rewrite_document
from cuda2npu.formats.installs import command_tokens
from cuda2npu.tokens import Instruction, Token, Variable, Word

_COMMENT = re.compile(r"[ \t]*(?:#[^\n]*)?\r?(?:\n|$)")
_COMMENTED = re.compile(r"^[ \t]*#[^\n]*", re.M)
_VALUE = r"(?P<value>\"[^\"]*\"|'[^']*'|(?:\\.|[^\s\\])*)"
_PAIR = re.compile(rf"(?<=\s)(?P<name>[A-Za-z_]\w*)(?:={_VALUE}|(?P<nothing>(?=\s*$)))")
_SINGLE = re.compile(r"ENV\s+(?P<name>[A-Za-z_]\w*)[ \t]+(?P<value>[^=].*)", re.I | re.S)
_ASSIGNMENT = re.compile(
    r"(?:(?<=[;&|(])|(?<=\w\s))[\s\\]*(?P<name>[A-Z_][A-Z0-9_]+)="
    r"(?P<value>\"[^\"]*\"|'[^']*'|[^\s;&|)]*)"
)
"""A variable that a command of a shell sets: where it begins, or behind another one."""
_WORD = re.compile(r"[ \t]*(?P<word>[A-Za-z]+)\b")
_COMMAND = re.compile(
    r"(?:HEALTHCHECK\s[^\n]*?)?(?:RUN|CMD|ENTRYPOINT)\b(?:[\s\\]+--\w+\S*)*[\s\\]+", re.I
)
_LIST = re.compile(r"\[\s*(\"(?:[^\"\\]|\\.)*\"[\s,\\]*)*\]\s*")
_STRING = re.compile(r"\"((?:[^\"\\]|\\.)*)\"")
_LINE = re.compile(r"[^\n]*(?:\n|$)")
_HEREDOC = re.compile(r"<<-?[\"']?(\w+)")
_SCRIPT = re.compile(r"<<-?([\"']?)\w+\1[ \t]*\r?\n")
"""The head of ``RUN <<EOF``, where the lines up to EOF are the commands."""
_ESCAPE = re.compile(r"\A(?:#[^\n]*\n)*?#\s*escape\s*=\s*(\S)", re.I)


def tokens(text: str) -> Iterator[Token]:
    """The instructions, each followed by what its commands install."""
    escape = _ESCAPE.match(text)
    for start, end in _spans(text, escape[1] if escape else "\\"):
        word = _WORD.match(text, start)
        if word is None:  # a template's line
            continue
        start = word.start("word")
        keyword = word["word"].upper()
        yield Instruction(text[start:end], start, end, keyword)
        code = _COMMENTED.sub(_blank, text[start:end])
        yield from _variables(keyword, code, start)
        if keyword == "RUN":
            yield from command_tokens(code, start)


def _variables(keyword: str, code: str, offset: int) -> Iterator[Variable]:
    """The variables that an instruction sets for itself or for those that follow."""
    pattern = _PAIR if keyword in ("ENV", "ARG") else _ASSIGNMENT
    if keyword == "ENV" and (single := _SINGLE.match(code)):
        yield _variable(single, offset)
    elif keyword in ("ENV", "ARG", "RUN", "CMD", "ENTRYPOINT"):
        for match in pattern.finditer(code):
            yield _variable(match, offset)


def _variable(match: re.Match[str], offset: int) -> Variable:
    start, end = match.span("name")
    value = match["value"]
    return Variable(match["name"], start + offset, end + offset, value and value.strip("\"'"))


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


def _spans(text: str, escape: str) -> Iterator[tuple[int, int]]:
    """Where each instruction starts and ends, without the last line end."""
    position = 0
    while position < len(text):
        start = position
        comment = _COMMENT.match(text, position)
        if comment:
            position = comment.end()
            continue
        position = _end_of_line(text, position)
        heredocs = _HEREDOC.findall(text[start:position]) if "<<" in text[start:position] else []
        line = text[start:position]
        while position < len(text) and (line.rstrip().endswith(escape) or _COMMENT.fullmatch(line)):
            begin, position = position, _end_of_line(text, position)
            line = text[begin:position]
        for name in heredocs:
            close = re.compile(rf"^\s*{name}\s*$", re.M).search(text, position)
            position = _end_of_line(text, close.start() + 1) if close else len(text)
        yield start, start + len(text[start:position].rstrip())


def _end_of_line(text: str, position: int) -> int:
    match = _LINE.match(text, position)
    assert match is not None
    return match.end()


def commands(text: str) -> Iterator[Token]:
    """The command lines of RUN, CMD, ENTRYPOINT and HEALTHCHECK, for rules that report."""
    code = _COMMENTED.sub(_blank, text)
    for token in tokens(text):
        head = _COMMAND.match(code, token.start, token.end)
        if head is None or not isinstance(token, Instruction):
            continue
        start, end = head.end(), token.end
        if _LIST.fullmatch(code, start, end):
            strings = _STRING.finditer(text, start, end)
            words = [Word(m[0], *m.span(), m[1], "$" not in m[1]) for m in strings]
            yield from listed(text, words)
        elif whole := _SCRIPT.match(code, start, end):
            if not text.startswith("#!", whole.end()):  # another interpreter's
                yield from script(code, text, whole.end(), text.rfind("\n", start, end))
        else:
            yield from script(code, text, start, end)


rewrite_bytes = partial(rewrite_document, tokenize=tokens, commands=commands)

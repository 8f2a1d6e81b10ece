"""What a word of a shell script says without its quotes."""

from __future__ import annotations

import re

from cuda2npu.tokens import Directive, Word

OPAQUE = "\x01"
"""Stands for a character that something else expands before the shell sees it."""

_LITERAL = re.compile(r"(?:[^$`\x01'\"\\]|'[^']*'|\\.|\"(?:[^$`\x01\"\\]|\\.)*\")*", re.S)
_QUOTES = re.compile(r"'([^']*)'|\"|\\(?=[^\n])")
_CONTINUATION = re.compile(r"\\\r?\n")
_DIRECTIVE = re.compile(r"#(SBATCH|PBS|BSUB|COBALT|\$)[ \t]")
_COMMENT = re.compile(r"\s#")


def word_of(text: str, source: str, start: int, end: int) -> Word:
    """The word ``text[start:end]``, which is written as ``source`` has it."""
    raw = text[start:end]
    value = _QUOTES.sub(lambda match: match[1] or "", _CONTINUATION.sub("", raw))
    return Word(source[start:end], start, end, value, _LITERAL.fullmatch(raw) is not None)


def directive_of(line: str, start: int) -> Directive | None:
    """The directive that a comment at the beginning of a line is; what follows ``#`` is none."""
    head = _DIRECTIVE.match(line)
    if head is None:
        return None
    comment = _COMMENT.search(line, head.end())
    stop = comment.start() if comment else len(line)
    words = tuple(
        Word(match[0], start + match.start(), start + match.end(), match[0].replace('"', ""), True)
        for match in re.compile(r"\S+").finditer(line, head.end(), stop)
    )
    return Directive(line[:stop], start, start + stop, words)

"""What a word of a shell script says without its quotes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from cuda2npu.model import SourceError
from cuda2npu.tokens import Directive, Mention, Word

OPAQUE = "\x01"
"""Stands for a character that something else expands before the shell sees it."""

_VARIABLE = re.compile(r"(?:(?<![\w/.])|(?<=-[exuvD]))[A-Z][A-Z0-9]*_[A-Z0-9_]+(?![\w/.])")
_LITERAL = re.compile(r"(?:[^$`\x01'\"\\]|'[^']*'|\\.|\"(?:[^$`\x01\"\\]|\\.)*\")*", re.S)
_QUOTES = re.compile(r"'([^']*)'|\"|\\(?=[^\n])")
_CONTINUATION = re.compile(r"\\\r?\n")
_DIRECTIVE = re.compile(r"#(SBATCH|PBS|BSUB|COBALT|\$)[ \t]")
_COMMENT = re.compile(r"\s#")


@dataclass
class HereDocument:
    """A here-document that a command reads."""

    delimiter: str
    quoted: bool
    strip: bool
    words: list[Word]
    """The words of the command, which may still grow."""


def mentions(source: str, start: int, end: int) -> Iterator[Mention]:
    """The names in ``source[start:end]`` that are written as those of environment variables."""
    for match in _VARIABLE.finditer(source, start, end):
        yield Mention(match[0], *match.span(), match[0])


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


def unclosed(text: str, position: int, closer: str) -> SourceError:
    """The error for a quote or bracket at ``position`` that is never closed."""
    line = text.count("\n", 0, position) + 1
    return SourceError(
        f"line {line}: what opens here is never closed by {closer}. "
        "Mend the syntax and run again. Left as it was."
    )

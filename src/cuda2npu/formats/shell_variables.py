"""Variables that stand as words of commands: ``export NAME``, ``read NAME``, ``--export=NAME``."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from cuda2npu.tokens import Assignment, Parameter, Token, Word

SETTERS = frozenset("export declare typeset local readonly".split())
"""Commands whose arguments may assign."""
_NAMING = SETTERS | frozenset("read mapfile readarray getopts printenv unset".split())
"""Commands whose arguments are names of variables."""
_OPTIONS = {"printf": "-v", "[": "-v", "[[": "-v", "test": "-v", "env": "-u"}
"""Options that a name of a variable follows."""
_SUBMITTERS = frozenset("srun sbatch salloc qsub".split())
_NAME = re.compile(r"[A-Za-z_]\w*")
_EXPORTED = re.compile(r"(?P<name>[A-Za-z_]\w*)(?:=(?P<value>[^,\"']*))?")


def named(words: list[Word], source: str) -> Iterator[Token]:
    """The variables that a command's words name without a dollar."""
    first = words[0].value
    if first in ("for", "select"):
        yield from _names(words[1:2])
    elif first in _NAMING:
        yield from _names(words[1:], unset=first == "unset")
    elif first == "let":
        for word in words[1:]:
            for match in _NAME.finditer(source, word.start, word.end):
                yield Parameter(match[0], *match.span(), match[0])
    for option, word in itertools.pairwise(words):
        if option.value == _OPTIONS.get(first):
            yield from _names([word], unset=first == "env")


def _names(words: list[Word], *, unset: bool = False) -> Iterator[Assignment]:
    for word in words:
        if _NAME.fullmatch(word.text):
            yield Assignment(word.text, word.start, word.end, word.text, None, True, unset=unset)


def submitted(words: list[Word] | tuple[Word, ...]) -> Iterator[Assignment]:
    """The variables that a batch system hands to a job, by ``--export`` or ``-v``."""
    directive = words and words[0].value.startswith("-")
    if not words or not (directive or words[0].value in _SUBMITTERS):
        return
    takes_v = directive or words[0].value == "qsub"
    for before, word in zip(("", *(word.value for word in words)), words, strict=False):
        offset = len("--export=") if word.text.startswith("--export=") else 0
        if offset or before == "--export" or (before == "-v" and takes_v):
            for match in _EXPORTED.finditer(word.text, offset):
                yield _exported(word, match)


def _exported(word: Word, match: re.Match[str]) -> Assignment:
    place = (match[0], word.start + match.start(), word.start + match.end())
    return Assignment(*place, match["name"], match["value"], "$" not in match[0])

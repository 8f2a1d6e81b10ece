"""Rewriting a document: a format's tokens, the rules about them, their edits put in place."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from cuda2npu.knowledge import Knowledge
from cuda2npu.model import Finding, FixLevel, Options, Result, SourceError
from cuda2npu.packs import selected_rules
from cuda2npu.releases import exists
from cuda2npu.rule import Fix, Report, Rule
from cuda2npu.source import decode
from cuda2npu.suppress import Suppressions, comments_of_lines
from cuda2npu.tokens import Token

Tokenize = Callable[[str], Iterable[Token]]
"""A format's parser; raises SourceError for a text that it cannot read."""

_LINE_END = re.compile(r"\r\n?|\n")


@dataclass(frozen=True)
class Document:
    """A text with its tokens; what a rule sees, as :class:`cuda2npu.tokens.DocumentSite`."""

    path: str
    text: str
    tokens: tuple[Token, ...]
    options: Options
    project: Knowledge

    def exists(self, dotted: str) -> bool:
        return exists(dotted, self.options.torch_npu)

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(match.end() for match in _LINE_END.finditer(self.text))]

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of a character offset, both from 1."""
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1


def rewrite_document(
    data: bytes,
    options: Options,
    *,
    path: str,
    tokenize: Tokenize,
    knowledge: Knowledge | None = None,
) -> tuple[bytes, Result]:
    """Rewrite a document's bytes. Unchanged input comes back as the same object.

    Raises SourceError when the bytes do not decode or the format's parser refuses the text.
    """
    text, encoding = decode(data)
    suppressions = Suppressions(comments_of_lines(text))
    if suppressions.skip_file:
        return data, Result(path, text, changed=False)
    document = Document(path, text, tuple(tokenize(text)), options, knowledge or Knowledge())
    edits: dict[Token, str] = {}
    findings = [
        _take(document, rule, token, outcome, edits)
        for rule, token, outcome in _ask(document)
        if not suppressions.covers(_finding(document, rule, token, outcome))
    ]
    new = _assemble(text, edits)
    if edits:
        _read_again(new, tokenize)
    result = Result(path, new, new != text, tuple(sorted(findings)), tuple(suppressions.notes))
    return (encoding.encode(new) if result.changed else data), result


def _read_again(text: str, tokenize: Tokenize) -> None:
    """A text that its own parser refuses is never written."""
    try:
        tuple(tokenize(text))
    except SourceError as error:  # pragma: no cover - a rule's defect
        raise RuntimeError(f"the edited text cannot be read: {error}") from None


def _ask(document: Document) -> Iterator[tuple[Rule, Token, Fix | Report]]:
    rules = [
        rule
        for rule in selected_rules(document.options)
        if rule.is_about_documents and any(word in document.text for word in rule.words)
    ]
    for token in document.tokens:
        for rule in rules:
            if isinstance(token, rule.on):
                outcome = rule.function(token, document)
                if outcome is not None:
                    yield rule, token, outcome


def _finding(document: Document, rule: Rule, token: Token, outcome: Fix | Report) -> Finding:
    level = FixLevel.NONE
    if isinstance(outcome, Fix):
        level = outcome.level or rule.fix
    place = outcome.at or token
    assert isinstance(place, Token)
    quiet = rule.quiet if outcome.quiet is None else outcome.quiet
    span = (*document.position(place.start), *document.position(place.end))
    message = outcome.message or rule.why
    return Finding(document.path, *span, rule.code, rule.name, message, level, quiet)


def _take(
    document: Document, rule: Rule, token: Token, outcome: Fix | Report, edits: dict[Token, str]
) -> Finding:
    """The finding, applied when its level is and no other edit was there first."""
    finding = _finding(document, rule, token, outcome)
    if not isinstance(outcome, Fix) or not document.options.applies(finding.fix):
        return finding
    if any(_overlap(place, other) for place in outcome.edits for other in edits):
        return replace(finding, fix=FixLevel.NONE)
    for place, new in outcome.edits.items():
        assert isinstance(place, Token)
        assert isinstance(new, str)
        edits[place] = new
    return replace(finding, applied=True)


def _overlap(one: Token, other: Token) -> bool:
    return one.start < other.end and other.start < one.end


def _assemble(text: str, edits: dict[Token, str]) -> str:
    pieces, position = [], 0
    for token in sorted(edits, key=lambda token: token.start):
        if text[token.start : token.end] != token.text:  # pragma: no cover - a parser's defect
            raise RuntimeError(f"the place of {token.text!r} was not found")
        pieces += [text[position : token.start], edits[token]]
        position = token.end
    return "".join((*pieces, text[position:]))

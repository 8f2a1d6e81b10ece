"""Rewriting a document: a format's tokens, the rules about them, their edits put in place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from cuda2npu.engine import rewrite_source
from cuda2npu.formats.edits import Edits
from cuda2npu.formats.embedded import splices
from cuda2npu.formats.positions import Lines
from cuda2npu.knowledge import Knowledge
from cuda2npu.model import Finding, FixLevel, Options, Result, SourceError
from cuda2npu.packs import selected_rules
from cuda2npu.releases import exists
from cuda2npu.rule import Fix, Report, Rule, without_offer
from cuda2npu.source import decode
from cuda2npu.suppress import Suppressions, comments_of_lines
from cuda2npu.tokens import InlinePython, Token

Tokenize = Callable[[str], Iterable[Token]]
"""A format's parser; raises SourceError for a text that it cannot read."""


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
    def lines(self) -> Lines:
        return Lines(self.text)


def rewrite_document(
    data: bytes,
    options: Options,
    *,
    path: str,
    tokenize: Tokenize,
    knowledge: Knowledge | None = None,
    commands: Tokenize = lambda text: (),
) -> tuple[bytes, Result]:
    """Rewrite a document's bytes. Unchanged input comes back as the same object.

    What ``commands`` finds is reported on and never edited.

    Raises SourceError when the bytes do not decode or the format's parser refuses the text.
    """
    text, encoding = decode(data)
    suppressions = Suppressions(comments_of_lines(text))
    if suppressions.skip_file:
        return data, Result(path, text, changed=False)
    document = Document(path, text, tuple(tokenize(text)), options, knowledge or Knowledge())
    edits = Edits()
    findings = [
        _take(document, rule, token, outcome, edits)
        for rule, token, outcome in _ask(document)
        if not suppressions.covers(_finding(document, rule, token, outcome))
    ]
    for token in document.tokens:
        if isinstance(token, InlinePython) and token.verbatim:
            findings += _python(document, token, suppressions, edits)
    told = tuple(commands(text))
    reported = findings_of(text, told, options, path, knowledge) if told else ()
    findings += [finding for finding in reported if not suppressions.covers(finding)]
    new = edits.applied(text)
    if edits:
        _read_again(new, tokenize)
    notes, made = tuple(suppressions.notes), edits.as_tuple(document.lines)
    result = Result(path, new, new != text, tuple(sorted(findings)), notes, made)
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


def findings_of(
    text: str, tokens: Iterable[Token], options: Options, path: str, knowledge: Knowledge | None
) -> list[Finding]:
    """What the rules say of a text that is not to be edited."""
    document = Document(path, text, tuple(tokens), options, knowledge or Knowledge())
    found = [_finding(document, rule, token, outcome) for rule, token, outcome in _ask(document)]
    return [
        replace(finding, fix=FixLevel.NONE, message=without_offer(finding.message))
        for finding in found
    ]


def _python(
    document: Document, token: InlinePython, suppressions: Suppressions, edits: Edits
) -> list[Finding]:
    """Rewrite Python inside a document, if the quotes around it hold the new text."""
    try:
        result = rewrite_source(
            token.text, document.options, path=document.path, knowledge=document.project
        )
    except SourceError:
        return []  # nobody says that it is Python 3
    findings = [_moved(document, token, finding) for finding in result.findings]
    kept = [finding for finding in findings if not suppressions.covers(finding)]
    pieces = list(splices(token.text, result))
    fits = not any(char in new for _, _, new in pieces for char in token.forbidden)
    if fits and kept == findings:
        for start, end, new in pieces:
            edits.add(token.part(start, end), new)
        return findings
    return [replace(f, applied=False, fix=FixLevel.NONE) if f.applied else f for f in kept]


def _moved(document: Document, token: InlinePython, finding: Finding) -> Finding:
    """A finding of Python code with its place in the document around."""
    lines = Lines(token.text)
    start = token.start + lines.offset(finding.line, finding.column)
    end = token.start + lines.offset(finding.end_line, finding.end_column)
    (line, column), (last, behind) = map(document.lines.position, (start, end))
    return replace(finding, line=line, column=column, end_line=last, end_column=behind)


def _finding(document: Document, rule: Rule, token: Token, outcome: Fix | Report) -> Finding:
    level, message = rule.finds(outcome, document.options)
    place = outcome.at or token
    assert isinstance(place, Token)
    quiet = rule.quiet if outcome.quiet is None else outcome.quiet
    span = (*document.lines.position(place.start), *document.lines.position(place.end))
    return Finding(document.path, *span, rule.code, rule.name, message, level, quiet)


def _take(
    document: Document, rule: Rule, token: Token, outcome: Fix | Report, edits: Edits
) -> Finding:
    """The finding, applied when its level is and no other edit was there first."""
    finding = _finding(document, rule, token, outcome)
    if not isinstance(outcome, Fix) or not document.options.applies(finding.fix):
        return finding
    if any(map(edits.meets, outcome.edits)):
        return replace(finding, fix=FixLevel.NONE)
    for place, new in outcome.edits.items():
        assert isinstance(place, Token)
        assert isinstance(new, str)
        edits.add(place, new)
    return replace(finding, applied=True)

"""Holds the rules of a pack to their examples, for the tests of any pack.

Every function raises :class:`AssertionError`, which names the rule and the example, so that
each can stand in a test as it is. Nothing here needs pytest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cuda2npu import formats
from cuda2npu.file_rules import UNREADABLE
from cuda2npu.gathering import know
from cuda2npu.knowledge import Knowledge
from cuda2npu.model import FixLevel, Options, Result, SourceError, Target
from cuda2npu.pack import Pack
from cuda2npu.packs import load_rules, packs, rules_of
from cuda2npu.rule import Example, Rule

__all__ = ["check_example", "check_examples", "check_metadata", "twice"]


def check_examples(pack: Pack) -> None:
    """Hold every rule of an installed pack to its examples.

    Raises AssertionError for the first that does not hold, and when the pack is not installed
    under its entry point or has no rule: then the command line would not find it either.
    """
    _require(
        pack in packs(),
        f"the pack {pack.name} is not installed: name it in the entry-point group "
        "cuda2npu.packs and install its package, with `pip install --editable .` while you work",
    )
    rules = rules_of(pack)
    _require(bool(rules), f"the modules of the pack {pack.name} hold no rule")
    for rule in rules:
        check_metadata(rule)
        for example in rule.examples:
            check_example(rule, example)


def check_metadata(rule: Rule) -> None:
    """A rule has examples, a name of its own, and words that its pack opens a file for."""
    if rule is UNREADABLE:
        return  # an example would be a gap of LibCST
    kinds = {example.kind for example in rule.examples}
    _require(bool(kinds - {"leave"}), f"{rule.code} has no example of what it finds")
    namesakes = {other.code for other in load_rules() if other.name == rule.name} - {rule.code}
    _require(not namesakes, f"{rule.code} has the name of {', '.join(namesakes)}, {rule.name}")
    field = "document_words" if rule.is_about_documents else "words"
    opening = {word for pack in packs() for word in getattr(pack, field)}
    for word in rule.words:
        known = not rule.default or any(part in word for part in opening)
        _require(known, f"{rule.code}: {word!r} opens no file; name it in the pack's {field}")


def check_example(rule: Rule, example: Example) -> None:
    """The rule does to the example what it says; what is written needs no second run."""
    options = _options(rule, example)
    place = f"{rule.code}, {example.kind} {example.before!r}"
    result = _rewrite(example.before, example, options, place)
    _rewrite(example.after, example, options, place)  # what is expected can be read
    mine = [finding for finding in result.findings if finding.code == rule.code]
    if example.kind == "leave":
        _require(not mine, f"{place}: is not left alone, but found")
    elif example.kind == "report":
        _require(bool(mine), f"{place}: is not found")
        _require(not any(finding.applied for finding in mine), f"{place}: is edited")
    else:
        _require(any(finding.applied for finding in mine), f"{place}: is not edited by this rule")
        _require(result.text == example.after, f"{place}: became {result.text!r}")
    for first, second in twice(rule, example):
        _require(
            not second.changed, f"{place}: a second run makes {second.text!r} of {first.text!r}"
        )


def twice(rule: Rule, example: Example) -> Iterator[tuple[Result, Result]]:
    """What a run makes of the example and a second run of its text, without ``--unsafe`` and with.

    Raises AssertionError when a text cannot be read, or an edit that applies was not made.
    """
    for unsafe in (False, True):
        options = replace(_options(rule, example), unsafe=unsafe)
        place = f"{rule.code}, {example.kind} {example.before!r}"
        first = _rewrite(example.before, example, options, place)
        left = [finding.code for finding in first.remaining if options.applies(finding.fix)]
        _require(not left, f"{place}: {', '.join(left)} could be edited, but is not")
        yield first, _rewrite(first.text, example, options, place)


def _rewrite(text: str, example: Example, options: Options, place: str) -> Result:
    """Rewrite a text as a file of the example's name, in a project with those beside it."""
    path, known = example.path, _known(text, example, options)
    try:
        return formats.rewrite_bytes(text.encode(), options, path=path, knowledge=known)[1]
    except SourceError as error:
        raise AssertionError(f"{place}: {text!r} cannot be read: {error}") from None


def _known(text: str, example: Example, options: Options) -> Knowledge | None:
    """What the files of the example say about each other; None when it stands alone."""
    if not example.beside:
        return None
    sources = {example.path: text, **dict(example.beside)}
    named = {name: name for name in sources}
    known = know(lambda: ((n, t.encode()) for n, t in sources.items()), named, options)
    return known.seen_from(example.path)


def _options(rule: Rule, example: Example) -> Options:
    target = Target.NPU if Target.NPU in rule.targets else Target.SHIM
    options = Options(unsafe=rule.fix is FixLevel.UNSAFE, target=target, chip=example.chip)
    if not rule.default:
        options = replace(options, select=(rule.code,))
    return options if example.release is None else replace(options, torch_npu=example.release)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(message)

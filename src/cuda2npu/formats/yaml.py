"""YAML: the events of PyYAML's parser, which tell places and make no objects."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import yaml

from cuda2npu.formats.commands import listed, scalar
from cuda2npu.formats.document import rewrite_document
from cuda2npu.formats.outline import Outline
from cuda2npu.model import SourceError
from cuda2npu.tokens import ConfigValue, Token, Word

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_KEYS = frozenset(["run", "command", "args", "entrypoint"])
_ABOVE = frozenset(["steps", "services", "containers", "initContainers"])
_PLACES = re.compile(r"\b(steps|services|containers|initContainers)[\"']?\s*:")
_PROPERTIES = re.compile(r"(?:[&!]\S*\s+)*")
"""Anchor and tag, which lead a scalar."""


def tokens(text: str) -> Iterable[Token]:
    """The keys and values of every document in the text.

    Raises SourceError for a text that is no YAML.
    """
    outline = Outline(text)
    for event in _events(text):
        if isinstance(event, yaml.ScalarEvent):
            assert event.start_mark is not None
            assert event.end_mark is not None
            start, end = event.start_mark.index, event.end_mark.index
            if event.value or start < end:  # else a value that is not there
                match = _PROPERTIES.match(text, start, end)
                outline.scalar(match.end() if match else start, end, event.value)
            else:
                outline.other()
        elif isinstance(event, yaml.AliasEvent):
            outline.other()
        elif isinstance(event, yaml.CollectionStartEvent):
            outline.begin(is_list=isinstance(event, yaml.SequenceStartEvent))
        elif isinstance(event, yaml.CollectionEndEvent):
            outline.end()
    return outline.tokens


def commands(text: str) -> Iterator[Token]:
    """The command lines of workflows, compose files and manifests, for rules that report."""
    if not _PLACES.search(text):
        return
    lists: dict[tuple[str | int, ...], list[Word]] = {}
    for token in tokens(text):
        if not isinstance(token, ConfigValue) or _ABOVE.isdisjoint(token.path):
            continue
        if token.path[-1] in _KEYS:
            yield from scalar(text, token)
        elif not _KEYS.isdisjoint(token.path[-2:-1]):
            place = (token.text, token.start, token.end)
            word = Word(*place, token.value, "$" not in token.value)
            lists.setdefault(token.path[:-1], []).append(word)
    for words in lists.values():
        yield from listed(text, words)


def _events(text: str) -> Iterator[yaml.Event]:
    try:
        yield from yaml.parse(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}: " if mark else ""
        raise SourceError(f"{line}no YAML: {error.problem}. Left as it was.") from None
    except yaml.YAMLError as error:
        raise SourceError(f"no YAML: {' '.join(str(error).split())}. Left as it was.") from None


rewrite_bytes = partial(rewrite_document, tokenize=tokens, commands=commands)

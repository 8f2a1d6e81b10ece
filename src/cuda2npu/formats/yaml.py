"""YAML: the events of PyYAML's parser, which tell places and make no objects."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import yaml

from cuda2npu.formats.document import rewrite_document
from cuda2npu.formats.outline import Outline
from cuda2npu.model import SourceError
from cuda2npu.tokens import Token

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
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


def _events(text: str) -> Iterator[yaml.Event]:
    try:
        yield from yaml.parse(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}: " if mark else ""
        raise SourceError(f"{line}no YAML: {error.problem}. Left as it was.") from None
    except yaml.YAMLError as error:
        raise SourceError(f"no YAML: {' '.join(str(error).split())}. Left as it was.") from None


rewrite_bytes = partial(rewrite_document, tokenize=tokens)

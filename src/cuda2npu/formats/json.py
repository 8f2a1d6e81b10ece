"""JSON: the standard library says what is JSON, a scan of its own where each piece stands."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import partial
from json.decoder import scanstring  # type: ignore[attr-defined]

from cuda2npu.formats.document import rewrite_document
from cuda2npu.formats.outline import Outline
from cuda2npu.model import SourceError
from cuda2npu.tokens import Token

_BARE = re.compile(r"[^\s,\]}:]+")


def tokens(text: str) -> Iterable[Token]:
    """The keys and values of the text. Raises SourceError for a text that is no JSON."""
    _refuse(text)
    outline = Outline(text)
    position = 0
    while position < len(text):
        char = text[position]
        if char == '"':
            value, end = scanstring(text, position + 1)
            outline.scalar(position, end, value)
            position = end
        elif char in "{[":
            outline.begin(is_list=char == "[")
            position += 1
        elif match := _BARE.match(text, position):
            outline.scalar(position, match.end(), match[0])
            position = match.end()
        else:
            if char in "}]":
                outline.end()
            position += 1
    return outline.tokens


def _refuse(text: str) -> None:
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        raise SourceError(f"line {error.lineno}: no JSON: {error.msg}. Left as it was.") from None
    except RecursionError:
        raise SourceError("nested too deeply. Left as it was.") from None


rewrite_bytes = partial(rewrite_document, tokenize=tokens)

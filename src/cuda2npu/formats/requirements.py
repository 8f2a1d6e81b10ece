"""Requirements and constraints of pip, line by line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from cuda2npu.formats.document import rewrite_document
from cuda2npu.formats.installs import requirement
from cuda2npu.tokens import PackageIndex, Token

_LINE = re.compile(r"(?P<code>(?:\\\r?\n|(?!(?:(?<=\s)|^)#)[^\r\n])*)(?:#[^\r\n]*)?", re.M)
_INDEX = re.compile(r"(?:-i|-f|--index-url|--extra-index-url|--find-links)(?:\s*=\s*|\s+)(\S+)")
_NEWLINE = re.compile(r"\r\n?|\n")


def tokens(text: str) -> Iterator[Token]:
    """The requirements and the indexes of the text."""
    newline = _NEWLINE.search(text)
    more = (newline[0] if newline else "\n") + "{}"
    for line in _LINE.finditer(text):
        code = line["code"].rstrip("\\ \t\r\n")
        start = line.start() + len(code) - len(code.lstrip())
        code = code.lstrip()
        index = _INDEX.match(code)
        if index:
            yield PackageIndex(index[1], start + index.start(1), start + index.end(1))
        elif code and not code.startswith("-"):
            hashed = "--hash" in code
            found = requirement(code, start, "pip", room=-1 if hashed else line.end(), more=more)
            if found is not None:
                yield found


rewrite_bytes = partial(rewrite_document, tokenize=tokens)

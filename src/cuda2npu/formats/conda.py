"""Environments of conda: YAML whose list of dependencies names packages."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from cuda2npu.formats import yaml
from cuda2npu.formats.document import rewrite_document
from cuda2npu.formats.installs import requirement
from cuda2npu.tokens import ConfigValue, PackageIndex, Token

_OPTIONS = ("--index-url", "--extra-index-url", "--find-links", "-i", "-f")


def tokens(text: str) -> Iterator[Token]:
    """What the YAML holds, with its packages. Raises SourceError for no YAML."""
    for token in yaml.tokens(text):
        listed = isinstance(token, ConfigValue) and token.path[:1] == ("dependencies",)
        yield (_dependency(text, token) if listed else None) or token


def _dependency(text: str, token: Token) -> Token | None:
    assert isinstance(token, ConfigValue)
    quote = len(token.text) - len(token.text.lstrip("\"'"))
    start = token.start + quote
    option, _, address = token.value.partition(" ")
    if option in _OPTIONS:
        place = start + token.value.rfind(address)
        return PackageIndex(address, place, place + len(address))
    if token.text[quote : quote + len(token.value)] != token.value:
        return None
    if "pip" not in token.path:
        return requirement(token.value, start, "conda")
    begin = text.rfind("\n", 0, token.start) + 1
    lead = text[begin : token.start]
    alone = lead.strip() == "-" and not quote
    room, more = (token.end, f"\n{lead}{{}}") if alone else (-1, "")
    return requirement(token.value, start, "pip", room=room, more=more)


rewrite_bytes = partial(rewrite_document, tokenize=tokens)

"""pyproject.toml: settings, and the packages that a project depends on."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial

from cuda2npu.formats import toml
from cuda2npu.formats.document import rewrite_document
from cuda2npu.formats.installs import requirement
from cuda2npu.tokens import ConfigValue, PackageIndex, Requirement, Token

_LISTS = re.compile(
    r"(project/(dependencies|optional-dependencies/[^/]+)|dependency-groups/[^/]+"
    r"|tool/uv/(dev|constraint|override)-dependencies)/\d+"
)
_TABLES = re.compile(
    r"tool/(poetry|pixi|pdm)/(.+/)?(dependencies|dev-dependencies|pypi-dependencies)/(?P<name>[^/]+)"
    r"(?P<version>/version)?"
)
_INDEXES = re.compile(r"tool/(uv|poetry|pdm)/(.+/)?(index|source|find-links)/\d+(/url)?")


def tokens(text: str) -> Iterable[Token]:
    """What the TOML holds, with its dependencies. Raises SourceError for no TOML."""
    for token in toml.tokens(text):
        found = _dependency(text, token) if isinstance(token, ConfigValue) else None
        yield found or token


def _dependency(text: str, token: ConfigValue) -> Token | None:
    path = "/".join(map(str, token.path))
    if _INDEXES.fullmatch(path):
        return PackageIndex(token.text, token.start, token.end)
    table = _TABLES.fullmatch(path)
    if table:
        package = re.sub(r"[-_.]+", "-", table["name"]).lower()
        return Requirement(token.text, token.start, token.end, package, token.value, "pip")
    quote = token.text[:1]
    if _LISTS.fullmatch(path) and token.text == f"{quote}{token.value}{quote}":
        begin = text.rfind("\n", 0, token.start) + 1
        alone = not text[begin : token.start].strip()
        gap = "\n" + text[begin : token.start] if alone else " "
        more = f",{gap}{quote}{{}}{quote}"
        return requirement(token.value, token.start + 1, "pip", room=token.end, more=more)
    return None


rewrite_bytes = partial(rewrite_document, tokenize=tokens)

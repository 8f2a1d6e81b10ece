"""pyproject.toml and setup.cfg: settings, and the packages that a project depends on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from cuda2npu.formats import toml
from cuda2npu.formats.document import rewrite_document
from cuda2npu.formats.installs import requirement
from cuda2npu.model import Options, Result
from cuda2npu.tokens import ConfigValue, PackageIndex, Requirement, Token

_LISTS = re.compile(
    r"(project/(dependencies|optional-dependencies/[^/]+)|dependency-groups/[^/]+"
    r"|tool/uv/(dev|constraint)-dependencies)/\d+"
)
_TABLES = re.compile(
    r"tool/(poetry|pixi|pdm)/(.+/)?(dependencies|dev-dependencies|pypi-dependencies)/(?P<name>[^/]+)"
    r"(?P<version>/version)?"
)
_INDEXES = re.compile(r"tool/(uv|poetry|pdm)/(.+/)?(index|source|find-links)/\d+(/url)?")


def rewrite_bytes(data: bytes, options: Options, *, path: str) -> tuple[bytes, Result]:
    """Rewrite the file's bytes. Unchanged input comes back as the same object.

    Raises SourceError when the bytes do not decode or are no TOML.
    """
    scan = _setup_tokens if path.endswith(".cfg") else tokens
    return rewrite_document(data, options, path=path, tokenize=scan)


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


_SECTION = re.compile(r"\[(?P<name>[^\]]+)\]")
_OPTION = re.compile(r"(?P<name>[\w.-]+)\s*[=:]\s*(?P<value>.*)")
_REQUIRES = ("install_requires", "setup_requires", "tests_require")


def _setup_tokens(text: str) -> Iterator[Token]:
    """The dependencies that setup.cfg lists."""
    section, listed, position = "", False, 0
    for line in text.splitlines(keepends=True):
        code = line.rstrip()
        option = _OPTION.match(code)
        if header := _SECTION.match(code):
            section, listed = header["name"], False
        elif option:
            extras = section == "options.extras_require"
            listed = extras or (section == "options" and option["name"] in _REQUIRES)
            if listed and option["value"]:
                found = requirement(option["value"], position + option.start("value"), "pip")
                yield from (found,) if found else ()
        elif listed and code.strip() and code[0].isspace() and not code.lstrip().startswith("#"):
            indent = len(code) - len(code.lstrip())
            room, more = position + len(code), line[len(code) :] + code[:indent] + "{}"
            found = requirement(
                code[indent:], position + indent, "pip", room=room if more[0] in "\r\n" else -1,
                more=more,
            )  # fmt: skip
            yield from (found,) if found else ()
        position += len(line)

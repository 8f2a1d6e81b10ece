"""What an installer is asked for: requirements as they stand in files and in commands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal

from cuda2npu.tokens import PackageIndex, Requirement, Token

_NAME = r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?"
_PIP = re.compile(
    rf"(?P<name>{_NAME})\s*(?:\[[^\]]*\])?\s*"
    r"(?:\(?(?P<version>[=<>!~][^;()#\\]*?)\)?|(?P<url>@\s*\S+))?"
    r"[\s\\]*(?P<rest>;.*|--hash.*)?$",
    re.S,
)
_CLAUSE = re.compile(r"\s*[=<>!~]=?=?\s*[^\s=<>~]+\s*")
_CONDA = re.compile(
    rf"(?:[\w./-]+::)?(?P<name>{_NAME})(?P<version>\s*[=<>!~].*|\s+[\d*].*)?$", re.S
)
_APT = re.compile(rf"(?P<name>{_NAME})(?P<version>=\S+)?$")
_GRAMMAR = {"pip": _PIP, "conda": _CONDA, "apt": _APT}

Installer = Literal["pip", "conda", "apt"]


def requirement(
    text: str, start: int, installer: Installer, *, room: int = -1, more: str = ""
) -> Requirement | None:
    """The requirement that a piece of a file is; None when it is something else."""
    match = _GRAMMAR[installer].match(text)
    version = match["version"] or "" if match else ""
    clauses = filter(None, version.split(",")) if installer == "pip" else ()
    if match is None or not all(map(_CLAUSE.fullmatch, clauses)):
        return None
    package = re.sub(r"[-_.]+", "-", match["name"]).lower()
    version = re.sub(r"\s+", "", version).rstrip(",")
    return Requirement(text, start, start + len(text), package, version, installer, room, more)


_COMMAND = re.compile(
    r"\b(?P<tool>pip[\d.]*|conda|mamba|micromamba|apt(?:-get)?)\s+"
    r"(?:-\S+\s+)*(?P<verb>install|create|download|wheel)\b(?P<words>(?:\\\r?\n|[^\n;&|])*)"
)
_WORD = re.compile(r"""(?:"[^"\n]*"|'[^'\n]*'|\\\r?\n|[^\s"'])+""")
_INSTALLERS: Mapping[str, Installer] = {"pip": "pip", "apt": "apt"}
_TAKES_VALUE = frozenset(
    "-r -c -e -t -i -f -n -p --requirement --constraint --editable --target --index-url "
    "--extra-index-url --find-links --trusted-host --python --channel --name --prefix --file "
    "--platform --python-version --cache-dir --progress-bar --timeout --retries --override".split()
)
_INDEX_OPTIONS = ("-i", "-f", "--index-url", "--extra-index-url", "--find-links")


def command_tokens(text: str, offset: int = 0) -> Iterator[Token]:
    """The requirements and indexes in the commands that install packages; shell or the like."""
    for command in _COMMAND.finditer(text):
        installer = _INSTALLERS.get(re.sub(r"\W.*|\d.*", "", command["tool"]), "conda")
        option = ""
        for word in _WORD.finditer(text, command.start("words"), command.end("words")):
            bare, start = _unquoted(word[0], word.start() + offset)
            if not bare or bare.startswith("\\"):
                continue
            name, equals, value = bare.partition("=")
            if bare.startswith("-"):
                option = "" if equals else name
                if equals and name in _INDEX_OPTIONS:
                    yield _index(value, start + len(name) + 1)
            elif option in _INDEX_OPTIONS or ("://" in bare and "@" not in bare):
                yield _index(bare, start)
                option = ""
            elif option in _TAKES_VALUE or (option == "-c" and installer == "conda"):
                option = ""
            else:
                found = requirement(bare, start, installer)
                if found is not None and not re.search(r"/|\.(txt|whl|ya?ml)$", bare):
                    yield found
                option = ""


def _unquoted(word: str, start: int) -> tuple[str, int]:
    bare = word.strip("\\\r\n")
    start += word.index(bare) if bare else 0
    if len(bare) > 1 and bare[0] == bare[-1] and bare[0] in "\"'":
        return bare[1:-1], start + 1
    return bare, start


def _index(text: str, start: int) -> PackageIndex:
    return PackageIndex(text, start, start + len(text))

"""setup.cfg: the packages that a project depends on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from cuda2npu.formats.document import rewrite_document
from cuda2npu.formats.installs import requirement
from cuda2npu.tokens import Token

_SECTION = re.compile(r"\[(?P<name>[^\]]+)\]")
_OPTION = re.compile(r"(?P<name>[\w.-]+)\s*[=:]\s*(?P<value>.*)")
_REQUIRES = ("install_requires", "setup_requires", "tests_require")


def tokens(text: str) -> Iterator[Token]:
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


rewrite_bytes = partial(rewrite_document, tokenize=tokens)

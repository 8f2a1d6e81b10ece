"""Makefiles: variables, references to them, and recipes, which are shell scripts.

The syntax is that of GNU make. What make expands is blanked out before a recipe is read as a
script, so that ``$$HOME`` is the shell's variable and ``$(HOME)`` is make's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cuda2npu.formats.document import rewrite_document
from cuda2npu.formats.shell import Shell
from cuda2npu.formats.shell_words import OPAQUE, mentions
from cuda2npu.knowledge import Knowledge
from cuda2npu.model import Options, Result, SourceError
from cuda2npu.tokens import Assignment, Mention, Parameter, Token

_LINE = re.compile(r"(?:\\\r?\n|[^\n])*(?:\n|$)")
_VARIABLE = re.compile(
    r"[ ]*(?:[^\s:=#$][^:=#$]*:[ \t]*)?(?:(?:export|override|private|define)[ \t]+)*"
    r"(?P<name>[A-Za-z_][\w.-]*)[ \t]*(?::{0,3}|[?+!])=[ \t]*(?P<value>(?:\\\r?\n|[^#\n\r])*)"
)
_NAMES = re.compile(
    r"[ ]*(?P<word>(?:un)?export|undefine|(?:else[ \t]+)?ifn?def|define)[ \t]+"
    r"(?P<names>[\w \t]+?)[ \t]*(?:#.*)?\r?$",
    re.M,
)
_RULE = re.compile(r"[^\s#=][^=#\n]*?::?(?![=:])[^;=#\n]*(?P<recipe>;)?")
_DEFINE = re.compile(r"[ ]*(?:(?:export|override)[ \t]+)*define\b")
_ENDEF = re.compile(r"\s*endef\b")
_REFERENCE = re.compile(r"(?:(?:origin|value|flavor)[ \t]+)?(?P<name>[A-Za-z_]\w*)[ \t]*(?=[):}])")
_PREFIX = re.compile(r"\t[ \t]*[@+-]*[ \t]*[@+-]*")


def rewrite_bytes(
    data: bytes, options: Options, *, path: str, knowledge: Knowledge | None = None
) -> tuple[bytes, Result]:
    """Rewrite a makefile's bytes. Unchanged input comes back as the same object.

    Raises SourceError when the bytes do not decode or a quote is never closed.
    """
    return rewrite_document(data, options, path=path, tokenize=tokenize, knowledge=knowledge)


def tokenize(text: str) -> list[Token]:
    """The tokens of a makefile."""
    return _Makefile(text).tokens()


class _Makefile:
    def __init__(self, text: str) -> None:
        self._text = text
        self._found: list[Token] = []
        self._mentions: list[Mention] = []
        self._shell = Shell(self._masked(0, len(text)), text)
        in_rule = in_define = False
        for start, end in self._lines():
            line = text[start:end]
            if in_define:
                in_define = not _ENDEF.match(line)
                if in_define:
                    self._recipe(start, end)
            elif line.startswith("\t") and in_rule:
                self._recipe(start, end)
            elif line.strip() and not line.lstrip().startswith("#"):
                in_define = _DEFINE.match(line) is not None
                in_rule = self._statement(start, end) or (in_rule and line[0] in "\t ")
                self._mentioned(start, end)

    def tokens(self) -> list[Token]:
        every = {*self._found, *self._shell.tokens()}
        known = {token.start for token in every if isinstance(token, (Assignment, Parameter))}
        every |= {mention for mention in self._mentions if mention.start not in known}
        return sorted(every, key=lambda token: (token.start, -token.end, type(token).__name__))

    def _lines(self) -> Iterator[tuple[int, int]]:
        for match in _LINE.finditer(self._text):
            if match[0]:
                yield match.span()

    def _mentioned(self, start: int, end: int) -> None:
        """Note the names in a line of make's that nothing else accounts for."""
        comment = self._text.find("#", start, end)
        self._mentions += mentions(self._text, start, comment if comment >= 0 else end)

    def _recipe(self, start: int, end: int) -> None:
        prefix = _PREFIX.match(self._text, start, end)
        self._read(prefix.end() if prefix else start, end)

    def _read(self, start: int, end: int) -> None:
        """Read a recipe's line as a script; one that make alone understands is left out."""
        try:
            self._shell.read(start, end)
        except SourceError:
            return

    def _statement(self, start: int, end: int) -> bool:
        """Read a line that is no recipe; whether it begins a rule."""
        variable = _VARIABLE.match(self._text, start, end)
        if variable:
            self._variable(variable)
            return False
        names = _NAMES.match(self._text, start, end)
        if names:
            for name in re.compile(r"\w+").finditer(self._text, *names.span("names")):
                unset = names["word"] in ("unexport", "undefine")
                place = (name[0], *name.span())
                self._found.append(Assignment(*place, name[0], None, True, unset=unset))
            return False
        rule = _RULE.match(self._text, start, end)
        if rule and rule["recipe"]:
            self._read(rule.end(), end)
        return rule is not None

    def _variable(self, match: re.Match[str]) -> None:
        value = match["value"].rstrip()
        start, (first, last) = match.start("name"), match.span("value")
        last = first + len(value)
        text = self._text[start:last]
        literal = "$" not in value
        self._found.append(Assignment(text, start, last, match["name"], value, literal))
        try:
            self._shell.value(match["name"], first, last, bare=True)
        except SourceError:
            return

    # --- what make expands

    def _masked(self, position: int, limit: int) -> str:
        """A piece of the text with make's references blanked out; the references are noted."""
        pieces: list[str] = []
        text = self._text
        while True:
            dollar = text.find("$", position, limit)
            if dollar < 0 or dollar + 1 >= limit:
                return "".join((*pieces, text[position:limit]))
            pieces.append(text[position:dollar])
            after = text[dollar + 1]
            if after == "$":
                pieces.append(OPAQUE + "$")
                position = dollar + 2
            elif after in "({":
                end = self._reference(dollar + 2, ")" if after == "(" else "}")
                pieces.append(re.sub(r"[^\n]", OPAQUE, text[dollar:end]))
                position = end
            else:
                pieces.append(OPAQUE * 2)
                position = dollar + 2

    def _reference(self, position: int, closer: str) -> int:
        """Note the variables of a reference; the offset behind it."""
        text, opener = self._text, "({"[closer == "}"]
        name = _REFERENCE.match(text, position)
        if name:
            self._found.append(Parameter(name["name"], *name.span("name"), name["name"]))
        start, depth = position, 1
        while position < len(text) and depth:
            char = text[position]
            if text.startswith(("$(", "${"), position):
                position = self._reference(position + 2, ")" if text[position + 1] == "(" else "}")
                continue
            depth += (char == opener) - (char == closer)
            position += 1
        if not text.startswith("shell ", start):
            self._mentioned(start, position)
        else:
            self._command(start + len("shell "), position - 1)
        return position

    def _command(self, start: int, end: int) -> None:
        """The command of ``$(shell …)``."""
        masked = self._text[:start] + self._masked(start, end) + self._text[end:]
        shell = Shell(masked, self._text)
        try:
            shell.read(start, end)
        except SourceError:
            return
        self._found += shell.tokens()

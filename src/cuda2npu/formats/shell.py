"""Shell scripts: what their words mean to rules, and scripts inside scripts."""

from __future__ import annotations

import itertools
import re

from cuda2npu.formats.document import rewrite_document
from cuda2npu.formats.installs import command_tokens
from cuda2npu.formats.shell_lexer import Lexer
from cuda2npu.formats.shell_variables import SETTERS, named, submitted
from cuda2npu.formats.shell_words import HereDocument, mentions
from cuda2npu.knowledge import Knowledge
from cuda2npu.model import Options, Result, SourceError
from cuda2npu.tokens import (
    Assignment,
    Command,
    Directive,
    InlinePython,
    Mention,
    Parameter,
    Token,
    Word,
)

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?(\+?=)")
_NAME = re.compile(r"[A-Za-z_]\w*")
_PASSING = frozenset("env sudo nohup exec make gmake time nice parallel".split())
"""Commands before whose program variables may be set."""
_PASSED_BY = {"-e", "--env", "-x"}
"""Options of docker and mpirun that take a variable."""
_CONTAINERS = re.compile(r"(nvidia-)?docker|podman|mpirun|mpiexec|horovodrun|singularity|apptainer")
_PYTHON = re.compile(r"(.*/)?(python|pypy|ipython)[\d.]*|\"?\$[({]?\w*PYTHON\w*[)}]?\"?")
_SHELL = re.compile(r"(.*/)?(ba|z|da|k)?sh")
_CODE_OPTIONS = frozenset(["-c", "-lc", "-xc", "-ic"])
_INSTALLERS = re.compile(r"pip[\d.]*|conda|mamba|micromamba|apt(-get)?")
_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"", re.S)
_SETTING_LINE = re.compile(r"[\"'][A-Z_]\w*=\S*\s+[^\s=]")
"""A quoted text that reads ``NAME=value command``."""
_SCRIPT_HEAD = re.compile(r"#!.*\b(ba|z|da|k)?sh\b")
_TELLERS = frozenset("echo printf log die warn error usage info export".split())
_ARRAY = re.compile(r"\((.*)\)", re.S)
_ALONE = re.compile(r"([\"'])(\w+)\1")
_OTHER_LANGUAGES = frozenset("awk gawk mawk perl sed envsubst trap ssh".split())
"""Programs whose quoted arguments read or set variables in a language of their own."""
_PRINTERS = frozenset("echo printf".split())


def rewrite_bytes(
    data: bytes, options: Options, *, path: str, knowledge: Knowledge | None = None
) -> tuple[bytes, Result]:
    """Rewrite a script's bytes. Unchanged input comes back as the same object.

    Raises SourceError when the bytes do not decode or a quote is never closed.
    """
    return rewrite_document(data, options, path=path, tokenize=tokenize, knowledge=knowledge)


def tokenize(text: str) -> list[Token]:
    """The tokens of a shell script."""
    shell = Shell(text, text)
    shell.read(0, len(text))
    return shell.tokens()


class Shell:
    """Reads scripts in ``text``, a copy of ``source`` with characters blanked out."""

    def __init__(self, text: str, source: str) -> None:
        self._text = text
        self._source = source
        self._found: list[Token] = []
        self._quoted: list[Mention] = []
        self._lexer = Lexer(text, source, self._command, self._document)

    def read(self, start: int, end: int) -> None:
        self._lexer.read(start, end)

    def tokens(self) -> list[Token]:
        """Everything that was found, in order; what was read twice counts once."""
        every = {*self._found, *self._lexer.tokens}
        for directive in self._lexer.tokens:
            if isinstance(directive, Directive):
                every |= {*submitted(directive.words)}
        every |= self._mentions({t.start for t in every if isinstance(t, (Assignment, Parameter))})
        return sorted(every, key=lambda token: (token.start, -token.end, type(token).__name__))

    def _mentions(self, known: set[int]) -> set[Mention]:
        """The names in places of no known meaning; what is printed means nothing."""
        every = {*self._lexer.mentions, *self._quoted}
        return {mention for mention in every if mention.start not in known | self._printed(every)}

    def _printed(self, mentions: set[Mention]) -> set[int]:
        """Where names stand that ``echo`` itself is given, and no command inside."""
        commands = [found for found in self._found if isinstance(found, Command) and mentions]
        printed = set()
        for mention in mentions:
            around = [found for found in commands if found.start <= mention.start < found.end]
            inner = max(around, key=lambda found: found.start, default=None)
            if inner and inner.words[0].value in _PRINTERS:
                printed.add(mention.start)
        return printed

    # --- commands

    def _command(self, words: list[Word]) -> None:
        rest = list(words)
        self._alone(words)
        while rest and _ASSIGNMENT.match(rest[0].text):
            self._assignment(rest.pop(0))
        if not rest:
            return
        text = self._source[rest[0].start : rest[-1].end]
        self._found.append(Command(text, rest[0].start, rest[-1].end, tuple(rest)))
        name = rest[0].value
        for word in rest[1:] if name in SETTERS or name in _PASSING else ():
            if _ASSIGNMENT.match(word.text):
                self._assignment(word)
        self._found += named(rest, self._source)
        self._found += submitted(rest)
        if any(_CONTAINERS.fullmatch(word.value.rpartition("/")[2]) for word in rest[:4]):
            self._passed(rest)
        if name not in _TELLERS and any(_INSTALLERS.fullmatch(word.value) for word in rest):
            self._found += command_tokens(text, rest[0].start)
        self._programs(rest)

    def _alone(self, words: list[Word]) -> None:
        """Note names in quotes, which ``${!name}`` or another language may use."""
        other = any(word.value in _OTHER_LANGUAGES for word in words[:2])
        for word in words:
            for match in _ALONE.finditer(word.text):
                start, end = match.span(2)
                self._quoted += mentions(self._source, word.start + start, word.start + end)
            if other:
                self._quoted += mentions(self._source, word.start, word.end)

    def _passed(self, words: list[Word]) -> None:
        """The variables that containers and ranks are given."""
        for option, word in itertools.pairwise(words):
            if option.value in _PASSED_BY:
                self._variable(word, 0)
        for word in words:
            if word.text.startswith("--env="):
                self._variable(word, len("--env="))

    def _variable(self, word: Word, offset: int) -> None:
        """A variable that stands in an argument, which quotes may hold."""
        quote = word.text[offset : offset + 1]
        start = word.start + offset + (quote in ('"', "'"))
        name = _NAME.match(self._source, start, word.end)
        if name:
            after = self._source[name.end() : word.end]
            value = word.value.partition("=")[2] if after.startswith("=") else None
            if offset and value is not None:
                value = value.partition("=")[2]
            end = word.end - (start > word.start + offset)
            text = self._source[start:end]
            self._found.append(Assignment(text, start, end, name[0], value, word.literal))

    def _assignment(self, word: Word) -> None:
        match = _ASSIGNMENT.match(word.text)
        assert match is not None
        value = word.value[match.end() :]
        place = (word.text, word.start, word.end)
        self._found.append(Assignment(*place, match[1], value, word.literal))
        self.value(match[1], word.start + match.end(), word.end)

    def value(self, name: str, start: int, end: int, *, bare: bool = False) -> None:
        """What the value of a variable is if it becomes part of a command line.

        A ``bare`` one, as in a makefile, needs no quotes around its words.
        """
        raw = self._text[start:end]
        quoted = _QUOTED.fullmatch(raw) and re.search(r"\s", raw)
        run = rf"\b(eval|sh\s+-c)\s+[\"']?\$\{{?{name}\b"
        if quoted and name and re.search(run, self._text):
            self._script(start + 1, end - 1)
            return
        if quoted or _ARRAY.fullmatch(raw):
            start, end = start + 1, end - 1
        elif not bare:
            return
        before = len(self._lexer.mentions)
        try:
            self._options(self._lexer.words(start, end))
        except SourceError:
            return  # prose, with an apostrophe in it
        finally:  # an array's words were read before, a text may be prose
            del self._lexer.mentions[before:]

    def _options(self, words: list[Word]) -> None:
        """Words of a text or array, which may be a command line or options of one."""
        while words and _ASSIGNMENT.match(words[0].text):
            word = words.pop(0)
            name, place = _NAME.match(word.text), (word.text, word.start, word.end)
            assert name is not None
            value = word.value.partition("=")[2]
            if words:  # a command follows
                self._found.append(Assignment(*place, name[0], value, word.literal, in_string=True))
        if words:
            text = self._source[words[0].start : words[-1].end]
            place = (text, words[0].start, words[-1].end)
            self._found.append(Command(*place, tuple(words), in_string=True))

    # --- programs inside

    def _programs(self, words: list[Word]) -> None:
        """The program behind ``python -c`` or ``bash -c``, and the command of ``eval``."""
        if words[0].value == "eval" and len(words) == 2:
            self._inner(words[1])
        elif words[0].value not in _TELLERS:
            for before, word in itertools.pairwise(words):
                if before.value in _CODE_OPTIONS:
                    continue
                if _SETTING_LINE.match(word.text) and _QUOTED.fullmatch(word.text):
                    self.value("", word.start, word.end)
        for index, option in enumerate(words[1:-1], 1):
            before = words[index - 1]
            if option.value in _CODE_OPTIONS:
                if _SHELL.fullmatch(before.value):
                    self._inner(words[index + 1])
                elif _is_python(words[:index]):
                    self._python(words[index + 1])

    def _inner(self, word: Word) -> None:
        """A script in quotes, when the inner shell is given what is written."""
        if _QUOTED.fullmatch(self._text[word.start : word.end]):
            self._script(word.start + 1, word.end - 1)

    def _script(self, start: int, end: int) -> None:
        try:
            self._lexer.read(start, end)
        except SourceError:
            return  # what the shell around puts in may close it

    def _python(self, word: Word) -> None:
        raw = self._text[word.start : word.end]
        if raw[:1] not in ("'", '"') or raw[-1:] != raw[:1] or len(raw) < 2:
            return
        body = raw[1:-1]
        single = raw[0] == "'"
        verbatim = not re.search(r"['\x01]" if single else r"[\\\"$`!\x01]", body)
        self._inline(word.start + 1, word.end - 1, verbatim, "'$" if single else '\\"$`!')

    def _document(self, document: HereDocument, start: int, end: int) -> None:
        words = [word.text for word in document.words]
        if not words:
            return
        body = self._text[start:end]
        plain = document.quoted or not re.search(r"[\\$`\x01]", body)
        if _reads_python(words) and not (document.strip and body.startswith("\t")):
            self._inline(start, end, plain, "" if document.quoted else "\\$`")
        elif (document.quoted or "\\$" not in body) and _reads_script(words, body):
            self._script(start, end)

    def _inline(self, start: int, end: int, verbatim: bool, forbidden: str) -> None:
        text = self._source[start:end]
        self._found.append(InlinePython(text, start, end, verbatim, forbidden))


def _is_python(words: list[Word]) -> bool:
    """Whether the last words are an interpreter with options that take no value."""
    rest = list(words)
    while rest and re.fullmatch(r"-[A-Za-z]{1,2}", rest[-1].value):
        rest.pop()
    return bool(rest) and _PYTHON.fullmatch(rest[-1].text) is not None


def _reads_script(words: list[str], body: str) -> bool:
    """Whether what a command reads is a shell script, run or written down."""
    options = all(word.startswith("-") for word in words[1:])
    runs = words[0] == "sbatch" or _SHELL.fullmatch(words[0])
    return bool((runs and options) or _SCRIPT_HEAD.match(body))


def _reads_python(words: list[str]) -> bool:
    """Whether a command runs what it reads from its input as Python."""
    for index, word in enumerate(words):
        if _PYTHON.fullmatch(word):
            rest = [other for other in words[index + 1 :] if not other.startswith("-")]
            return "-" in words[index + 1 : index + 2] or not rest
    return False

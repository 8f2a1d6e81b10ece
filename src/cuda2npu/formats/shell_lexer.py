"""The words of shell scripts: quotes, escapes, expansions, comments, here-documents.

The lexer follows POSIX's token recognition with bash's additions. It knows enough grammar to
tell commands apart, and no more: what it cannot tell is a word of some command.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from cuda2npu.formats.shell_words import (
    OPAQUE,
    HereDocument,
    directive_of,
    mentions,
    unclosed,
    word_of,
)
from cuda2npu.tokens import Mention, Parameter, Token, Word

_PLAIN = re.compile(r"[^ \t\r\f\v\n;&|()<>\\'\"$`\x01]+")
_NAME = re.compile(r"[A-Za-z_]\w*")
_BRACED = re.compile(r"[#!]?([A-Za-z_]\w*)")
_ARRAY = re.compile(r"[A-Za-z_]\w*(\[[^\]]*\])?\+?=")
_REDIRECTION = re.compile(r"<<<|<<-?|[<>]&|>>|>\||<>|[<>]|&>>?")
_OPERATOR = re.compile(r";;&|;;|;&|&&|\|\||\|&|[;&|]")
_BLANK = re.compile(r"(?:[ \t\r\f\v]|\\\r?\n)+")
_EXTENDED_GLOB = "?*+@!"


@dataclass
class _List:
    """The state of one list of commands."""

    words: list[Word] = field(default_factory=list)
    cases: list[bool] = field(default_factory=list)
    """For each open ``case`` whether a pattern comes next."""

    @property
    def in_pattern(self) -> bool:
        """Whether a pattern of ``case`` has begun, which a bracket ends."""
        return bool(self.cases and self.cases[-1] and self.words)

    @property
    def in_test(self) -> bool:
        """Whether ``[[`` was read and ``]]`` was not."""
        return bool(self.words) and self.words[0].text == "[[" and self.words[-1].text != "]]"


class Lexer:
    """Reads ``text[start:end]``; places and texts of tokens are those of ``source``."""

    def __init__(
        self,
        text: str,
        source: str,
        command: Callable[[list[Word]], None],
        document: Callable[[HereDocument, int, int], None],
    ) -> None:
        self.text = text
        self.source = source
        self.tokens: list[Token] = []
        self.mentions: list[Mention] = []
        self._command = command
        self._document = document
        self._pending: list[HereDocument] = []
        self._end = len(text)
        self._in_backquotes = False

    def read(self, start: int, end: int) -> None:
        """Read commands. Raises SourceError for a quote or bracket that is never closed."""
        with self._up_to(end):
            self._list(start, "")

    def words(self, start: int, end: int) -> list[Word]:
        """Read words alone, as of an array or a list of options."""
        found, position = [], start
        with self._up_to(end):
            while position < end:
                blank = _BLANK.match(self.text, position, end)
                if blank:
                    position = blank.end()
                elif self.text[position] == "#":
                    position = self._line_end(position)
                else:
                    after = self._word(position)
                    if after > position:
                        found.append(word_of(self.text, self.source, position, after))
                    position = max(after, position + 1)
        return found

    @contextmanager
    def _up_to(self, end: int) -> Iterator[None]:
        outer, self._end = self._end, end
        try:
            yield
        finally:
            self._end = outer

    # --- commands

    def _list(self, position: int, closer: str) -> int:
        """Read commands up to ``closer``; the offset behind it."""
        outer, self._in_backquotes = self._in_backquotes, self._in_backquotes or closer == "`"
        try:
            return self._commands(position, closer)
        finally:
            self._in_backquotes = outer

    def _commands(self, position: int, closer: str) -> int:
        opened, state = position, _List()
        while position < self._end:
            char = self.text[position]
            blank = _BLANK.match(self.text, position, self._end)
            if blank:
                position = blank.end()
            elif state.in_test and char in "()<>|&;":
                position += 1
            elif char == closer and not (char == ")" and state.in_pattern):
                self._finish(state)
                return position + 1
            elif char == "#":
                position = self._comment(position)
            elif char == "\n":
                self._finish(state)
                position = self._documents(position + 1)
            else:
                position = self._item(position, state)
        self._finish(state)
        if closer:
            raise unclosed(self.text, opened - 1, closer)
        return position

    def _item(self, position: int, state: _List) -> int:
        """Read an operator, a redirection, a bracket or a word."""
        redirection = _REDIRECTION.match(self.text, position)
        if redirection and self.text[position + 1 : position + 2] != "(":
            return self._redirect(redirection[0], redirection.end(), state)
        operator = _OPERATOR.match(self.text, position)
        if operator:
            self._finish(state)
            if operator[0] in (";;", ";&", ";;&") and state.cases:
                state.cases[-1] = True
            return operator.end()
        char = self.text[position]
        if char == ")":  # of a case's pattern, or one too many
            state.words.clear()
            if state.cases:
                state.cases[-1] = False
            return position + 1
        if char == "(":
            return self._bracket(position, state)
        after = max(self._word(position), position + 1)
        self._append(word_of(self.text, self.source, position, after), state)
        return after

    def _append(self, word: Word, state: _List) -> None:
        state.words.append(word)
        first = state.words[0].text
        if first == "case" and word.text == "in" and len(state.words) > 2:
            state.words.clear()
            state.cases.append(True)
        elif first == "esac" and state.cases:
            state.words.clear()
            state.cases.pop()
        elif (len(state.words) == 1 and first in _RESERVED) or (
            first == "function" and len(state.words) == 2
        ):
            state.words.clear()

    def _bracket(self, position: int, state: _List) -> int:
        if state.cases and state.cases[-1]:
            return position + 1
        after = self._arithmetic(position + 2) if self.text.startswith("((", position) else 0
        if after:
            return after
        if self.text.startswith("()", position):  # a function's name stands before it
            state.words.clear()
            return position + 2
        return self._list(position + 1, ")")

    def _finish(self, state: _List) -> None:
        if state.words and not state.in_pattern:
            self._command(state.words)
        state.words = []

    def _comment(self, position: int) -> int:
        end = self._line_end(position)
        if position == 0 or self.text[position - 1] == "\n":
            directive = directive_of(self.source[position:end], position)
            if directive:
                self.tokens.append(directive)
        return end

    def _line_end(self, position: int) -> int:
        end = self.text.find("\n", position, self._end)
        return end if end >= 0 else self._end

    # --- redirections and here-documents

    def _redirect(self, operator: str, position: int, state: _List) -> int:
        last = state.words[-1] if state.words else None
        if last and last.text.isdigit() and last.end == position - len(operator):
            state.words.pop()  # the number of a file
        blank = _BLANK.match(self.text, position, self._end)
        start = blank.end() if blank else position
        after = self._word(start) if start < self._end else start
        if operator in ("<<", "<<-"):
            raw = self.text[start:after]
            delimiter = re.sub(r"[\\'\"]", "", raw)
            self._pending.append(
                HereDocument(delimiter, raw != delimiter, operator == "<<-", state.words)
            )
        return after

    def _documents(self, position: int) -> int:
        """Read the here-documents that begin behind a line; the offset behind them."""
        pending, self._pending = self._pending, []
        for document in pending:
            start = position
            while position < self._end:
                end = self._line_end(position)
                line = self.text[position:end].rstrip("\r")
                if (line.lstrip("\t") if document.strip else line) == document.delimiter:
                    break
                position = end + 1
            stop = min(position, self._end)
            if not document.quoted:
                self._expanded(start, stop, "")
            self._document(document, start, stop)
            position = min(self._line_end(stop) + 1, self._end)
        return position

    # --- words

    def _word(self, position: int) -> int:
        """The offset behind the word that begins here."""
        start = position
        while position < self._end:
            char = self.text[position]
            plain = _PLAIN.match(self.text, position, self._end)
            if plain:
                self.mentions += mentions(self.source, *plain.span())
                position = plain.end()
            elif char == OPAQUE:
                position += 1
            elif char == "\\":
                position = min(position + 2, self._end)
            elif char == "'":
                position = self._single(position + 1)
            elif char == '"':
                position = self._expanded(position + 1, self._end, '"')
            elif char == "$":
                position = self._dollar(position)
            elif char == "`" and not self._in_backquotes:
                position = self._list(position + 1, "`")
            elif char == "(" and self._opens_inside(start, position):
                position = self._array(position, start)
            elif position == start and self.text.startswith(("<(", ">("), position):
                position = self._list(position + 2, ")")
            else:
                break
        return position

    def _opens_inside(self, start: int, position: int) -> bool:
        before = self.text[start:position]
        return bool(_ARRAY.fullmatch(before)) or (before != "" and before[-1] in _EXTENDED_GLOB)

    def _array(self, position: int, start: int) -> int:
        """The offset behind the bracket that closes an array or an extended glob."""
        opened, position = position, position + 1
        while position < self._end and self.text[position] != ")":
            char = self.text[position]
            blank = _BLANK.match(self.text, position, self._end)
            if blank or char in "\n|&;<>(":
                position = blank.end() if blank else position + 1
            elif char == "#":
                position = self._line_end(position)
            else:
                position = max(self._word(position), position + 1)
        if position >= self._end:
            raise unclosed(self.text, opened, ")")
        return position + 1

    def _single(self, position: int) -> int:
        end = self.text.find("'", position, self._end)
        if end < 0:
            raise unclosed(self.text, position - 1, "'")
        return end + 1

    def _expanded(self, position: int, end: int, closer: str) -> int:
        """Read text in which ``$`` and backquotes work, up to ``closer``; the offset behind."""
        opened = position - 1
        while position < end:
            char = self.text[position]
            if char == closer:
                return position + 1
            if char == "\\":
                position += 2
            elif char == "$":
                position = self._dollar(position, quoted=True)
            elif char == "`":
                position = self._list(position + 1, "`")
            else:
                position += 1
        if closer:
            raise unclosed(self.text, opened, closer)
        return end

    def _dollar(self, position: int, *, quoted: bool = False) -> int:
        """Read an expansion; the offset behind it."""
        after = self.text[position + 1 : position + 2]
        if after == "(":
            if self.text.startswith("((", position + 1):
                end = self._arithmetic(position + 3)
                if end:
                    return end
            return self._list(position + 2, ")")
        if after == "{":
            return self._braces(position + 2, quoted)
        if after == "'" and not quoted:
            return self._ansi(position + 2)
        if after == '"' and not quoted:
            return self._expanded(position + 2, self._end, '"')
        name = _NAME.match(self.text, position + 1, self._end)
        if name:
            self._parameter(*name.span())
            return name.end()
        return min(position + (2 if after and after in "@*#?$!-0123456789" else 1), self._end)

    def _parameter(self, start: int, end: int) -> None:
        name = self.source[start:end]
        self.tokens.append(Parameter(name, start, end, name))

    def _braces(self, position: int, quoted: bool) -> int:
        opened = position - 1
        name = _BRACED.match(self.text, position, self._end)
        if name:
            self._parameter(*name.span(1))
            position = name.end()
        while position < self._end:
            char = self.text[position]
            if char == "}":
                return position + 1
            if char == "\\":
                position += 2
            elif char == "$":
                position = self._dollar(position, quoted=quoted)
            elif char == '"':
                position = self._expanded(position + 1, self._end, '"')
            elif char == "'" and not quoted:
                position = self._single(position + 1)
            elif char == "`":
                position = self._list(position + 1, "`")
            else:
                inside = _NAME.match(self.text, position, self._end)
                after = inside.end() if inside else position + 1
                self.mentions += mentions(self.source, position, after)
                position = after
        raise unclosed(self.text, opened, "}")

    def _ansi(self, position: int) -> int:
        opened = position - 1
        while position < self._end:
            if self.text[position] == "'":
                return position + 1
            position += 2 if self.text[position] == "\\" else 1
        raise unclosed(self.text, opened, "'")

    def _arithmetic(self, position: int) -> int:
        """The offset behind the ``))`` that ends an arithmetic expression; 0 without one."""
        depth, before = 0, len(self.tokens)
        while position < self._end:
            char = self.text[position]
            if char == ")" and depth == 0:
                if self.text.startswith("))", position):
                    return position + 2
                break
            if char == "$":
                position = self._dollar(position)
                continue
            name = _NAME.match(self.text, position, self._end)
            if name:
                self._parameter(*name.span())
            depth += (char == "(") - (char == ")")
            position = name.end() if name else position + 1
        del self.tokens[before:]
        return 0


_RESERVED = frozenset("if then else elif fi do done while until { } ! time".split())
"""Words before a command. ``for``, ``case`` and ``[[`` pass as commands of that name."""

"""The keys and values of a configuration document, each with its path and its place."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cuda2npu.tokens import ConfigKey, ConfigValue, Token, Variable

Path = tuple[str | int, ...]
_ENVIRONMENT = re.compile(
    r"(\w+[_-])?env(iron(ment)?)?([_-]?var(iable)?s?)?s?|variables|environmentVariables", re.I
)
"""Keys whose mappings and lists become an environment: of containers, jobs, launchers."""
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(?:=(.*))?", re.S)
_UNKNOWN = "?"
"""The name of a key that is no scalar."""


@dataclass
class _Level:
    """A mapping or a list that is open."""

    path: Path
    is_list: bool
    is_key: bool = False
    """Whether it stands where a key is expected."""
    index: int = 0
    key: Path | None = None
    """In a mapping, the key whose value comes next; of several parts in TOML's ``a.b = 1``."""
    place: Token | None = None


class Outline:
    """Collects the tokens of a document while its parser walks it from start to end."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._tokens: list[ConfigKey | ConfigValue] = []
        self._open: list[_Level] = []

    @property
    def tokens(self) -> list[Token]:
        """What was collected; names of environment variables as what they are."""
        values = {token.path: token.value for token in self._tokens}
        return [_variable(token, values) or token for token in self._tokens]

    def scalar(self, start: int, end: int, value: str) -> None:
        """A key, where one is expected, or a value."""
        if self._wants_key():
            self.key((value,), start, end)
            return
        path = self._enter(value)
        self._tokens.append(ConfigValue(self.text[start:end], start, end, path, value))

    def key(self, parts: Path, start: int, end: int) -> None:
        self._open[-1].key = parts
        self._open[-1].place = Token(self.text[start:end], start, end)

    def other(self) -> None:
        """A key or value without a text of its own, as an alias is."""
        if self._wants_key():
            self._open[-1].key = (_UNKNOWN,)
        else:
            self._enter(None)

    def begin(self, *, is_list: bool) -> None:
        """A mapping or a list opens."""
        if self._wants_key():
            self._open.append(_Level((*self._open[-1].path, _UNKNOWN), is_list, is_key=True))
        else:
            self._open.append(_Level(self._enter(None), is_list))

    def end(self) -> None:
        if self._open.pop().is_key:
            self._open[-1].key = (_UNKNOWN,)

    def table(self, path: Path) -> None:
        """The mapping at a path, whatever is open: a table of TOML."""
        self._open = [_Level(path, is_list=False)]

    def _wants_key(self) -> bool:
        return bool(self._open) and not self._open[-1].is_list and self._open[-1].key is None

    def _enter(self, value: str | None) -> Path:
        """The path of what comes next, which uses up the key or the number that leads there."""
        if not self._open:
            return ()
        level = self._open[-1]
        if level.is_list:
            level.index += 1
            return (*level.path, level.index - 1)
        assert level.key is not None
        path, place = (*level.path, *level.key), level.place
        level.key = level.place = None
        if place is not None:
            self._tokens.append(ConfigKey(place.text, place.start, place.end, path, value))
        return path


def _variable(token: ConfigKey | ConfigValue, values: dict[Path, str | None]) -> Variable | None:
    """The variable that a key or value names in an environment.

    There are three ways to write one: ``NAME: value``, ``- NAME=value`` and, in Kubernetes,
    ``- name: NAME`` beside ``value: …``.
    """
    path = token.path
    if isinstance(token, ConfigKey):
        within = _is_environment(path, 2)
        return _named(token, token.key, token.value) if within else None
    if isinstance(path[-1] if path else None, int) and _is_environment(path, 2):
        match = _ASSIGNMENT.fullmatch(token.value)
        return _named(token, match[1], match[2]) if match else None
    if path[-1:] == ("name",) and len(path) > 2 and _is_environment(path, 3):
        return _named(token, token.value, values.get((*path[:-1], "value")))
    return None


def _is_environment(path: Path, above: int) -> bool:
    parent = path[-above] if len(path) >= above else None
    return isinstance(parent, str) and _ENVIRONMENT.fullmatch(parent) is not None


def _named(token: Token, name: str, value: str | None) -> Variable | None:
    offset = token.text.find(name)
    start = token.start + offset
    return Variable(name, start, start + len(name), value) if offset >= 0 and name else None

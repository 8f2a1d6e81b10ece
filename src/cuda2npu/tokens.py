"""What rules about documents (shell scripts, configs, requirements, …) are asked about.

A format's parser finds the pieces of a text that a rule can speak of; each is a frozen token
with its place. A rule about documents names token classes in ``on`` where a rule about Python
names LibCST nodes, and its fix maps tokens to their new text::

    @rule("NPU811", "…", on=Variable, …)
    def visible_devices(token: Variable, site: DocumentSite) -> Fix | Report | None: ...
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeVar

from cuda2npu.knowledge import Knowledge
from cuda2npu.model import Options

__all__ = [
    "Assignment",
    "Command",
    "ConfigKey",
    "ConfigValue",
    "Directive",
    "DocumentSite",
    "InlinePython",
    "Instruction",
    "Mention",
    "PackageIndex",
    "Parameter",
    "Requirement",
    "Token",
    "Variable",
    "Word",
]

AnyToken = TypeVar("AnyToken", bound="Token")


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a document: ``text[start:end]``, as character offsets."""

    text: str
    start: int
    end: int

    def part(self: AnyToken, start: int, end: int) -> AnyToken:
        """A piece of the token, for an edit that leaves the rest; offsets from its start."""
        return replace(
            self, text=self.text[start:end], start=self.start + start, end=self.start + end
        )


@dataclass(frozen=True, slots=True)
class ConfigKey(Token):
    """A key of a YAML, TOML or JSON document, as it is written."""

    path: tuple[str | int, ...]
    """The names of keys and the numbers of list items that lead here, this key the last."""
    value: str | None
    """The scalar below the key, as the parser reads it."""

    @property
    def key(self) -> str:
        return _last_key(self.path)

    def becomes(self, new: str) -> dict[Token, str]:
        """The edit that renames the key; see :meth:`ConfigValue.becomes`."""
        return _requoted(self, self.key, new)


@dataclass(frozen=True, slots=True)
class ConfigValue(Token):
    """A scalar of a YAML, TOML or JSON document, as it is written, with its quotes."""

    path: tuple[str | int, ...]
    """The names of keys and the numbers of list items that lead here."""
    value: str
    """What the parser reads."""

    @property
    def key(self) -> str:
        """The key above the value, whether it stands there alone or in a list."""
        return _last_key(self.path)

    def becomes(self, new: str) -> dict[Token, str]:
        """The edit that puts ``new`` in the place of the value, whose quotes stay.

        Empty when the value is written with escapes or over several lines.
        """
        return _requoted(self, self.value, new)


def _requoted(token: Token, value: str, new: str) -> dict[Token, str]:
    margin = (len(token.text) - len(value)) // 2
    quote, end = token.text[:margin], len(token.text) - margin
    plain = token.text[margin:end] == value and quote == token.text[end:]
    if not plain or quote not in ("", "'", '"', "'''", '"""'):
        return {}
    return {token.part(margin, end): new}


def _last_key(path: tuple[str | int, ...]) -> str:
    """The name nearest to the end of a path; empty at the root."""
    return next((part for part in reversed(path) if isinstance(part, str)), "")


@dataclass(frozen=True, slots=True)
class Requirement(Token):
    """A package that a file has installed: ``torch==2.1.0`` without comment and quotes."""

    package: str
    """Its name in lower case, with hyphens."""
    version: str
    """What the file says of the version, such as ``==2.1.0+cu118``; empty when nothing."""
    installer: Literal["pip", "conda", "apt"]
    room: int = -1
    """Where text can be put that asks for one more package; -1 where nothing can."""
    more: str = ""
    """That text, with ``{}`` for the requirement."""


@dataclass(frozen=True, slots=True)
class PackageIndex(Token):
    """The address of packages that an installer is told of."""


@dataclass(frozen=True, slots=True)
class Variable(Token):
    """The name of an environment variable, without quotes, where a document sets it."""

    value: str | None
    """What it is set to, as far as it stands there."""


@dataclass(frozen=True, slots=True)
class Instruction(Token):
    """An instruction of a Dockerfile, with its continuation lines."""

    keyword: str
    """In capital letters: ``FROM``, ``ENV``, …"""


class DocumentSite(Protocol):
    """The document around a token."""

    @property
    def path(self) -> str: ...

    @property
    def text(self) -> str: ...

    @property
    def tokens(self) -> tuple[Token, ...]:
        """Every token of the document, in order."""

    @property
    def options(self) -> Options: ...

    @property
    def project(self) -> Knowledge:
        """What the project's code says, such as what reads a configuration key."""

    def exists(self, dotted: str) -> bool:
        """Whether the targeted torch_npu release has this name."""


# --- shell scripts and makefiles


@dataclass(frozen=True, slots=True)
class Word(Token):
    """A word of a command line."""

    value: str
    """What it says without quotes; expansions as they are written."""
    literal: bool
    """Whether nothing in it is expanded."""


@dataclass(frozen=True, slots=True)
class Assignment(Token):
    """``NAME=value`` before or behind a command, in a makefile, or ``export NAME``.

    The token begins with the name.
    """

    name: str
    value: str | None
    """None where the variable is exported, passed on or unset as it is."""
    literal: bool
    in_string: bool = False
    """Whether it stands in a text that may be run as a command line."""
    unset: bool = False


@dataclass(frozen=True, slots=True)
class Parameter(Token):
    """The name in ``$NAME``, ``${NAME:-word}`` or a makefile's ``$(NAME)``."""

    name: str


@dataclass(frozen=True, slots=True)
class Mention(Token):
    """A bare word that reads as a variable's name, in a place whose meaning is not known."""

    name: str


@dataclass(frozen=True, slots=True)
class Command(Token):
    """A simple command with its arguments; redirections are no part of it."""

    words: tuple[Word, ...]
    in_string: bool = False
    """Whether these are words of a text or array that may become part of a command line."""


@dataclass(frozen=True, slots=True)
class Directive(Token):
    """A comment that a batch system reads: ``#SBATCH --gres=gpu:4``."""

    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class InlinePython(Token):
    """Python behind ``python -c`` or in a here-document."""

    verbatim: bool
    """Whether the interpreter is given these very characters."""
    forbidden: str
    """Characters that new text must not hold, because of the quotes around."""

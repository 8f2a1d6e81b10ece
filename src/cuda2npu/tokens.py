"""What rules about documents (shell scripts, configs, requirements, …) are asked about.

A format's parser finds the pieces of a text that a rule can speak of; each is a frozen token
with its place. A rule about documents names token classes in ``on`` where a rule about Python
names LibCST nodes, and its fix maps tokens to their new text::

    @rule("NPU811", "…", on=Variable, …)
    def visible_devices(token: Variable, site: DocumentSite) -> Fix | Report | None: ...
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from cuda2npu.knowledge import Knowledge
from cuda2npu.model import Options

__all__ = [
    "Assignment",
    "Command",
    "Directive",
    "DocumentSite",
    "InlinePython",
    "Parameter",
    "Token",
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

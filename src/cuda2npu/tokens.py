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

__all__ = ["DocumentSite", "Token"]

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

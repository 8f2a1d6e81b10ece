"""What an entry point of the group ``cuda2npu.packs`` names. Light: every start imports it."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Pack(NamedTuple):
    """A set of rules that can be installed by itself.

    Importing the module that holds a pack must not import LibCST; importing ``modules`` may.
    """

    name: str
    words: tuple[str, ...]
    """A Python file without one of these substrings is never parsed: the words of its rules."""
    modules: tuple[str, ...]
    """Modules whose :class:`cuda2npu.rule.Rule` objects make the pack."""
    document_words: tuple[str, ...] = ()
    """The same for files that hold no Python: shell scripts, configs, requirements, …"""
    libraries: str = ""
    """A module whose ``LIBRARIES`` are :class:`Library` objects, for a project's inventory."""


class Library(NamedTuple):
    """A third-party library and what becomes of it on an NPU."""

    name: str
    """As it is imported: ``apex``, ``mmcv.ops``. What is below it belongs to it."""
    support: Literal["works", "ported", "none"]
    """It works as it is, has an NPU version of its own, or has none."""
    advice: str
    """Its NPU version, what to mind, or what to do instead."""

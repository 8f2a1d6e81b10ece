"""What an entry point of the group ``cuda2npu.packs`` names. Light: every start imports it."""

from __future__ import annotations

from typing import NamedTuple


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

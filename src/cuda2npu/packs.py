"""Rule packs: found by entry point, their trigger words, and, late, their rules."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from cuda2npu.model import Options

if TYPE_CHECKING:
    from cuda2npu.rule import Pack, Rule

GROUP = "cuda2npu.packs"


@cache
def packs() -> tuple[Pack, ...]:
    """The installed packs in order of their names."""
    found = sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    return tuple(entry.load() for entry in found)


@cache
def trigger_pattern() -> re.Pattern[bytes]:
    """Matches the trigger words of all packs. No match in a file: no parse, no LibCST."""
    words = {word for pack in packs() for word in pack.words}
    return re.compile(_alternatives(sorted(words)).encode())


def _alternatives(words: list[str]) -> str:
    """A pattern for any of the words, longest first, with common beginnings factored out.

    A plain alternation costs one try per word at every candidate position.
    """
    branches: dict[str, list[str]] = {}
    for word in words:
        branches.setdefault(word[:1], []).append(word[1:])
    optional = bool(branches.pop("", None))
    parts = [re.escape(first) + _alternatives(rest) for first, rest in branches.items()]
    if not parts:
        return ""
    pattern = parts[0] if len(parts) == 1 and not optional else f"(?:{'|'.join(parts)})"
    return pattern + "?" if optional else pattern


@cache
def rule_words() -> frozenset[str]:
    """The words of every rule."""
    return frozenset(word for rule in load_rules() for word in rule.words)


@cache
def rule_word_pattern() -> re.Pattern[bytes]:
    """Matches where a rule's word begins or stands inside, to find the statements to look at.

    A word that holds another one (``is_cuda``) is found where that one is.
    """
    words = rule_words()
    least = [w for w in words if not any(other in w and other != w for other in words)]
    return re.compile(_alternatives(sorted(least)).encode())


@cache
def load_rules() -> tuple[Rule, ...]:
    """Every rule of every pack, ordered by code. Imports LibCST."""
    from cuda2npu.rule import Rule

    rules: dict[str, Rule] = {}
    for pack in packs():
        for module in pack.modules:
            for value in vars(import_module(module)).values():
                if isinstance(value, Rule) and rules.setdefault(value.code, value) is not value:
                    raise ValueError(f"two rules have the code {value.code}")
    return tuple(rules[code] for code in sorted(rules))


def rule_codes() -> tuple[str, ...]:
    return tuple(rule.code for rule in load_rules())


@lru_cache(maxsize=8)
def selected_rules(options: Options) -> tuple[Rule, ...]:
    """The rules that a run with these options asks."""
    return tuple(rule for rule in load_rules() if _is_selected(rule, options))


def _is_selected(rule: Rule, options: Options) -> bool:
    if options.target not in rule.targets:
        return False
    if options.ignore and rule.code.startswith(options.ignore):
        return False
    return rule.code.startswith(options.select) if options.select else rule.default

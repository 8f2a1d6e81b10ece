"""Rule packs: found by entry point, their trigger words, and, late, their rules."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from itertools import chain
from typing import TYPE_CHECKING

from cuda2npu.model import Options, Target, UsageError

if TYPE_CHECKING:
    from cuda2npu.pack import Library, Pack
    from cuda2npu.rule import Rule

GROUP = "cuda2npu.packs"


@cache
def packs() -> tuple[Pack, ...]:
    """The installed packs in order of their names."""
    return tuple(map(_load, _entries()))


def _entries() -> list[EntryPoint]:
    return sorted(entry_points(group=GROUP), key=lambda entry: entry.name)


def installed_packs() -> tuple[str, ...]:
    """The installed packs with the packages they come from, to compare two machines."""
    return tuple(
        f"{entry.name} of {entry.dist.name} {entry.dist.version}" if entry.dist else entry.name
        for entry in _entries()
    )


def _load(entry: EntryPoint) -> Pack:
    from cuda2npu.pack import Pack

    try:
        pack = entry.load()
    except Exception as error:  # whatever the code of somebody else raises
        raise _unusable(entry, entry.name, error) from None
    if not isinstance(pack, Pack):
        raise _unusable(entry, entry.name, TypeError(f"{entry.value} is no Pack"))
    return pack


def _unusable(entry: EntryPoint | None, name: str, error: Exception) -> UsageError:
    package = entry.dist.name if entry is not None and entry.dist is not None else name
    return UsageError(
        f"the rule pack {name} of the package {package} cannot be loaded: "
        f"{type(error).__name__}: {error}. Mend or uninstall the package."
    )


@cache
def libraries() -> dict[str, Library]:
    """The libraries that the packs know, by the name under which they are imported."""
    found: dict[str, Library] = {}
    for entry, pack in zip(_entries(), packs(), strict=True):
        try:
            known = import_module(pack.libraries).LIBRARIES if pack.libraries else ()
        except Exception as error:
            raise _unusable(entry, pack.name, error) from None
        for library in known:
            found.setdefault(library.name, library)
    return found


@lru_cache(maxsize=8)
def trigger_pattern(options: Options) -> re.Pattern[bytes]:
    """Matches the trigger words of all packs. No match in a file: no parse, no LibCST.

    Rules that are off by default open a file with words of their own, when they are selected.
    """
    optional = (rule for rule in optional_rules(options) if not rule.is_about_documents)
    words = (word for pack in packs() for word in pack.words)
    # A program that only imports what speaks of CUDA has to load the shim all the same.
    programs = ("import",) if options.target is Target.SHIM else ()
    return find_any(chain(words, words_of(optional), programs))


@lru_cache(maxsize=8)
def document_pattern(options: Options) -> re.Pattern[bytes]:
    """The same for files that hold no Python."""
    optional = (rule for rule in optional_rules(options) if rule.is_about_documents)
    words = (word for pack in packs() for word in pack.document_words)
    return find_any(chain(words, words_of(optional)))


_RARITY = (
    "$^&Z%J?;~|!<7\\Q9YXK@8H6+WG{}45VU3Bj'RDE>SP/MAFCqILO#02-1*zN[]Txwv`yk"
    ':"b)(=,g.hfmucpdl_raoisnte '
)
"""Printable characters by how often they stand in Python sources, the rarest first."""


def find_any(words: Iterable[str]) -> re.Pattern[bytes]:
    """A pattern that matches somewhere inside each occurrence of a word.

    It looks for the rarest character of a word first and only then for what stands around it,
    which makes the search several times faster than a plain alternation, and 200 more words
    cheap. A word that holds another one is found where that one is.
    """
    least: list[str] = []
    for word in sorted(set(words), key=len):
        if not any(shorter in word for shorter in least):
            least.append(word)
    around: dict[str, list[str]] = {}
    for word in sorted(least):
        index = min(range(len(word)), key=lambda i: _RARITY.find(word[i]))
        # What follows comes first: the matcher skips branches by their first letter.
        whole = f"(?<={re.escape(word)})" if index else ""
        around.setdefault(re.escape(word[index]), []).append(re.escape(word[index + 1 :]) + whole)
    branches = [f"{rarest}(?:{'|'.join(others)})" for rarest, others in around.items()]
    return re.compile(("|".join(branches) or "(?!)").encode())


def words_of(rules: Iterable[Rule]) -> Iterator[str]:
    return (word for rule in rules for word in rule.words)


@lru_cache(maxsize=8)
def rule_words(options: Options) -> frozenset[str]:
    """The words of every rule about Python, but of those that are off."""
    on = (rule for rule in load_rules() if rule.default)
    rules = chain(on, optional_rules(options))
    return frozenset(words_of(rule for rule in rules if not rule.is_about_documents))


@lru_cache(maxsize=8)
def rule_word_pattern(options: Options) -> re.Pattern[bytes]:
    """Matches inside these words, to find the statements to look at."""
    return find_any(rule_words(options))


@cache
def load_rules() -> tuple[Rule, ...]:
    """Every rule of every pack and the engine's own, ordered by code. Imports LibCST."""
    from cuda2npu.file_rules import FILE_RULES

    rules: dict[str, Rule] = {rule.code: rule for rule in FILE_RULES}
    for entry, pack in zip(_entries(), packs(), strict=True):
        try:
            found = rules_of(pack)
        except Exception as error:
            raise _unusable(entry, pack.name, error) from None
        for rule in found:
            if rules.setdefault(rule.code, rule) is not rule:
                taken = ValueError(f"{rule.code} is the code of another rule")
                raise _unusable(entry, pack.name, taken)
    return tuple(rules[code] for code in sorted(rules))


def rules_of(pack: Pack) -> tuple[Rule, ...]:
    """The rules that the modules of a pack hold; raises what importing them raises."""
    from cuda2npu.rule import Rule

    values = [value for name in pack.modules for value in vars(import_module(name)).values()]
    return tuple(value for value in values if isinstance(value, Rule))


def rule_codes() -> tuple[str, ...]:
    return tuple(rule.code for rule in load_rules())


@lru_cache(maxsize=8)
def selected_rules(options: Options) -> tuple[Rule, ...]:
    """The rules that a run with these options asks."""
    return tuple(rule for rule in load_rules() if _is_selected(rule, options))


def optional_rules(options: Options) -> tuple[Rule, ...]:
    """Those of them that are off by default. Loads no rule when there can be none."""
    if not (options.select or options.extend_select):
        return ()
    return tuple(rule for rule in selected_rules(options) if not rule.default)


def _is_selected(rule: Rule, options: Options) -> bool:
    if not rule.is_for(options.target):
        return False
    if options.ignore and rule.code.startswith(options.ignore):
        return False
    if rule.default and not options.select:
        return True
    entries = options.select + options.extend_select
    if not rule.default:
        entries = tuple(entry for entry in entries if any(map(str.isdecimal, entry)))
    return rule.code.startswith(entries)

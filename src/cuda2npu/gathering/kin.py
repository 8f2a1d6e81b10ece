"""The classes of a project by their names alone: who derives from whom, and what holds one.

Read from the bytes, since no file need be parsed for it. A name counts wherever it stands, so
that two classes of one name are taken for one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from cuda2npu.gathering.glance import WATCHED, Words
from cuda2npu.gathering.methods import OwnMethods
from cuda2npu.gathering.modules import Modules
from cuda2npu.knowledge import OwnClass
from cuda2npu.survey import imports

_CLASS = re.compile(rb"class +(\w+)[ \t]*(?:\(([^)]*)\)[ \t\n]*)?:")
_MADE = re.compile(rb"(\w+)[ \t]*(?::[^=\n]*)?=[ \t]*(?:\w+\.)*$")
_ANNOTATED = re.compile(rb"(\w+)[ \t]*:[ \t]*[\"']?(?:\w+[.\[])*$")
_WORD = re.compile(rb"\w+")
_LARGE = 40
"""A family with more classes is a framework's base class: half of all variables hold one."""
_LINE = 200
"""Bytes before a class's name in which the variable that holds one is looked for."""
_COMMON = frozenset(
    "self cls out output outputs input inputs ret result res obj value item".split()
)
"""Variables that hold anything: they are no sign of one class."""


def parents(data: bytes) -> Iterator[tuple[str, frozenset[str]]]:
    """The classes of a file with the names of what they derive from."""
    for match in _CLASS.finditer(data):
        yield _text(match[1]), frozenset(map(_text, _WORD.findall(match[2] or b"")))


def _held(data: bytes, names: Words) -> Iterator[tuple[str, str]]:
    """Variables and attributes with the class that they are made or declared as."""
    if not names.stand_in(data):
        return
    for match in names.pattern.finditer(data):
        before = data[max(0, match.start() - _LINE) : match.start()]
        called = data[match.end() : match.end() + 1] == b"("
        found = (_MADE if called else _ANNOTATED).search(before.rpartition(b"\n")[2])
        if found:
            yield _text(found[1]), _text(match[0])


def _asks(data: bytes) -> bool:
    """Whether a file calls or reads a watched method at all."""
    return any(b"." + method.encode() in data for method in WATCHED)


def _text(data: bytes) -> str:
    return data.decode("ascii", "replace")


class Owner(NamedTuple):
    """A class with a watched method of its own, and its file."""

    path: str
    methods: OwnMethods


class Said(NamedTuple):
    """What one file says about the classes that are asked for."""

    held: tuple[tuple[str, str], ...] = ()
    """Variables and attributes with the class that they are made or declared as."""
    defined: tuple[str, ...] = ()
    imported: tuple[tuple[str, frozenset[str]], ...] = ()
    """Modules with what is taken of them."""


def _said(names: frozenset[str], small: Words, data: bytes) -> Said:
    held = tuple(
        (held, made) for held, made in _held(data, small) if len(held) > 2 and held not in _COMMON
    )
    if not _asks(data):
        return Said(held)
    return Said(
        held,
        tuple(name for name, _ in parents(data) if name in names),
        tuple(
            (statement.module, taken)
            for statement in imports(data)
            if (taken := names.intersection(statement.names))
        ),
    )


class Families:
    """Collects what the files of a project say about the classes that are asked for.

    Only what bears on them is kept, so that memory does not grow with the project.
    """

    def __init__(self, owners: Iterable[Owner], parents: Mapping[str, frozenset[str]]) -> None:
        self._parents = parents
        self._owners = [(owner, self._family(owner.methods.name)) for owner in owners]
        self._held: dict[str, set[str]] = {}
        self._users: dict[str, set[str]] = {}
        self._names = frozenset().union(*(family for _, family in self._owners))
        small = {n for _, family in self._owners if len(family) <= _LARGE for n in family}
        self._small = Words(small)

    def _family(self, name: str) -> frozenset[str]:
        family, size = {name}, 0
        while size < len(family):
            size = len(family)
            family.update(each for each, above in self._parents.items() if family & above)
        return frozenset(family)

    @property
    def look(self) -> Callable[[bytes], Said]:
        """Reads what one file says; a pure function that workers can be given."""
        return partial(_said, self._names, self._small)

    def add(self, path: str, said: Said, modules: Modules) -> None:
        """Take in what one file says."""
        for held, made in said.held:
            self._held.setdefault(made, set()).add(held)
        for name in said.defined:
            self._users.setdefault(name, set()).add(path)
        for module, taken in said.imported:
            if modules.find(path, module):
                for name in taken:
                    self._users.setdefault(name, set()).add(path)

    def classes(self, shown: Mapping[str, str]) -> Iterator[OwnClass]:
        """The owners, in order of their files."""
        for (path, each), family in sorted(self._owners, key=lambda pair: pair[0]):
            yield OwnClass(
                name=each.name,
                path=shown.get(path, path),
                methods=each.methods,
                own=each.own,
                is_module="Module" in self._ancestors(each.name),
                names=family,
                users=frozenset({path}).union(*(self._users.get(n, ()) for n in family)),
                holders=self._holders(family),
            )

    def _holders(self, family: frozenset[str]) -> frozenset[str]:
        if len(family) > _LARGE:
            return frozenset()
        held = (self._held.get(name, ()) for name in family)
        return frozenset().union(*held, *map(_called, family))

    def _ancestors(self, name: str) -> set[str]:
        found: set[str] = set()
        open_ = [name]
        while open_:
            above = self._parents.get(open_.pop(), frozenset()) - found
            found |= above
            open_ += above
        return found


def _called(name: str) -> Iterator[str]:
    """What people call an object of a class: ``SparseBatch`` is a sparse_batch or a batch."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    for base in {"_".join(words).lower(), *(word.lower() for word in words[-1:])}:
        if len(base) > 2 and base not in _COMMON:
            yield from (base, base + ("es" if base.endswith(("s", "x", "ch", "sh")) else "s"))

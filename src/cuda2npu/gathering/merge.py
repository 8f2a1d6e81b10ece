"""Puts the outlines of a project's files together to one value. Pure, and in a fixed order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cuda2npu.gathering.glance import speaks
from cuda2npu.gathering.modules import Modules
from cuda2npu.gathering.outline import Definition, Outline, Reading
from cuda2npu.knowledge import FOREIGN, Knowledge

_DEPTH = 8
"""Re-exports of re-exports are followed so far."""
Member = tuple[str, str]
"""A file and a name at its top."""


class _Project:
    """Questions about names that need more than one outline."""

    def __init__(self, outlines: Mapping[str, Outline], modules: Modules) -> None:
        self.outlines = dict(sorted(outlines.items()))
        self.modules = modules
        self._imports = {path: dict(outline.imports) for path, outline in self.outlines.items()}

    def resolve(self, path: str, dotted: str, depth: int = _DEPTH) -> Member | None:
        """Where an imported name is defined; None outside of the project."""
        found = self.modules.find(path, dotted)
        if found is None or not depth:
            return None
        target, rest = found
        if not rest or "." in rest:
            return None
        return self.member(target, rest, depth)

    def member(self, path: str, name: str, depth: int = _DEPTH) -> Member | None:
        """Where the name ``name`` of a file comes from."""
        outline = self.outlines.get(path)
        if outline is None:
            return path, name
        dotted = self._imports[path].get(name)
        if dotted is not None:
            return self.resolve(path, dotted, depth - 1)
        if name not in outline.constants:
            for star, module in outline.imports:
                found = self.modules.find(path, module) if star == "*" else None
                if found and not found[1] and depth and self.exports(found[0], name):
                    inner = self.member(found[0], name, depth - 1)
                    if inner is not None and inner[0] in self.outlines:
                        return inner
        return path, name

    def exports(self, path: str, name: str) -> bool:
        """Whether a star import of this file brings the name."""
        outline = self.outlines.get(path)
        if outline is None or outline.exported is None:
            return not name.startswith("_")
        return name in outline.exported

    def constant(self, path: str, name: str, dotted: str) -> Member | None:
        """The constant that a name, or an attribute of a module, means in a file."""
        if name.startswith("."):
            return self.resolve(path, dotted) if "." in dotted else None
        return self.member(path, name)

    def imported(self, path: str) -> set[str]:
        """The files that a file imports itself."""
        dotted = self._imports[path].values()
        return {found[0] for name in dotted if (found := self.modules.find(path, name))}


def merge(outlines: Mapping[str, Outline], modules: Modules, shown: Mapping[str, str]) -> Knowledge:
    """The knowledge of a project. ``shown`` are the files' names as the user is told of them."""
    project = _Project(outlines, modules)
    sinks, readers = _Values(project).sinks(shown)
    return Knowledge(
        constants=_constants(project, sinks),
        sinks={key: frozenset(kinds) for key, kinds in sorted(sinks.items())},
        readers={key: tuple(sorted(texts)) for key, texts in sorted(readers.items())},
        files=frozenset(name for outline in outlines.values() for name in outline.files),
    )


_Sinks = dict[str, set[str]]


class _Values:
    """Who gives constants and attributes a device, and who takes it."""

    def __init__(self, project: _Project) -> None:
        self._project = project
        self._constants: set[Member] = set()
        self._mixed: set[str] = set()
        self._definers: dict[str, set[str]] = {}
        self._imported = {path: project.imported(path) for path in project.outlines}
        for path, outline in project.outlines.items():
            for definition in outline.definitions:
                self._define(path, definition)

    def _define(self, path: str, definition: Definition) -> None:
        name = definition.name
        if not definition.is_device:
            self._mixed.add(name)
        elif name.startswith("."):
            self._definers.setdefault(name, set()).add(path)
        else:
            self._constants.add((path, name))

    def sinks(self, shown: Mapping[str, str]) -> tuple[_Sinks, _Sinks]:
        """What takes each value, and, in words, the takers that are not torch."""
        sinks: _Sinks = {}
        readers: _Sinks = {}
        for path, outline in self._project.outlines.items():
            for reading in outline.readings:
                for key in self._keys(path, reading):
                    sinks.setdefault(key, set()).add(reading.kind)
                    if reading.kind == FOREIGN:
                        place = f"{shown.get(path, path)}:{reading.line}"
                        readers.setdefault(key, set()).add(f"{reading.reader} in {place}")
        return sinks, readers

    def _keys(self, path: str, reading: Reading) -> Iterator[str]:
        """The keys of ``Knowledge.sinks`` that a reading speaks of.

        An attribute is known by its name alone, so that it must mean the same everywhere; and
        a foreign reader counts where its file and the one that gives the value have to do
        with each other: every other class has a ``device``.
        """
        member = self._project.constant(path, reading.name, reading.dotted)
        if member is not None and member[0] in self._project.outlines:
            if member in self._constants:
                yield _key(*member)
            return
        name = reading.name.removeprefix(".")
        if name == reading.name or reading.dotted.startswith("torch.") or name.endswith("type"):
            return
        if reading.kind != FOREIGN:
            if reading.name not in self._mixed:
                yield name
            return
        for definer in sorted(self._definers.get(reading.name, ())):
            near = definer in self._imported[path] or path in self._imported[definer]
            if near or definer == path:
                yield _key(definer, reading.name)
                if not speaks(name):
                    yield name


def _key(path: str, name: str) -> str:
    return f"{path}:{name}"


def _constants(project: _Project, sinks: _Sinks) -> dict[str, dict[str, str]]:
    """How each file writes the constants that something is known of."""
    known: dict[str, list[str]] = {}
    for key in sorted(sinks):
        path, _, name = key.rpartition(":")
        if path and not name.startswith("."):
            known.setdefault(path, []).append(name)
    result: dict[str, dict[str, str]] = {}
    for path, outline in project.outlines.items():
        names = {name: _key(path, name) for name in known.get(path, ())}
        if any(local == "*" for local, _ in outline.imports):
            names.update(_by_star(project, path, known))
        for local, dotted in outline.imports:
            member = project.resolve(path, dotted)
            if member is not None and _key(*member) in sinks:
                names[local] = _key(*member)
            found = project.modules.find(path, dotted)
            if found is not None and not found[1]:
                for name in known.get(found[0], ()):
                    names[f"{local}.{name}"] = _key(found[0], name)
        if names:
            result[path] = names
    return result


def _by_star(
    project: _Project, path: str, known: Mapping[str, list[str]]
) -> Iterator[tuple[str, str]]:
    """The known constants that star imports bring to a file."""
    for name in sorted({name for names in known.values() for name in names}):
        member = project.member(path, name)
        if member is not None and member[0] != path and member[1] in known.get(member[0], ()):
            yield name, _key(*member)

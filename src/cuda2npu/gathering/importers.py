"""Which files of a project import certain others, from the bytes of their import statements."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cached_property

from cuda2npu.gathering.modules import Modules
from cuda2npu.survey import imports
from cuda2npu.workers import Each, one_by_one


class Importers:
    """Finds the files that import others; looks up no module that cannot be one of them."""

    def __init__(
        self,
        contents: Callable[[], Iterable[tuple[str, bytes]]],
        modules: Modules,
        each: Each = one_by_one,
    ) -> None:
        self._contents = contents
        self._modules = modules
        self._each = each

    def of(self, targets: Collection[str]) -> dict[str, set[str]]:
        """The files that import one of the targets, each with those that it does."""
        packages = tuple(p.removesuffix("__init__.py") for p in targets if _is_package(p))
        names = frozenset(map(_name, targets))
        found: dict[str, set[str]] = {}
        for path, imported in self._imported.items() if targets else ():
            # A package is imported without its name by the files inside: ``from . import x``.
            inside = path.startswith(packages)
            for dotted in imported:
                if (inside and dotted.startswith(".")) or not names.isdisjoint(dotted.split(".")):
                    file = self._modules.find(path, dotted)
                    if file and file[0] in targets:
                        found.setdefault(path, set()).add(file[0])
        return found

    @cached_property
    def _imported(self) -> dict[str, tuple[str, ...]]:
        """What each file imports, kept as the same few strings."""
        every = self._each(imported_modules, self._contents())
        return {path: tuple(map(sys.intern, modules)) for path, modules in every}


def imported_modules(data: bytes) -> tuple[str, ...]:
    """The dotted names that the import statements of a file may be about, each once. Pure."""
    return tuple(dict.fromkeys(_dotted(data)))


def _is_package(path: str) -> bool:
    return path.endswith("/__init__.py")


def _name(path: str) -> str:
    """What a dotted name that means the file ends in."""
    return path.rpartition(".")[0].removesuffix("/__init__").rpartition("/")[2]


def _dotted(data: bytes) -> Iterator[str]:
    """The modules that imports may be about: ``from pkg import a`` can name pkg and pkg.a."""
    for statement in imports(data):
        yield statement.module
        dot = "" if statement.module.endswith(".") else "."
        yield from (f"{statement.module}{dot}{name}" for name in statement.names)

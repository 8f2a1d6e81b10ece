"""A second look at a project, when its findings are known: its kernels, their callers, libraries.

It reads import statements alone, and keeps nothing of a file but what it looks for, so that the
memory it takes does not grow with the number of files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cuda2npu.model import Finding
from cuda2npu.packs import libraries

if TYPE_CHECKING:
    from cuda2npu.pack import Library

Dotted = tuple[str, ...]
"""A dotted name in its parts."""

_IMPORT = re.compile(
    rb"""
    \#[^\n]*
    | (?:\"{3}(?:[^\\]|\\.)*?\"{3} | '{3}(?:[^\\]|\\.)*?'{3})
    | "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*'
    | (?:(?<=[\n;:])|\A) [ \t]* (?:
        from [ \t]+ (?P<module>\.*[ \t]*[\w.]*) \s+ import\b [ \t]*
            (?P<names>\([^)]*\) | (?:[^\n#;\\]|\\\r?\n)*)
        | import [ \t]+ (?P<plain>(?:[^\n#;\\]|\\\r?\n)+)
    )
    """,
    re.VERBOSE | re.DOTALL,
)
"""Comments and strings, which are passed over, and import statements."""
_FIRST = re.compile(rb"\n[ \t]*(?:import|from)[ \t]+(\w+)")
"""What may be an import and the first part of its name; quicker to find."""
_IN_LIST = re.compile(rb"#[^\n]*|[()\\]")


class Import(NamedTuple):
    """What one import statement names."""

    module: str
    """With its leading dots."""
    names: tuple[str, ...]
    """What ``from … import`` takes of the module."""


class LibraryUse(NamedTuple):
    """A library that a project imports, and the files that do."""

    library: Library
    files: tuple[str, ...]


class KernelSource(NamedTuple):
    """A CUDA source of a project, and the Python files that speak of it."""

    path: str
    named_by: tuple[str, ...]


class Kernel(NamedTuple):
    """A custom kernel: the findings about it, and the files that import what holds it.

    Those that import it directly come before those that do it through a package.
    """

    name: str
    places: tuple[Finding, ...]
    callers: tuple[str, ...]


class Survey(NamedTuple):
    """What a project brings along besides calls of torch."""

    kernels: tuple[Kernel, ...] = ()
    sources: tuple[KernelSource, ...] = ()
    libraries: tuple[LibraryUse, ...] = ()


def survey(
    paths: Iterable[str],
    sources: Iterable[str],
    findings: Iterable[Finding],
    stopped: Callable[[], bool] = lambda: False,
) -> Survey:
    """Look through the Python files for libraries and for what the findings and sources name.

    ``findings`` are those about kernels, ``sources`` the paths of CUDA sources.
    """
    paths = list(paths)
    modules = Modules()
    named = _Sources(sources)
    used = _Libraries()
    groups = _grouped(findings)
    callers = _Callers(modules, {f.path for group in groups.values() for f in group})
    for path, data in _read(paths, stopped):
        used.look(path, data)
        named.look(path, data)
        callers.look(path, data)
    while callers.follow():
        for path, data in _read(paths, stopped):
            callers.look(path, data)
    kernels = tuple(Kernel(name, tuple(group), callers.of(group)) for name, group in groups.items())
    own = {modules.of(path)[:1] for path in paths} if used.files else set()
    return Survey(kernels, named.found(), used.found(own))


def _read(paths: Iterable[str], stopped: Callable[[], bool]) -> Iterator[tuple[str, bytes]]:
    for path in paths:
        if stopped():
            return
        try:
            yield path, Path(path).read_bytes()
        except OSError:  # told of when it was to be checked
            continue


def imports(data: bytes) -> Iterator[Import]:
    """The import statements of a source, also of one that does not parse."""
    last = _last_import(data)  # most imports stand at the top, and the search is slow
    for match in _IMPORT.finditer(data):
        if match.start() > last:
            return
        if match["plain"] is not None:
            yield from (Import(name, ()) for name in _listed(match["plain"]))
        elif match["module"] is not None:
            module = match["module"].replace(b" ", b"").replace(b"\t", b"")
            yield Import(_text(module), tuple(_listed(match["names"])))


def _last_import(data: bytes) -> int:
    """Where the last word that may be part of an import statement stands; -1 without one."""
    found = len(data)
    while (found := data.rfind(b"import", 0, found)) >= 0:
        before = data[data.rfind(b"\n", 0, found) + 1 : found].lstrip()
        if not before or before.startswith(b"from") or b":" in before or b";" in before:
            break
    return found


def _listed(names: bytes) -> Iterator[str]:
    """The names of ``a as b, c``."""
    for part in _IN_LIST.sub(b"", names).split(b","):
        words = part.split()
        if words:
            yield _text(words[0])


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")


class Modules:
    """The dotted names of files, as the imports of their project spell them."""

    def __init__(self) -> None:
        self._packages: dict[Path, Dotted] = {}

    def of(self, path: str) -> Dotted:
        file = Path(path).absolute()
        package = self.package(file.parent)
        return package if file.stem == "__init__" else (*package, file.stem)

    def package(self, folder: Path) -> Dotted:
        """The packages that a folder is, outermost first; none without an ``__init__.py``."""
        if folder not in self._packages:
            inside = (folder / "__init__.py").exists() and folder != folder.parent
            self._packages[folder] = (*self.package(folder.parent), folder.name) if inside else ()
        return self._packages[folder]

    def named(self, path: str, statement: Import) -> Iterator[Dotted]:
        """What an import statement of a file may load: the module, and each name as one."""
        module = statement.module.lstrip(".")
        level = len(statement.module) - len(module)
        base: Dotted = tuple(module.split(".")) if module else ()
        if level:
            package = self.package(Path(path).absolute().parent)
            base = (*package[: len(package) - level + 1], *base)
        if not statement.names:
            yield base
        for name in statement.names:
            yield (*base, name)


class _Libraries:
    """Which known libraries are imported where."""

    def __init__(self) -> None:
        self.known = libraries()
        self.files: dict[str, list[str]] = {}
        self._first = frozenset(name.partition(".")[0].encode() for name in self.known)

    def look(self, path: str, data: bytes) -> None:
        if self._first.isdisjoint(_FIRST.findall(b"\n" + data)):
            return
        found = set()
        for module, names in imports(data):
            for name in (f"{module}.{name}" for name in names or ("",)):
                found.add(self._known(name))
        for library in found - {None}:
            self.files.setdefault(library or "", []).append(path)

    def _known(self, name: str) -> str | None:
        """The known library that holds a dotted name, the innermost one."""
        parts = name.split(".")
        heads = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
        return next((head for head in heads if head in self.known), None)

    def found(self, own: set[Dotted]) -> tuple[LibraryUse, ...]:
        """Without what the project itself provides under that name."""
        foreign = (name for name in self.files if (name.partition(".")[0],) not in own)
        uses = [LibraryUse(self.known[name], tuple(self.files[name])) for name in foreign]
        order = ("none", "ported", "works")
        uses.sort(key=lambda use: (order.index(use.library.support), -len(use.files), use.library))
        return tuple(uses)


class _Sources:
    """Which CUDA sources are named in which Python files."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._files: dict[str, list[str]] = {path: [] for path in paths}
        self._names = {path: re.escape(Path(path).name.encode()) for path in self._files}

    def look(self, path: str, data: bytes) -> None:
        if self._names and b".cu" in data:
            for source, name in self._names.items():
                if re.search(rb"(?<![\w-])" + name + rb"(?!\w)", data):
                    self._files[source].append(path)

    def found(self) -> tuple[KernelSource, ...]:
        return tuple(KernelSource(path, tuple(files)) for path, files in self._files.items())


def _hands_on(path: str) -> bool:
    return path.endswith("__init__.py")


def _is_for_cpu(path: str) -> bool:
    """``cpu_adam_x86.py`` shares the code of those that build kernels, and brings none."""
    return "cpu" in Path(path).stem.lower().split("_")


class _Callers:
    """Which files import the modules that hold kernels, directly or through a package."""

    def __init__(self, modules: Modules, holders: Iterable[str]) -> None:
        self._modules = modules
        self._targets: dict[Dotted, set[str]] = {}
        self._files: dict[str, list[str]] = {}
        self._exports: dict[Dotted, set[str]] = {}
        self._followed: set[Dotted] = set()
        for path in sorted(holders):
            if Path(path).stem != "setup":
                self._targets.setdefault(modules.of(path), set()).add(path)
        self._expect()

    def _expect(self) -> None:
        self._words = sorted({parts[-1].encode() for parts in self._targets if parts})

    def look(self, path: str, data: bytes) -> None:
        if not any(word in data for word in self._words):
            return
        for statement in imports(data):
            for named in self._modules.named(path, statement):
                for holder in self._held(named, path):
                    callers = self._files.setdefault(holder, [])
                    if path not in callers:
                        callers.append(path)
                    if _hands_on(path) and named[-1] != "*":
                        exported = (*self._modules.of(path), named[-1])
                        self._exports.setdefault(exported, set()).add(holder)

    def _held(self, named: Dotted, path: str) -> set[str]:
        """The files with kernels that an import loads: it names the module, or a name of it."""
        found = self._targets.get(named, set()) | self._targets.get(named[:-1], set())
        return {holder for holder in found - {path} if self._reaches(named, holder, path)}

    def _reaches(self, named: Dotted, holder: str, path: str) -> bool:
        """A script without a package is imported from beside or below it."""
        if len(self._modules.of(holder)) > 1:
            return True
        folder = Path(holder).absolute().parent
        return Path(path).absolute().is_relative_to(folder)

    def follow(self) -> bool:
        """Look next for those who take from a package what its ``__init__.py`` imports."""
        self._followed |= self._targets.keys()
        self._targets = {
            name: holders for name, holders in self._exports.items() if name not in self._followed
        }
        self._expect()
        return bool(self._targets)

    def of(self, findings: Iterable[Finding]) -> tuple[str, ...]:
        holders = {finding.path for finding in findings}
        callers = [path for holder in sorted(holders) for path in self._files.get(holder, ())]
        callers = [path for path in dict.fromkeys(callers) if path not in holders]
        users = [path for path in callers if not _hands_on(path) and not _is_for_cpu(path)]
        packages = [path for path in callers if _hands_on(path)]
        return tuple(users or packages)  # a package that only hands on is no user


def _file(path: str) -> str:
    """A file's name, with its folder where every package has one of that name."""
    file = Path(path)
    return f"{file.parent.name}/{file.name}" if file.stem == "__init__" else file.name


def _grouped(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """The findings about each kernel; one without a name is known by its file."""
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        for kernel in finding.kernels:
            name = kernel.rpartition(".")[2] if kernel else _file(finding.path)
            groups.setdefault(name, []).append(finding)
    return groups

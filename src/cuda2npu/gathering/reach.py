"""Which files lead to CUDA through their imports, for the shim: it has to be loaded before."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from cuda2npu.gathering.importers import imported_modules
from cuda2npu.gathering.modules import Modules
from cuda2npu.knowledge import Reach
from cuda2npu.rule import OTHER_RUNTIMES
from cuda2npu.workers import Each

_COMMENT = re.compile(rb"#[^\n]*")
_CUDA = re.compile(rb"""\.cuda\b|["']cuda(?:[:"'])|["']nccl["']""")
_NPU = re.compile(rb"\bis_(?:\w+_)?npu_available\b|\btorch(?:\.|_)npu\b|[\"']npu(?:[:\"'])")
_OTHERS = re.compile(rb"\b(?:import|from)[ \t]+(?:%s)\b" % "|".join(OTHER_RUNTIMES).encode())


def reach(
    contents: Callable[[], Iterable[tuple[str, bytes]]], shown: Mapping[str, str], each: Each
) -> Reach:
    """Who imports what speaks of CUDA; ``shown`` holds the files with their names for the user."""
    said = dict(each(_speaks, contents()))
    users = {path for path, (cuda, _) in said.items() if cuda}
    if not users:
        return Reach()
    imports = _Imports(dict(each(imported_modules, contents())), Modules(shown))
    files = {path: imports.of(path) - {path} for path in sorted(said)}
    leading = {path: shown[min(users & found)] for path, found in files.items() if users & found}
    ported: dict[str, str] = {}
    for path in (path for path, (_, npu) in said.items() if npu):
        for target in sorted(users & _all_of(path, files)):
            ported.setdefault(target, shown[path])
    return Reach(leading, frozenset().union(*files.values()) & (users | leading.keys()), ported)


class _Imports:
    """The files that a file imports, and those that a package has the imported names from."""

    def __init__(self, imported: Mapping[str, Collection[str]], modules: Modules) -> None:
        self._imported = imported
        self._modules = modules

    def of(self, path: str) -> set[str]:
        return {file for dotted in self._imported[path] for file in self._files(path, dotted)}

    def _files(self, importer: str, dotted: str, depth: int = 8) -> Iterator[str]:
        found = self._modules.find(importer, dotted)
        if found is None or not depth:
            return
        path, name = found
        yield path
        if name and path.endswith("/__init__.py"):
            for inner in self._imported[path]:
                if inner.endswith("." + name):
                    yield from self._files(path, inner, depth - 1)


def _speaks(data: bytes) -> tuple[bool, bool]:
    """Whether a file speaks of torch's CUDA, and whether of NPUs, if it has no shim itself."""
    code = _COMMENT.sub(b"", data) if b"cuda" in data or b"ccl" in data or b"npu" in data else b""
    npu = b"transfer_to_npu" not in code and _NPU.search(code) is not None
    foreign = b"torch" not in code and _OTHERS.search(code) is not None
    return not foreign and _CUDA.search(code) is not None, npu


def _all_of(path: str, imports: Mapping[str, Collection[str]]) -> set[str]:
    """The files that a file imports, itself or through others."""
    found: set[str] = set()
    waiting = [path]
    while waiting:
        new = set(imports[waiting.pop()]) - found
        found |= new
        waiting += new
    return found - {path}

"""Reads the files of a project and collects what they say about each other.

Every file is looked at as bytes; the few that have to do with the names that were found are
parsed. Nothing is written, imported or run.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cuda2npu.boundary import is_generated
from cuda2npu.formats import PYTHON, format_of
from cuda2npu.gathering.glance import Glance, Search, Words, glance, speaks
from cuda2npu.gathering.options import FIELD_PARSERS
from cuda2npu.gathering.twins import twins
from cuda2npu.knowledge import FOREIGN, Knowledge, OwnClass
from cuda2npu.model import Options, SourceError, Target
from cuda2npu.scopes import attribute_chain
from cuda2npu.workers import Each, one_by_one

if TYPE_CHECKING:
    from cuda2npu.gathering.importers import Importers
    from cuda2npu.gathering.modules import Modules
    from cuda2npu.gathering.outline import Outline


Contents = Callable[[], Iterable[tuple[str, bytes]]]
"""Gives every file that can be read; asked more than once, so that none need be kept."""


def collect(paths: Iterable[str], options: Options, each: Each = one_by_one) -> Knowledge:
    """What is to know about these files. One that cannot be read or parsed says nothing.

    ``each`` calls a function with the bytes of every file, here or by workers.
    """
    real = {_real(path): path for path in paths}
    python = (PYTHON, None)
    shown = {real: _shown(path) for real, path in real.items() if format_of(path) in python}
    known = Knowledge(twins={path: _shown(twin) for path, twin in twins(real).items()})
    return know(lambda: _read(shown), shown, options, each, known)


def know(
    contents: Contents,
    shown: Mapping[str, str],
    options: Options,
    each: Each = one_by_one,
    known: Knowledge | None = None,
) -> Knowledge:
    """The same of sources, wherever they come from, beside what is known already. Pure.

    ``shown`` holds the path of every file with its name for the user.
    """
    knowledge = _know(contents, shown, options, each, known or Knowledge())
    if options.target is Target.SHIM:
        from cuda2npu.gathering.reach import reach

        return replace(knowledge, reach=reach(contents, shown, each))
    return knowledge


def _know(
    contents: Contents, shown: Mapping[str, str], options: Options, each: Each, known: Knowledge
) -> Knowledge:
    glances = dict(each(glance, contents()))
    found = {path: each for path, each in glances.items() if any(each)}
    if not found:
        return known
    from cuda2npu.gathering.importers import Importers
    from cuda2npu.gathering.merge import merge
    from cuda2npu.gathering.modules import Modules

    modules = Modules(shown)
    outlines = _outlines(contents, found, each)
    classes = _classes(contents, outlines, modules, shown, each)
    knowledge = replace(merge(outlines, modules, shown), classes=classes, twins=known.twins)
    importers = Importers(contents, modules, each)
    knowledge = _with_neighbours(knowledge, importers)
    parsers = outlines | _parsers(contents, found, outlines, knowledge, each)
    programs = _programs(parsers, importers, glances, knowledge)
    knowledge = replace(knowledge, programs=programs)
    return replace(knowledge, calls=_calls(contents, found, modules, options, knowledge))


def _real(path: str) -> str:
    return os.path.realpath(path).replace("\\", "/")


def _shown(path: str) -> str:
    """A path as the user would write it: from the working folder, if it is below."""
    real, here = Path(path).resolve(), Path.cwd()
    return real.relative_to(here).as_posix() if real.is_relative_to(here) else real.as_posix()


def _read(paths: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    for path in paths:
        try:
            yield path, Path(path).read_bytes()
        except OSError:  # the run itself says so
            continue


def _outlines(contents: Contents, found: Mapping[str, Glance], each: Each) -> dict[str, Outline]:
    """The outlines of the files that have something to say."""
    from cuda2npu.rule import OTHER_RUNTIMES

    search = Search(
        {name for one in found.values() for name in one.constants},
        {name for one in found.values() for name in one.attributes},
        OTHER_RUNTIMES,
    )

    def speaking() -> Iterator[tuple[str, bytes]]:
        for path, data in contents():
            here = found.get(path, Glance())
            if here.owners or here.has_sink or search.wants(data):
                yield path, data

    outlines = _outlined(speaking(), each)
    # A name that says what it is needs no proof, but a reader that is not torch's is news.
    foreign = {
        r.name.lstrip(".") for s in outlines.values() for r in s.readings if r.kind == FOREIGN
    }
    constants = {name for one in found.values() for name in one.constants}
    names = Words((foreign & constants) | _renamed(outlines, constants))
    more = (
        (path, data)
        for path, data in (contents() if foreign or names else ())
        if path not in outlines
        and (found.get(path, Glance()).attributes & foreign or names.stand_in(data))
    )
    return outlines | _outlined(more, each)


def _renamed(outlines: Mapping[str, Outline], constants: set[str]) -> set[str]:
    """``from settings import BACKEND as LINK``: other names that constants go by."""
    return {
        local
        for each in outlines.values()
        for local, dotted in each.imports
        if local not in constants and dotted.rpartition(".")[2] in constants
    }


def _outlined(contents: Iterable[tuple[str, bytes]], each: Each) -> dict[str, Outline]:
    return {path: found for path, found in each(_outline, contents) if found is not None}


def _outline(data: bytes) -> Outline | None:
    from cuda2npu.gathering.outline import outline
    from cuda2npu.parsing import undisturbed
    from cuda2npu.source import decode

    with suppress(SourceError), undisturbed():  # the run itself says so
        return outline(decode(data)[0])
    return None


def _classes(
    contents: Contents,
    outlines: Mapping[str, Outline],
    modules: Modules,
    shown: Mapping[str, str],
    each: Each,
) -> tuple[OwnClass, ...]:
    """The classes with a watched method of their own; no file is parsed again for them."""
    from cuda2npu.gathering.kin import Families, Owner, parents

    owners = [Owner(path, c) for path, s in outlines.items() for c in s.classes if c.own]
    if not owners:
        return ()
    above: dict[str, frozenset[str]] = {}
    for _, data in contents():
        for name, names in parents(data):
            above[name] = above.get(name, frozenset()) | names
    families = Families(owners, above)
    for path, said in each(families.look, contents()):
        families.add(path, said, modules)
    return tuple(families.classes(shown))


def _with_neighbours(knowledge: Knowledge, importers: Importers) -> Knowledge:
    """Let the files around the one that gives an attribute its value know of other readers.

    What is compared with a ``device`` that stays as it is has to stay, too.
    """
    given: dict[str, set[str]] = {}
    for key in knowledge.readers:
        path, _, name = key.rpartition(":.")
        if path and speaks(name):
            given.setdefault(path, set()).add(name)
    sinks, readers = dict(knowledge.sinks), dict(knowledge.readers)
    for path, imported in importers.of(given).items():
        for definer in sorted(imported):
            for name in given[definer]:
                there, here = f"{definer}:.{name}", f"{path}:.{name}"
                sinks[here] = sinks.get(here, frozenset()) | {FOREIGN}
                readers.setdefault(here, readers[there])
    return replace(knowledge, sinks=sinks, readers=readers)


def _parsers(
    contents: Contents,
    found: Mapping[str, Glance],
    outlines: Mapping[str, Outline],
    knowledge: Knowledge,
    each: Each,
) -> dict[str, Outline]:
    """The files that only give an option its default, which another reads, and that parse it."""
    wanted = {
        path
        for path, one in found.items()
        if path not in outlines and any(map(knowledge.feeds, one.attributes))
    }
    fed = any(knowledge.feeds(name) for one in outlines.values() for name in one.fields)
    parsers = (
        (path, data)
        for path, data in (contents() if wanted or fed else ())
        if (path in wanted and any(word in data for word in _DEFINES))
        or (path not in outlines and any(word in data for word in FIELD_PARSERS))
    )
    return _outlined(parsers, each)


_DEFINES = (b"option(", b"add_argument(", b".add(", b"dataclass")


def _programs(
    outlines: Mapping[str, Outline],
    importers: Importers,
    paths: Iterable[str],
    knowledge: Knowledge,
) -> dict[str, frozenset[str]]:
    """The files that parse options which something reads, or import one that does."""
    fed = partial(_fed, knowledge)
    fields = {path: names for path, each in outlines.items() if (names := fed(each.fields))}
    parsing = {path for path, each in outlines.items() if each.parses_fields}
    defined = {path: names for path, each in outlines.items() if (names := fed(each.options))}
    for path, names in _with_imported(fields if parsing else {}, importers).items():
        if path in parsing:
            defined[path] = defined.get(path, frozenset()) | names
    programs = _with_imported(defined, importers)
    alike = {path.rpartition("/")[2] for path in programs}
    twins = {path: frozenset[str]() for path in paths if path.rpartition("/")[2] in alike}
    return dict(sorted((twins | programs).items()))


def _fed(knowledge: Knowledge, names: Iterable[str]) -> frozenset[str]:
    return frozenset(name for name in names if knowledge.feeds(name))


def _with_imported(
    names: Mapping[str, frozenset[str]], importers: Importers
) -> dict[str, frozenset[str]]:
    """The names of each file together with those of the files that it imports."""
    found = dict(names)
    for path, imported in importers.of(names).items():
        for target in imported:
            found[path] = found.get(path, frozenset()) | names[target]
    return found


def _calls(
    contents: Contents,
    found: Mapping[str, Glance],
    modules: Modules,
    options: Options,
    knowledge: Knowledge,
) -> dict[str, frozenset[str]]:
    """What the modules that tests patch still call of torch.cuda once they are converted.

    They are converted for it: whether a name goes depends on every rule, option and comment.
    """
    patched: dict[str, set[str]] = {}
    for path, each in found.items():
        for module in each.patched:
            target = modules.find(path, module)
            if target is not None and not target[1]:
                patched.setdefault(target[0], set()).add(module)
    calls: dict[str, frozenset[str]] = {}
    for path, data in contents() if patched else ():
        for module in patched.get(path, ()):
            known = knowledge.seen_from(path)
            calls[module] = frozenset(_called(_converted(data, options, path, known)))
    return dict(sorted(calls.items()))


def _converted(data: bytes, options: Options, path: str, knowledge: Knowledge) -> bytes:
    from cuda2npu.formats import rewrite_bytes

    if is_generated(data):
        return data
    try:
        return rewrite_bytes(data, options, path=path, knowledge=knowledge)[0]
    except SourceError:
        return data


def _called(data: bytes) -> Iterator[str]:
    """The names of torch.cuda that a source speaks of, by whatever name torch goes there."""
    from cuda2npu.source import decode

    with suppress(SourceError, SyntaxError):
        for node in ast.walk(ast.parse(decode(data)[0])):
            chain = attribute_chain(node) if isinstance(node, ast.Attribute) else None
            if chain is not None and "cuda" in chain:
                yield ".".join(("torch", *chain[chain.index("cuda") :]))

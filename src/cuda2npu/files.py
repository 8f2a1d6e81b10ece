"""Finding the files of a run."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from cuda2npu.boundary import Boundary, foreign
from cuda2npu.exclude import Exclude
from cuda2npu.formats import FORMATS, HEAD, format_of, format_of_script, is_data
from cuda2npu.model import FileError, SourceError, UsageError

CUDA_SOURCES = (".cu", ".cuh")
_OTHERS = frozenset(
    ".c .cc .cfg .cpp .csv .cu .cuh .h .hpp .html .ini .json .jsonl .md .pyc .pyx .rst .so .toml "
    ".xml .yaml .yml".split()
)
"""Kinds of files that are no Python source, though some of them happen to parse as one."""


class Job(NamedTuple):
    """One file to do."""

    path: str
    """As the user sees it."""
    root: str
    """The real folder that a symbolic link must stay inside of to be written through."""
    output: str | None = None
    """Where the converted copy goes; None to write the file itself."""
    folder: str = ""
    """The folder of ``--output``, which nothing is written outside of."""
    named: bool = False
    """Whether the user named this very file."""
    as_found: bool = False
    """Whether it is done as if it were found in a folder all the same: ``--force-exclude``."""

    @property
    def meant(self) -> bool:
        """Whether the user wants this file done, whatever it says of itself."""
        return self.named and not self.as_found


class Copy(NamedTuple):
    """A file of ``--output`` that is copied as it is."""

    path: str
    output: str
    folder: str


class Plan:
    """The files of a run, in order, each once."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.copies: list[Copy] = []
        self.errors: list[FileError] = []
        self.excluded: list[str] = []
        """Paths that the user named and the patterns leave out."""
        self.cuda_sources: list[str] = []
        self.left_out: dict[str, int] = {}
        """Vendored and generated folders and kinds of files, with the files in them."""
        self.large: list[str] = []
        """Files of folders that are too large for what their name tells."""

    def leave_out(self, path: Path) -> None:
        """Do all files but this one."""
        real = path.resolve()
        self.jobs = [
            job
            for job in self.jobs
            if not job.path.endswith(path.name) or Path(job.path).resolve() != real
        ]


class _Found(NamedTuple):
    relative: str
    link: bool


def discover(paths: Iterable[str], exclude: Exclude) -> Plan:
    """The files under ``paths``: folders are searched, a named file has any suffix."""
    plan = Plan()
    links: list[tuple[int, Job]] = []
    seen: set[str] = set()
    for name, path in _usable(paths, exclude, plan):
        if path.is_dir():
            root = str(path.resolve())
            for found in walk(path, exclude, plan):
                job = Job(join(name, found.relative), root)
                if found.link:
                    links.append((len(plan.jobs), job))
                else:
                    _add(plan.jobs, job, f"{root.rstrip('/')}/{found.relative}", seen)
        else:
            job = Job(name, _root_of(path), named=True, as_found=exclude.force)
            _add(plan.jobs, job, str(path.resolve()), seen)
    _insert_links(plan.jobs, links, seen)
    return plan


def _usable(paths: Iterable[str], exclude: Exclude, plan: Plan) -> Iterator[tuple[str, Path]]:
    """The paths that are folders or files to read; the plan is told what becomes of others."""
    for name in paths:
        path = Path(name)
        if name and _leaves_out(name, path, exclude, plan):
            continue
        fault = _fault(path) if name else "an empty path; . is the working folder"
        if fault is None:
            yield name, path
        else:
            plan.errors.append(FileError(name or '""', fault))


def _leaves_out(name: str, path: Path, exclude: Exclude, plan: Plan) -> bool:
    """Whether a named path is not to be done; the plan is told of what could be."""
    kind = foreign(path, exclude) if exclude.force else None
    if kind is not None:
        plan.left_out[kind] = plan.left_out.get(kind, 0) + 1
    elif exclude.covers_named(path):
        plan.excluded.append(name)
    elif not exclude.force or not path.is_file():
        return False
    elif is_data(name, size(name)):
        plan.large.append(name)
    else:
        return not _is_read(name, path)
    return True


def _is_read(name: str, file: Path | os.DirEntry[str]) -> bool:
    """Whether a file is of a known format by its name or, without a suffix, by its first line."""
    if format_of(name) is not None:
        return True
    is_script = "." not in file.name and _is_file(file)
    return is_script and format_of_script(_head(file)) is not None


def _head(file: Path | os.DirEntry[str]) -> bytes:
    """The first bytes of a file; none of one that cannot be read."""
    try:
        with open(file, "rb", buffering=0) as stream:  # noqa: PTH123
            return stream.read(HEAD)
    except OSError:
        return b""


def _fault(path: Path) -> str | None:
    """Why a path that the user named is nothing to convert."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            return None
        if not stat.S_ISREG(mode):
            return "is not a regular file; - reads standard input"
        return None if format_of(str(path)) else _fault_of_source(path)
    except (FileNotFoundError, NotADirectoryError):
        return "no such file or folder"
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def _fault_of_source(path: Path) -> str | None:
    """Why a file whose name tells no format is no Python source either."""
    data = path.read_bytes()
    if format_of_script(data):
        return None
    kinds = ", ".join(each.name for each in FORMATS)
    fault = f"is of no kind that is read ({kinds}), by its name and first line"
    if path.suffix in _OTHERS or b"\0" in data:
        return fault
    from cuda2npu.parsing import parse
    from cuda2npu.source import decode

    try:
        parse(decode(data)[0])
    except SourceError as error:
        return f"{fault}: {error}"
    return None


def _add(jobs: list[Job], job: Job, real: str, seen: set[str]) -> None:
    if real not in seen:
        seen.add(real)
        jobs.append(job)


def _insert_links(jobs: list[Job], links: list[tuple[int, Job]], seen: set[str]) -> None:
    """Links are judged last, so that a file goes by its own name rather than by a link's."""
    kept: list[tuple[int, Job]] = []
    for place, job in links:
        real = str(Path(job.path).resolve())
        if real not in seen:
            seen.add(real)
            kept.append((place, job))
    for place, job in reversed(kept):
        jobs.insert(place, job)


def size(path: str) -> int:
    """The bytes of a file; 0 when it cannot be asked."""
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


def _root_of(path: Path) -> str:
    """The tree that a file named by itself belongs to: the working folder if it is inside."""
    folder = path.parent.resolve()
    here = Path.cwd()
    return str(here if folder.is_relative_to(here) else folder)


def join(folder: str, relative: str) -> str:
    return str(Path(folder, relative))


def walk(folder: Path, exclude: Exclude, plan: Plan) -> Iterator[_Found]:
    """The files below a folder that are of a known format, in order of their names."""
    ours = Boundary(folder, exclude, plan.left_out)
    for relative, entry in _entries(folder, "", ours.skips, plan.errors):
        if relative.endswith(CUDA_SOURCES):
            if ours.has(relative):
                plan.cuda_sources.append(join(str(folder), relative))
        elif _is_read(relative, entry) and ours.has(relative) and _is_file(entry):
            if is_data(relative, size(entry.path)):
                plan.large.append(join(str(folder), relative))
            else:
                yield _Found(relative, entry.is_symlink())


def _is_file(entry: Path | os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link that leads to itself
        return False


def _entries(
    folder: Path, below: str, skip: Callable[[str], bool], errors: list[FileError]
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Everything below a folder that is no folder itself; links to folders are not followed."""
    try:
        with os.scandir(folder / below) as scan:
            entries = sorted(scan, key=lambda entry: entry.name)
    except OSError as error:
        errors.append(FileError(join(str(folder), below), f"cannot be read: {error.strerror}"))
        return
    for entry in entries:
        relative = below + entry.name
        if not entry.is_dir(follow_symlinks=False):
            yield relative, entry
        elif not skip(relative):
            yield from _entries(folder, relative + "/", skip, errors)


def plan_output(paths: Iterable[str], exclude: Exclude, output: Path) -> Plan:
    """The conversions and copies that fill ``output``; every clash is found before any write."""
    plan = Plan()
    sources: dict[str, str] = {}
    for name, path in _usable(paths, exclude, plan):
        if path.is_dir():
            for item in _folder_output(name, exclude, output, plan):
                _place(plan, item, sources)
        else:
            target = str(output / path.name)
            root, forced = _root_of(path), exclude.force
            job = Job(name, root, target, str(output), named=True, as_found=forced)
            _place(plan, job, sources)
    _refuse_clashes(sources, output)
    return plan


def _folder_output(name: str, exclude: Exclude, output: Path, plan: Plan) -> Iterator[Job | Copy]:
    folder = Path(name)
    root = folder.resolve()
    inside = output.resolve()
    if inside == root:
        raise UsageError(f"--output {output}: is the folder that is converted")
    inner = Plan()
    known = {found.relative for found in walk(folder, exclude, inner) if not found.link}
    plan.left_out |= inner.left_out
    plan.large += inner.large

    def skip(relative: str) -> bool:
        return relative.rpartition("/")[2] == ".git" or root / relative == inside

    for relative, entry in _entries(folder, "", skip, plan.errors):
        shown, target = join(name, relative), join(str(output), relative)
        if relative in known:
            yield Job(shown, str(root), target, str(output))
        elif entry.is_symlink() or _is_file(entry):
            yield Copy(shown, target, str(output))


def _place(plan: Plan, item: Job | Copy, sources: dict[str, str]) -> None:
    assert item.output is not None
    source = str(Path(item.path).absolute())
    known = sources.get(item.output)
    if known is None:
        sources[item.output] = source
        if isinstance(item, Job):
            plan.jobs.append(item)
        else:
            plan.copies.append(item)
    elif known != source:
        raise UsageError(f"{known} and {source} would both be written to {item.output}")


def _refuse_clashes(sources: dict[str, str], output: Path) -> None:
    originals = set(sources.values())
    for target, source in sources.items():
        path = Path(target)
        if str(path.resolve()) in originals:
            raise UsageError(f"--output {output}: {target} is one of the files to convert")
        for parent in path.relative_to(output).parents:
            if str(output / parent) in sources:
                raise UsageError(f"{output / parent} would be both a file and a folder of {source}")

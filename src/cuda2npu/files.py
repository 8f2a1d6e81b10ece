"""Finding the files of a run, and writing them so that a file is either old or new."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from cuda2npu.exclude import Exclude
from cuda2npu.formats import FORMATS, format_of, format_of_script, is_data
from cuda2npu.model import FileError, SourceError, UsageError

NOTEBOOK = ".ipynb"
CUDA_SOURCES = (".cu", ".cuh")
_OTHERS = frozenset(
    ".bash .c .cc .cfg .cpp .csv .cu .cuh .h .hpp .html .ini .ipynb .json .jsonl .md .pyc .pyx "
    ".rst .sh .so .toml .xml .yaml .yml".split()
)
"""Kinds of files that are no Python source, though some of them happen to parse as one."""


class WriteError(Exception):
    """A file that could not be written. It is as it was."""


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
        self.notebooks = 0
        self.cuda_sources: list[str] = []
        self.large: list[str] = []
        """Files of folders that are too large for what their name tells."""


class _Found(NamedTuple):
    relative: str
    link: bool


def discover(paths: Iterable[str], exclude: Exclude) -> Plan:
    """The Python files under ``paths``: folders are searched, a named file has any suffix."""
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
            job = Job(name, _root_of(path), named=True)
            _add(plan.jobs, job, str(path.resolve()), seen)
    _insert_links(plan.jobs, links, seen)
    return plan


def _usable(paths: Iterable[str], exclude: Exclude, plan: Plan) -> Iterator[tuple[str, Path]]:
    """The folders and Python files among the paths; the plan is told what becomes of others."""
    for name in paths:
        path = Path(name)
        if name and exclude.covers_named(path):
            plan.excluded.append(name)
            continue
        fault = _fault(path) if name else "an empty path; . is the working folder"
        if fault is None:
            yield name, path
        else:
            plan.errors.append(FileError(name or '""', fault))


def _fault(path: Path) -> str | None:
    """Why a path that the user named is nothing to convert."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            return None
        if not stat.S_ISREG(mode):
            return "is not a regular file; - reads standard input"
        if path.suffix == NOTEBOOK:
            return (
                "notebooks are not read yet. Convert it with `jupyter nbconvert --to script "
                f"{path.name}` and name the script."
            )
        return None if format_of(path.name) else _fault_of_source(path)
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
    """The Python files below a folder, in order of their names; notebooks are counted."""
    prefix = exclude.prefix(folder)
    for relative, entry in _entries(folder, "", exclude.folders(prefix), plan.errors):
        if relative.endswith(CUDA_SOURCES):
            if not exclude.matches(prefix + relative, folder=False):
                plan.cuda_sources.append(join(str(folder), relative))
        elif (
            (format_of(relative) or relative.endswith(NOTEBOOK))
            and not exclude.matches(prefix + relative, folder=False)
            and _is_file(entry)
        ):
            if relative.endswith(NOTEBOOK):
                plan.notebooks += 1
            elif is_data(relative, size(entry.path)):
                plan.large.append(join(str(folder), relative))
            else:
                yield _Found(relative, entry.is_symlink())


def _is_file(entry: os.DirEntry[str]) -> bool:
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
            job = Job(name, _root_of(path), str(output / path.name), str(output), named=True)
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
    python = {found.relative for found in walk(folder, exclude, inner) if not found.link}
    plan.notebooks += inner.notebooks
    plan.large += inner.large

    def skip(relative: str) -> bool:
        return relative.rpartition("/")[2] == ".git" or root / relative == inside

    for relative, entry in _entries(folder, "", skip, plan.errors):
        shown, target = join(name, relative), join(str(output), relative)
        if relative in python:
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


def replace_file(path: str, data: bytes, *, expected: bytes, root: str) -> None:
    """Write a file in one step; it holds ``expected`` until then. A link's target is written."""
    target = Path(path).resolve()
    if Path(path).is_symlink() and not target.is_relative_to(root):
        raise WriteError(f"is a link to {target}, which is outside {root}. Left as it was.")
    if not os.access(target, os.W_OK):
        raise WriteError("is read-only. Left as it was.")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise WriteError(f"cannot be replaced: {target.parent} is read-only. Left as it was.")
    try:
        present = target.read_bytes()
        if present == data:  # a worker that died after the write
            return
        if present != expected:
            raise WriteError("was changed by another program meanwhile. Left as it was.")
        _write(target, data, target.stat())
    except OSError as error:
        raise WriteError(f"cannot be written: {error.strerror}. Left as it was.") from None


def write_copy(source: str, output: str, data: bytes, folder: str) -> None:
    """Write ``data`` to ``output``, below ``folder``, with the mode of ``source``."""
    try:
        target = _prepare(Path(output), Path(folder))
        _write(target, data, Path(source).stat())
    except OSError as error:
        raise WriteError(f"cannot be written to {output}: {error.strerror}") from None


def copy_file(copy: Copy) -> None:
    """Copy a file as it is; a link stays a link."""
    import shutil

    try:
        target = _prepare(Path(copy.output), Path(copy.folder))
        source = Path(copy.path)
        with temporary(target.parent) as name:
            if source.is_symlink():
                Path(name).unlink()
                Path(name).symlink_to(source.readlink())
            else:
                shutil.copy2(source, name)
            Path(name).replace(target)
    except OSError as error:
        raise WriteError(f"cannot be copied to {copy.output}: {error.strerror}") from None


def _prepare(target: Path, folder: Path) -> Path:
    """Make the folders of a target; a link among them must not lead out of ``folder``."""
    real = target.parent.resolve()
    if not real.is_relative_to(folder.resolve()):
        raise WriteError(f"not written: {target.parent} leads outside {folder}")
    real.mkdir(parents=True, exist_ok=True)
    return target


_TEMPORARIES: set[str] = set()


def remove_temporaries() -> None:
    """What a process that ends in the middle of its work has to clean up."""
    for name in tuple(_TEMPORARIES):
        with suppress(OSError):
            Path(name).unlink()


@contextmanager
def temporary(folder: Path) -> Iterator[str]:
    """A new file in the folder, gone at the end unless it was renamed."""
    import tempfile

    descriptor, name = tempfile.mkstemp(prefix=".cuda2npu-", suffix=".tmp", dir=folder)
    _TEMPORARIES.add(name)
    os.close(descriptor)
    try:
        yield name
    finally:
        _TEMPORARIES.discard(name)
        with suppress(FileNotFoundError):
            Path(name).unlink()


def _write(target: Path, data: bytes, like: os.stat_result) -> None:
    with temporary(target.parent) as name:
        with open(name, "wb") as stream:  # noqa: PTH123
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        new = Path(name)
        if hasattr(os, "chown"):
            with suppress(OSError):  # only root may give a file away
                os.chown(name, like.st_uid, like.st_gid)
        new.chmod(stat.S_IMODE(like.st_mode))
        new.replace(target)
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """Make the rename last; not every system can open a folder."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

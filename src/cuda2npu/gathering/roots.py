"""What the project of a run is: the files that know of each other.

Folders that are named are the project. A file named by itself, as pre-commit does it, belongs
to the project around it, so that it comes out as it does in a run over the whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cuda2npu.exclude import Exclude
from cuda2npu.files import Job, discover

_MARKS = (".git", "pyproject.toml")
LIMIT = 20_000
"""A tree with more files is no project that one file could be judged by in passing."""


def project_root(path: str) -> Path | None:
    """The nearest folder above with ``.git`` or ``pyproject.toml``; no home folder and no ``/``."""
    home = _home()
    for folder in Path(path).resolve().parents:
        if folder in (home, Path(folder.anchor)):
            return None
        if any((folder / mark).exists() for mark in _MARKS):
            return folder
    return None


def _home() -> Path | None:
    try:
        return Path.home().resolve()
    except RuntimeError:
        return None


def project_files(jobs: list[Job], exclude: Exclude) -> Iterator[str]:
    """The files whose facts count in a run of these jobs."""
    roots = {project_root(job.path) for job in jobs if job.named}
    yield from (job.path for job in jobs)
    for root in sorted(filter(None, roots)):
        around = discover([str(root)], exclude).jobs
        if len(around) <= LIMIT:
            yield from (job.path for job in around)

"""The kinds of files that are read: what a file is by its name, and who rewrites it.

A format is a row of ``FORMATS`` and a module with
``rewrite_bytes(data, options, path=…, knowledge=…)``, which returns the new bytes and a
:class:`~cuda2npu.model.Result`, and raises SourceError for a file that cannot be read. A format
module is imported when a file of its kind has a trigger word.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import PurePath
from typing import NamedTuple

from cuda2npu.knowledge import Knowledge
from cuda2npu.model import Options, Result
from cuda2npu.packs import document_pattern, trigger_pattern


class Format(NamedTuple):
    """One kind of file."""

    name: str
    patterns: tuple[str, ...]
    """Names of files, as globs; the first format in the table that fits has the file."""
    module: str
    holds_python: bool = False
    holds_documents: bool = True
    """Whether rules about Python, and those about other files, have something to say."""
    is_json: bool = False
    interpreter: re.Pattern[bytes] | None = None
    """The first line of a file that has no suffix, when the user names it."""


PYTHON = Format(
    "Python",
    ("*.py", "*.pyi", "*.pyw"),
    "cuda2npu.engine",
    holds_python=True,
    holds_documents=False,
    interpreter=re.compile(rb"#!.*python"),
)

NOTEBOOK = Format(
    "notebook", ("*.ipynb",), "cuda2npu.formats.notebook", holds_python=True, is_json=True
)

SHELL = Format(
    "shell script",
    ("*.sh", "*.bash", "*.zsh", "*.slurm", "*.sbatch", "*.pbs"),
    "cuda2npu.formats.shell",
    holds_python=True,
    interpreter=re.compile(rb"#!.*\b(ba|z|da|k)?sh\b"),
)
MAKEFILE = Format(
    "makefile",
    ("Makefile", "makefile", "GNUmakefile", "Makefile.*", "*.mk"),
    "cuda2npu.formats.makefile",
    holds_python=True,
)

FORMATS: tuple[Format, ...] = (PYTHON, NOTEBOOK, SHELL, MAKEFILE)


def format_of(path: str) -> Format | None:
    """The format that a file's name tells."""
    name = PurePath(path).name
    return next(
        (each for each in FORMATS if any(fnmatchcase(name, glob) for glob in each.patterns)), None
    )


def format_of_script(head: bytes) -> Format | None:
    """The format that the first line of a script tells."""
    known = (each for each in FORMATS if each.interpreter and each.interpreter.match(head))
    return next(known, None)


def has_trigger(data: bytes, path: str) -> bool:
    """Whether a file must be parsed; a file of no known name counts as Python."""
    kind = _format(path, data)
    if kind.is_json:
        data = data.replace(b'\\"', b'"')  # words are looked for as they stand in the source
    return (kind.holds_python and trigger_pattern().search(data) is not None) or (
        kind.holds_documents and document_pattern().search(data) is not None
    )


def rewrite_bytes(
    data: bytes, options: Options, *, path: str, knowledge: Knowledge | None = None
) -> tuple[bytes, Result]:
    """Rewrite a file's bytes. Unchanged input comes back as the same object.

    Raises SourceError when the bytes cannot be decoded or parsed.
    """
    module = import_module(_format(path, data).module)
    after, result = module.rewrite_bytes(data, options, path=path, knowledge=knowledge)
    assert isinstance(after, bytes)
    assert isinstance(result, Result)
    return after, result


def _format(path: str, data: bytes) -> Format:
    return format_of(path) or format_of_script(data[:128]) or PYTHON

"""The kinds of files that are read: what a file is by its name, and who rewrites it.

A format is a row of ``FORMATS`` and a module with
``rewrite_bytes(data, options, path=…, knowledge=…)``, which returns the new bytes and a
:class:`~cuda2npu.model.Result`, and raises SourceError for a file that cannot be read. A format
module is imported when a file of its kind has a trigger word.

Documents are read strictly when the user names them. In a folder, a template or a data file may
bear the same suffix: what the parser refuses and what is larger than settings are is told of,
and is no error.
"""

from __future__ import annotations

import re
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
    """The first line of a file that has no suffix."""
    limit: int | None = None
    """A larger file is data: it is not read unless the user names it. In bytes."""


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

HEAD = 128
"""The bytes of a file that tell its interpreter."""

SETTINGS_LIMIT = 1024 * 1024

FORMATS: tuple[Format, ...] = (
    PYTHON,
    NOTEBOOK,
    SHELL,
    MAKEFILE,
    Format(
        "requirements",
        ("*requirements*.txt", "*requirements*.in", "requirements/*.txt", "requirements/*.in",
         "constraints*.txt"),
        "cuda2npu.formats.requirements",
    ),
    Format("pyproject.toml", ("pyproject.toml",), "cuda2npu.formats.pyproject"),
    Format("setup.cfg", ("setup.cfg",), "cuda2npu.formats.setup_cfg"),
    Format(
        "conda environment",
        ("environment*.yml", "environment*.yaml", "conda*.yml", "conda*.yaml"),
        "cuda2npu.formats.conda",
    ),
    Format(
        "Dockerfile",
        ("Dockerfile*", "*.Dockerfile", "*.dockerfile", "Containerfile*"),
        "cuda2npu.formats.dockerfile",
    ),
    Format("YAML", ("*.yaml", "*.yml"), "cuda2npu.formats.yaml", limit=SETTINGS_LIMIT),
    Format("TOML", ("*.toml",), "cuda2npu.formats.toml", limit=SETTINGS_LIMIT),
    Format("JSON", ("*.json",), "cuda2npu.formats.json", limit=SETTINGS_LIMIT),
)  # fmt: skip

LOCK_FILES = frozenset(
    "package-lock.json npm-shrinkwrap.json composer.lock pnpm-lock.yaml conda-lock.yml "
    ".cuda2npu-baseline.json".split()
)
"""What a tool made from the files that people write; nobody edits them."""


def format_of(path: str) -> Format | None:
    """The format that a file's name tells."""
    file = PurePath(path)
    if file.name in LOCK_FILES:
        return None
    return next((each for each in FORMATS if any(map(file.match, each.patterns))), None)


def is_data(path: str, size: int) -> bool:
    """Whether a file is too large to be what its format is read for."""
    kind = format_of(path)
    return kind is not None and kind.limit is not None and size > kind.limit


def is_python(path: str) -> bool:
    """Whether a file holds Python or what starts it; one of no known name counts as Python."""
    return (format_of(path) or PYTHON).holds_python


def format_of_script(head: bytes) -> Format | None:
    """The format that the first line of a script tells."""
    known = (each for each in FORMATS if each.interpreter and each.interpreter.match(head))
    return next(known, None)


def has_trigger(data: bytes, path: str, options: Options) -> bool:
    """Whether a file must be parsed; a file of no known name counts as Python."""
    kind = _format(path, data)
    if kind.is_json:
        data = data.replace(b'\\"', b'"')  # words are looked for as they stand in the source
    return (kind.holds_python and trigger_pattern(options).search(data) is not None) or (
        kind.holds_documents and document_pattern(options).search(data) is not None
    )


def rewrite_bytes(
    data: bytes, options: Options, *, path: str, knowledge: Knowledge | None = None
) -> tuple[bytes, Result]:
    """Rewrite a file's bytes. Unchanged input comes back as the same object.

    A file that the project has anew for NPUs is left as it is. Raises SourceError when the
    bytes cannot be decoded or parsed.
    """
    if knowledge is not None and knowledge.twin is not None:
        note = f"left as it is, for CUDA: {knowledge.twin} is its twin for NPUs"
        return data, Result(path, "", changed=False, notes=(note,))
    module = import_module(_format(path, data).module)
    after, result = module.rewrite_bytes(data, options, path=path, knowledge=knowledge)
    assert isinstance(after, bytes)
    assert isinstance(result, Result)
    return after, result


def _format(path: str, data: bytes) -> Format:
    return format_of(path) or format_of_script(data[:HEAD]) or PYTHON

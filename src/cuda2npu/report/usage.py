"""How a command ends that was asked for what cannot be done."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from cuda2npu.model import UsageError
from cuda2npu.report import Output

ERROR = 2
"""The exit code of a command that could not do all it was asked for."""


@contextmanager
def usage_errors() -> Iterator[None]:
    """Say on stderr what the user has to correct, and leave with the code of an error."""
    try:
        yield
    except UsageError as error:
        Output(sys.stderr).write(f"error: {error}\n")
        raise typer.Exit(ERROR) from None

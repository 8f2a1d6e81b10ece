"""What is said on stderr while a script runs, and when it cannot."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from rich.console import Console
from rich.text import Text

from cuda2npu.model import UsageError
from cuda2npu.report import Output
from cuda2npu.report.usage import ERROR
from cuda2npu.running import RunError
from cuda2npu.running.process import Tell, signals_stop

INTERRUPTED = 130

_Report = TypeVar("_Report")


def say(errors: Console, text: str) -> None:
    """On stderr, beside the state of the run if that is a terminal."""
    if errors.is_terminal:
        errors.print(text, markup=False, highlight=False, soft_wrap=True)
        return
    with suppress(UsageError):  # nowhere to say that there is nowhere to say it
        Output(sys.stderr).write(f"{text}\n")


def reported(stage: Callable[[Tell], _Report], errors: Console) -> _Report | int:
    """The report of a stage that shows its progress; the exit code when it could not be run."""
    try:
        with signals_stop():
            if not errors.is_terminal:
                return stage(lambda _: None)
            with errors.status("starting") as status:
                return stage(lambda text: status.update(Text(text)))
    except RunError as error:
        if error.trace:
            say(errors, error.trace.rstrip())
        say(errors, f"error: {error}")
        return ERROR
    except KeyboardInterrupt:
        say(errors, "stopped; nothing is left running")
        return INTERRUPTED

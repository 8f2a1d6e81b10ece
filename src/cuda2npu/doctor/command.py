"""The command ``doctor``, from its options to its exit code."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from io import StringIO

from rich.console import Console

from cuda2npu.doctor.examine import examine
from cuda2npu.doctor.machine import Machine
from cuda2npu.doctor.report import as_json, show
from cuda2npu.report import BROKEN_PIPE, Output
from cuda2npu.running.process import signals_stop
from cuda2npu.running.told import INTERRUPTED

WRONG = 1
NARROWEST = 100
"""A file is not 80 columns wide; a row in so few is hard to read."""


def run_doctor(python: str, timeout: float, json: bool) -> int:
    """Examine and print; raises UsageError for a Python that is none."""
    errors = Console(stderr=True, emoji=False)
    try:
        with ExitStack() as stack:
            if os.name == "posix":
                stack.enter_context(signals_stop())
            if errors.is_terminal:
                stack.enter_context(errors.status("looking, and using the NPU"))
            diagnosis = examine(Machine(python=python), timeout)
    except KeyboardInterrupt:
        return INTERRUPTED
    output = Output(sys.stdout)
    if json:
        output.write(as_json(diagnosis))
    else:
        terminal = Console(emoji=False)
        width = terminal.width if terminal.is_terminal else max(terminal.width, NARROWEST)
        text = StringIO()
        show(
            diagnosis,
            Console(file=text, emoji=False, force_terminal=terminal.is_terminal, width=width),
        )
        output.write("".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines()))
    if output.broken:
        return BROKEN_PIPE
    return 0 if diagnosis.can_run else WRONG

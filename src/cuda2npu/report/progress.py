"""A bar on the terminal: how far a run is, the file in work, and the time left."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TextIO

from cuda2npu import files
from cuda2npu.report import printable

_BAR = 20
"""Columns of the bar itself."""
_NARROW = 60
"""A terminal of fewer columns has no room for a bar and a path."""


class Progress:
    """Draws on stderr, if that is a terminal and the run takes long enough."""

    _INTERVAL = 0.1
    _LARGE = 256 * 1024
    """A file of so many bytes is named at once, since it is in work for a while."""

    def __init__(self, paths: Sequence[str], stream: TextIO | None) -> None:
        usable = stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
        self._paths = paths
        self._stream = stream if usable else None
        self._next = time.monotonic() + 5 * self._INTERVAL
        self._shown = False
        self._stopped = False
        self._bar: _Bar | None = None

    def tell(self, done: int) -> None:
        """So many files are done, and the next one is in work."""
        if self._stream is None or self._stopped or done >= len(self._paths):
            return
        path = self._paths[done]
        if time.monotonic() < self._next and files.size(path) < self._LARGE:
            return
        if self._bar is None:
            self._bar = _Bar(len(self._paths), self._stream)
        self._stream.write(f"\r\x1b[K{self._bar.line(done, path)}")
        self._stream.flush()
        self._next = time.monotonic() + self._INTERVAL
        self._shown = True

    def clear(self) -> None:
        """Take the bar away, before anything else is printed."""
        if self._shown:
            self._wipe()

    def stop(self) -> None:
        """Draw no more, and leave an empty line also where the terminal showed ``^C``."""
        self._stopped = True  # a signal may come while a bar is drawn: clear() is still to come
        self._wipe()

    def _wipe(self) -> None:
        if self._stream is not None:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._shown = False


class _Bar:
    """One line of text about a run. rich draws it; it is imported when a bar is needed."""

    def __init__(self, total: int, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self._console = Console(file=stream, emoji=False)
        self._progress = Progress(
            BarColumn(_BAR),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            console=self._console,
        )
        self._task = self._progress.add_task("", total=total)

    def line(self, done: int, path: str) -> str:
        from rich.text import Text

        self._progress.update(self._task, completed=done)
        if self._console.width < _NARROW:
            return f"{done}/{self._progress.tasks[0].total:.0f}"
        with self._console.capture() as capture:
            self._console.print(self._progress.get_renderable(), end="")
        text = capture.get().strip("\n")
        return f"{text}  {self._end_of(path, Text.from_ansi(text).cell_len + 3)}"

    def _end_of(self, path: str, taken: int) -> str:
        """The end of a path, which says most, as far as the line has room for it."""
        from rich.cells import cell_len

        shown = printable(path)
        while cell_len(shown) > self._console.width - taken:
            shown = "…" + shown.removeprefix("…")[1:]
        return shown

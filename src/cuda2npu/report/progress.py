"""A line on the terminal that says how far a run is."""

from __future__ import annotations

import time
from typing import TextIO


class Progress:
    """Counts files on stderr, if that is a terminal and the run takes long enough."""

    _INTERVAL = 0.1

    def __init__(self, total: int, stream: TextIO | None) -> None:
        self._total = total
        self._stream = stream if stream is not None and stream.isatty() else None
        self._next = time.monotonic() + 5 * self._INTERVAL
        self._shown = False

    def begin(self) -> None:
        """Show at once that a run is at work, when its first file is a long one."""
        self._next = 0.0
        self.tell(0)

    def tell(self, done: int) -> None:
        if self._stream is not None and time.monotonic() >= self._next:
            self._stream.write(f"\r{done} of {self._total} files")
            self._stream.flush()
            self._next = time.monotonic() + self._INTERVAL
            self._shown = True

    def clear(self) -> None:
        """Take the line away, before anything else is printed."""
        if self._stream is not None and self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._shown = False

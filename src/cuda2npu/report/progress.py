"""A line on the terminal that says how far a run is."""

from __future__ import annotations

import time
from typing import TextIO


class Progress:
    """Counts files on stderr, if that is a terminal and the run takes long enough."""

    _INTERVAL = 0.1

    def __init__(self, total: int, stream: TextIO) -> None:
        self._total = total
        self._stream = stream
        self._next = time.monotonic() + 5 * self._INTERVAL if stream.isatty() else float("inf")
        self._shown = False

    def tell(self, done: int) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._stream.write(f"\r{done} of {self._total} files")
            self._stream.flush()
            self._next = now + self._INTERVAL
            self._shown = True

    def clear(self) -> None:
        """Take the line away, before anything else is printed."""
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._shown = False

"""Where ``--report`` puts a page: seen to be writable before the work, written whole at its end."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

from cuda2npu import writing
from cuda2npu.model import UsageError
from cuda2npu.report.output_file import check_output


class PageFile:
    """The file of a page. Use it as a context: it cleans up."""

    def __init__(self, path: Path) -> None:
        """Raise UsageError when nothing can be written there."""
        self.path = path
        self._stack = ExitStack()
        check_output("--report", path, (".html", ".htm"))
        self.draft = Path(self.temporary())
        """What becomes the page when ``put`` is called."""

    def __enter__(self) -> PageFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def temporary(self) -> str:
        """A file beside the page, gone at the end."""
        try:
            return self._stack.enter_context(writing.temporary(self.path.parent))
        except OSError as error:
            raise self.failed(error) from None

    def write(self, text: str) -> None:
        """The whole page at once; raises UsageError."""
        try:
            self.draft.write_text(text, encoding="utf-8")
            self.put()
        except OSError as error:
            raise self.failed(error) from None

    def put(self) -> None:
        """Let the draft take the place of the page; raises OSError."""
        with self.draft.open("rb+") as page:
            os.fsync(page.fileno())
        writing.put_in_place(str(self.draft), self.path)

    def failed(self, error: OSError) -> UsageError:
        return UsageError(f"--report {self.path}: cannot be written: {error.strerror}")

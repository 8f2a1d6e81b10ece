"""``ast.parse``, undisturbed, whose failures are SourceErrors that say where and what to do."""

from __future__ import annotations

import ast
import gc
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from cuda2npu.model import SourceError

_PYTHON2 = re.compile(r"^\s*(print\s+[^(\s=]|print$|exec\s+['\"\w]|except\s+[\w.]+\s*,)|`", re.M)
_CONFLICT = re.compile(r"^(<{7}|={7}|>{7})( |$)", re.M)
_LINE_END = re.compile(r"\r\n?|\n")
_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n|$)")
_TOO_DEEP = "nested too deep to be read. Split the statement up. Left as it was."


@contextmanager
def undisturbed() -> Iterator[None]:
    """No warnings about the user's escapes; no collector runs while trees are built.

    Trees hold no cycles, so that nothing piles up; the collector alone doubles ``ast.parse``.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if enabled:
            gc.enable()


def parse(text: str) -> ast.Module:
    """The tree of a user's source."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise SourceError(_explain(text, error)) from None
    except (RecursionError, MemoryError):
        raise SourceError(f"line {_deep_line(text)}: {_TOO_DEEP}") from None


def verify(text: str) -> ast.Module:
    """The tree of a text that the engine wrote."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise SourceError(
            f"internal error: the rewritten text would not parse ({error}). Left as it was; "
            "please report this file."
        ) from None


def too_deep(line: int) -> SourceError:
    return SourceError(f"line {line}: {_TOO_DEEP}")


def _explain(text: str, error: SyntaxError | ValueError) -> str:
    if "\0" in text:  # Python versions differ in what they raise, and where
        number = len(_LINE_END.findall(text[: text.index("\0")])) + 1
        return f"line {number}: a null byte. Remove it and run again. Left as it was."
    number = getattr(error, "lineno", None) or 1
    message = getattr(error, "msg", None) or str(error)
    line = "".join(_LINE.findall(text)[number - 1 : number])
    if _CONFLICT.search(text):
        advice = "The file holds merge conflict markers: resolve them and run again."
    elif _PYTHON2.search(line) or message.startswith("Missing parentheses in call"):
        advice = "This is Python 2: convert it to Python 3 first."
    elif re.search(r"\basync\s*=", line):
        advice = "async is a keyword since Python 3.7: write non_blocking=, and run again."
    elif "too many nested" in message:
        advice = "Split the statement up and run again."
    else:
        advice = "Mend the syntax and run again."
    stop = "" if message.endswith((".", "?", "!")) else "."
    return f"line {number}: {message}{stop} {advice} Left as it was."


def _deep_line(text: str) -> int:
    """The first line with which the parser gives up, found by halving the text."""
    lines = _LINE.findall(text)
    low, high = 0, len(lines)
    while high - low > 1:
        middle = (low + high) // 2
        if _is_too_deep("".join(lines[:middle])):
            high = middle
        else:
            low = middle
    return high


def _is_too_deep(text: str) -> bool:
    try:
        ast.parse(text)
    except (RecursionError, MemoryError):
        return True
    except (SyntaxError, ValueError):
        return False
    return False

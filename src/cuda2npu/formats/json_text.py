"""JSON texts with the places of their values, so that strings are edited where they stand."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from cuda2npu.model import SourceError

_SPACE = re.compile(r"[ \t\n\r]*")
_CHARACTER = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # one character in two halves
    r"|\\u[0-9a-fA-F]{4}|\\.|[^\\]",
    re.S,
)
_LINE = re.compile(r"(?:(?!\\n|\\u000[aA])(?:\\.|[^\\]))*(?:\\n|\\u000[aA])?", re.S)
_DECODER = json.JSONDecoder()


class Value(NamedTuple):
    """A decoded value and its place ``text[start:end]``."""

    value: Any
    start: int
    end: int


def parse(text: str) -> Value:
    """The value that a whole text is. Raises SourceError when it is none."""
    try:
        value = _value(text, 0)
        if _skip(text, value.end) != len(text):
            raise json.JSONDecodeError("Extra data", text, value.end)
    except json.JSONDecodeError as error:
        raise SourceError(
            f"line {error.lineno}: is no JSON ({error.msg}). Mend it and run again. Left as it was."
        ) from None
    except RecursionError:
        raise SourceError("nested too deep to be read. Left as it was.") from None
    return value


def members(text: str, value: Value) -> dict[str, Value]:
    """The members of an object."""
    found: dict[str, Value] = {}
    position = _skip(text, value.start + 1)
    while text[position] != "}":
        key = _value(text, position)
        member = _value(text, _skip(text, key.end) + len(":"))
        found[key.value] = member
        position = _next(text, member.end)
    return found


def elements(text: str, value: Value) -> list[Value]:
    """The elements of an array."""
    found: list[Value] = []
    position = _skip(text, value.start + 1)
    while text[position] != "]":
        found.append(_value(text, position))
        position = _next(text, found[-1].end)
    return found


def _value(text: str, start: int) -> Value:
    start = _skip(text, start)
    value, end = _DECODER.raw_decode(text, start)
    return Value(value, start, end)


def _next(text: str, end: int) -> int:
    """Where the next element begins, or the bracket that closes."""
    position = _skip(text, end)
    return _skip(text, position + 1) if text[position] == "," else position


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    assert match is not None
    return match.end()


def offsets(text: str, string: Value) -> list[int]:
    """Where each character of a string stands in the text, and where the last one ends."""
    body = text[string.start + 1 : string.end - 1]
    places = [match.start() + string.start + 1 for match in _CHARACTER.finditer(body)]
    return [*places, string.end - 1]


def escaped(text: str, *, ascii_only: bool) -> str:
    """A text as it stands between the quotes of a JSON string."""
    return json.dumps(text, ensure_ascii=ascii_only)[1:-1]


def lines(body: str) -> list[str]:
    """What stands between the quotes of a JSON string, cut behind each escaped line feed."""
    return [line for line in _LINE.findall(body) if line]

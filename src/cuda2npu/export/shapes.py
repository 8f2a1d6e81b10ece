"""What is written on the command line about inputs, their dynamic axes and sizes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from cuda2npu.model import UsageError

_AXIS = re.compile(r"(\w+):(\d+)(?:=(\w+))?")
_SYMBOL = re.compile(r"[A-Za-z_]\w*")
_SIZES = re.compile(r"([A-Za-z_]\w*)=(?:(\d+)~(\d+)|(\d+(?:,\d+)*))")


class Axis(NamedTuple):
    """An axis whose size is not fixed."""

    input: str
    """The input's name or number; empty for every input."""
    axis: int
    symbol: str


class Sizes(NamedTuple):
    """The sizes that a symbol takes when the model runs: some, or a range."""

    values: tuple[int, ...] = ()
    lowest: int = 0
    highest: int = 0

    @property
    def ends(self) -> tuple[int, ...]:
        """All that were listed, or both ends of the range."""
        return self.values or (self.lowest, self.highest)


def axis(text: str) -> Axis:
    """``x:0=batch``; ``batch`` alone is the first axis of every input."""
    if _SYMBOL.fullmatch(text):
        return Axis("", 0, text)
    found = _AXIS.fullmatch(text.strip())
    if found is None:
        raise UsageError(
            f"--dynamic {text}: is no axis; write x:0=batch for the first axis of the input x, or "
            "batch for the first axis of every input"
        )
    return Axis(found[1], int(found[2]), found[3] or f"{found[1]}_{found[2]}")


def sizes(texts: Iterable[str]) -> dict[str, Sizes]:
    """``batch=1,2,4,8`` or ``batch=1~16``, by symbol."""
    found: dict[str, Sizes] = {}
    for text in texts:
        match = _SIZES.fullmatch(text.strip())
        if match is None:
            raise UsageError(f"--sizes {text}: write batch=1,2,4,8 or batch=1~16")
        if match[4]:
            given = Sizes(tuple(sorted({int(size) for size in match[4].split(",")})))
        else:
            given = Sizes((), int(match[2]), int(match[3]))
        if 0 in given.values or (not given.values and not 0 < given.lowest < given.highest):
            raise UsageError(f"--sizes {text}: sizes begin at 1, and a range ends above its start")
        if match[1] in found:
            raise UsageError(
                f"--sizes {text}: {match[1]} is given twice; write all of its sizes once"
            )
        found[match[1]] = given
    return found

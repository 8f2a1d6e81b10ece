"""What is written on the command line about tensors that are drawn at random."""

from __future__ import annotations

import re
from typing import NamedTuple

from cuda2npu.model import UsageError

DTYPES = "float32 float16 bfloat16 float64 int64 int32 int16 int8 uint8 bool".split()
_INPUT = re.compile(r"(?:(\w+)=)?(\d+(?:x\d+)*|scalar)(?::(\w+))?(?::(\d+))?")


class Drawn(NamedTuple):
    """An example input that is drawn at random."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    below: int
    """Whole numbers are drawn from 0 to below this."""


def drawn(text: str) -> Drawn:
    """``1x3x224x224:float32``, ``ids=1x16:int64:30522`` or ``scalar:float32``."""
    found = _INPUT.fullmatch(text.strip())
    if found is None:
        raise UsageError(
            f"--inputs {text}: is no input; write 1x3x224x224:float32, or ids=1x16:int64:30522 for "
            "whole numbers below 30522"
        )
    dtype = found[3] or "float32"
    if dtype not in DTYPES:
        raise UsageError(f"--inputs {text}: {dtype} is none of {', '.join(DTYPES)}")
    sizes = () if found[2] == "scalar" else tuple(int(size) for size in found[2].split("x"))
    if 0 in sizes:
        raise UsageError(f"--inputs {text}: a size is 0")
    return Drawn(found[1] or "", sizes, dtype, int(found[4] or 2))

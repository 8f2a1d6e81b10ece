"""What is written on the command line about tensors that are drawn at random."""

from __future__ import annotations

import re
from typing import NamedTuple

from cuda2npu.model import UsageError

_ENDS = {"int64": 2**63, "int32": 2**31, "int16": 2**15, "int8": 2**7, "uint8": 2**8, "bool": 2}
"""By the type of whole numbers: the first that it does not hold."""
DTYPES = (*"float32 float16 bfloat16 float64".split(), *_ENDS)
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
    _check_below(text, dtype, found[4])
    sizes = () if found[2] == "scalar" else tuple(int(size) for size in found[2].split("x"))
    if 0 in sizes:
        raise UsageError(f"--inputs {text}: a size is 0")
    return Drawn(found[1] or "", sizes, dtype, int(found[4] or 2))


def _check_below(text: str, dtype: str, below: str | None) -> None:
    if below is None:
        return
    if dtype not in _ENDS:
        raise UsageError(f"--inputs {text}: :{below} is the end of whole numbers, which {dtype} "
                         "has none of")  # fmt: skip
    # torch.randint takes no end that int64 does not hold.
    highest = min(_ENDS[dtype], 2**63 - 1)
    if not 1 <= int(below) <= highest:
        raise UsageError(f"--inputs {text}: whole numbers of {dtype} end at 1 to {highest}")

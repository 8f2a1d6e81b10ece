"""What the parent asks of the process that measures."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from cuda2npu.running import RunError
from cuda2npu.running.inputs import Drawn, drawn
from cuda2npu.running.source import source_file

DEVICES = ("npu", "cuda", "cpu")
"""The best one first."""

STEP, CALL, FUNCTION = "optimizer step", "forward call", "function call"
"""What one iteration is."""


class BenchError(RunError):
    """Something that keeps a benchmark from being done. The text says what to do."""


class Target(NamedTuple):
    """What is measured: a script, or a function of a file or of a module."""

    place: str
    """The path of a file, or the dotted name of a module."""
    function: str = ""

    @property
    def is_script(self) -> bool:
        return not self.function

    @property
    def is_file(self) -> bool:
        return self.is_script or self.place.endswith(".py")

    @property
    def name(self) -> str:
        """The same on each machine, wherever the file lies there."""
        place = Path(self.place).name if self.is_file else self.place
        return f"{place}:{self.function}" if self.function else place


@dataclass(frozen=True, slots=True)
class Spec:
    """One run in a process of its own."""

    target: Target
    arguments: tuple[str, ...]
    folder: str
    """Where the child leaves its record."""
    device: str
    warmup: int
    iterations: int
    inputs: tuple[Drawn, ...] = ()
    dry: bool = False
    """Whether no time is to be told."""

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @staticmethod
    def read(path: Path) -> Spec:
        data = json.loads(path.read_text(encoding="utf-8"))
        data["target"] = Target(*data["target"])
        data["arguments"] = tuple(data["arguments"])
        data["inputs"] = tuple(
            Drawn(name, tuple(shape), dtype, below) for name, shape, dtype, below in data["inputs"]
        )
        return Spec(**data)


def parse_target(text: str) -> Target:
    """``train.py``, ``file.py:function`` or ``package.module:function``; raises RunError."""
    place, colon, function = text.rpartition(":")
    if not colon or Path(text).exists():
        return Target(str(source_file(Path(text))))
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", function):
        raise BenchError(f"{text}: {function!r} after the colon is no name of a function")
    if place.endswith(".py") or Path(place).is_file():
        path = source_file(Path(place))
        if path.suffix != ".py":
            raise BenchError(f"{place}: a file whose function is measured ends in .py")
        return Target(str(path), function)
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", place):
        raise BenchError(
            f"{text}: {place!r} before the colon is no file and no name of a module; write "
            "path/to/file.py:function or package.module:function"
        )
    return Target(place, function)


def parse_inputs(text: str) -> tuple[Drawn, ...]:
    """``1x3x224x224:float16,ids=8x128:int64:30522``, parted by commas; raises UsageError."""
    return tuple(drawn(part) for part in text.split(",")) if text else ()

"""What a benchmark found, as it is saved and read again."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from cuda2npu.benchmark.spec import CALL, FUNCTION, STEP, BenchError
from cuda2npu.benchmark.statistics import Summary, few, summary, unsteady

FORMAT = "cuda2npu-bench"
VERSION = 1

_MEMORY = {
    "allocated": "peak memory of tensors",
    "reserved": "peak memory reserved",
    "resident": "peak resident memory",
}


@dataclass(frozen=True, slots=True)
class Result:
    """Measured figures, never those of a simulated device."""

    name: str
    """The script or function."""
    sha256: str
    """Of its file; empty where it is built into Python."""
    arguments: list[str]
    device: str
    """``npu``, ``cuda`` or ``cpu``."""
    warmup: int
    iterations: int
    """As many as were asked for."""
    batch: int | None
    """Samples in an iteration, where that was said."""
    inputs: str
    unit: str
    """What one iteration is."""
    first_run_ms: float
    latencies_ms: list[float]
    wall_s: float
    """Of all measured iterations together, and of what the script does between them."""
    memory: dict[str, int]
    shapes: list[dict[str, Any]]
    varied: bool
    """Whether a module got other shapes or types in some iterations than in others."""
    dtypes: list[str]
    environment: dict[str, str]
    cuda2npu: str
    made: str
    simulated: bool = field(default=False)

    @property
    def summary(self) -> Summary:
        return summary(self.latencies_ms)

    @property
    def per_second(self) -> float:
        """Iterations by the wall clock."""
        return len(self.latencies_ms) / self.wall_s

    @property
    def samples_per_second(self) -> float | None:
        return None if self.batch is None else self.per_second * self.batch

    @property
    def warnings(self) -> list[str]:
        missing = short(len(self.latencies_ms), self.iterations)
        inputs = varying(self.shapes, self.varied, self.unit)
        return [*missing, *inputs, *unsteady(self.latencies_ms)]

    @property
    def notes(self) -> list[str]:
        """What is worth knowing, and casts no doubt on the figures."""
        return [*uneven(self.shapes, self.varied, self.unit), *few(self.latencies_ms)]

    def as_data(self) -> dict[str, Any]:
        """All of it, with what follows from it for whoever reads the file."""
        derived = {
            "latency_ms": self.summary._asdict(),
            "iterations_per_s": self.per_second,
            "samples_per_s": self.samples_per_second,
            "warnings": self.warnings,
            "notes": self.notes,
        }
        return {"format": FORMAT, "version": VERSION, **asdict(self), **derived}


def short(measured: int, asked: int) -> list[str]:
    """A word on iterations that are missing."""
    if measured == asked:
        return []
    return [f"only {measured} of {asked} iterations: then the script ended, or its --timeout"]


def varying(shapes: list[dict[str, Any]], varied: bool, unit: str) -> list[str]:
    """A word on modules whose inputs had other shapes or types in some iterations."""
    if not varied:
        return []
    return [
        f"the inputs vary from one {unit} to the other ({_kinds(shapes)}): an NPU compiles its "
        "operators anew for each new shape, and such figures say little; fix the shapes (pad, "
        "drop_last=True)"
    ]


def uneven(shapes: list[dict[str, Any]], varied: bool, unit: str) -> list[str]:
    """A word on iterations that differ only in which modules they call and how often, as where a
    loop stops to validate: nothing is compiled anew for that."""
    if varied or len(shapes) < 2:
        return []
    return [
        f"the calls vary from one {unit} to the other ({_kinds(shapes)}), the shapes that a module "
        "gets do not; the latencies of these kinds are told together"
    ]


def _kinds(shapes: list[dict[str, Any]]) -> str:
    told = "; ".join(
        f"{' and '.join(each['calls']) or 'no module called'} in {each['iterations']}"
        for each in shapes[:3]
    )
    return f"{len(shapes)} kinds: {told}{'; …' if len(shapes) > 3 else ''}"


def memory_name(kind: str) -> str:
    return _MEMORY.get(kind, kind)


def read_result(path: Path) -> Result:
    """A result that was saved; raises BenchError for anything else."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BenchError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise BenchError(f"{path}: cannot be read: {error}") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise BenchError(f"{path}: is no result of cuda2npu bench; --output writes one")
    if data.get("version") != VERSION:
        raise BenchError(
            f"{path}: has version {data.get('version')!r}, this cuda2npu reads {VERSION}; "
            "measure again"
        )
    for name, fits in _CHECKS.items():
        if not fits(data.get(name)):
            raise BenchError(f"{path}: is damaged: {name} is missing or wrong; measure again")
    return Result(**{each.name: data[each.name] for each in fields(Result)})


def _is_number(value: object) -> bool:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value >= 0
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and _is_number(value)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_shape(value: object) -> bool:
    return (
        isinstance(value, dict)
        and _is_texts(value.get("calls"))
        and _is_count(value.get("iterations"))
    )


_CHECKS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("name", "sha256", "inputs", "cuda2npu", "made"), _is_text),
    **dict.fromkeys(("arguments", "dtypes"), _is_texts),
    "device": lambda value: value in ("npu", "cuda", "cpu"),
    "warmup": _is_count,
    "iterations": _is_count,
    "batch": lambda value: value is None or (_is_count(value) and value > 0),
    "unit": lambda value: value in (STEP, CALL, FUNCTION),
    "first_run_ms": _is_number,
    "latencies_ms": lambda v: isinstance(v, list) and bool(v) and all(map(_is_number, v)),
    "wall_s": lambda value: _is_number(value) and value > 0,
    "memory": lambda v: isinstance(v, dict) and all(map(_is_count, v.values())),
    "shapes": lambda value: isinstance(value, list) and all(map(_is_shape, value)),
    "environment": lambda v: isinstance(v, dict) and _is_texts([*v, *v.values()]),
    "varied": lambda value: isinstance(value, bool),
    "simulated": lambda value: value is False,
}
"""What each part of a saved result must be; a latency may be 0, a time of all may not."""

"""What the parent asks of the process that exports, and what that process answers."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SPEC = "spec.json"
RESULT = "result.json"
OUTPUT = "output.txt"

DYNAMO, TRACE = "dynamo", "trace"
"""The exporters of torch: by torch.export, and by running the module once (TorchScript)."""
EXPORTERS = (DYNAMO, TRACE)
DEVICES = ("cpu", "npu")

OK, DIFFERS = "ok", "differs"
CHANGED = "changed"
"""The finding that a file is no longer the one that was looked at."""


@dataclass(frozen=True, slots=True)
class Spec:
    """One export, or one script that exports by itself."""

    target: str
    """``module:callable``, ``file.py:callable`` or the path of a script."""
    arguments: tuple[str, ...] = ()
    output: str = ""
    """The file of a callable's model; a script names its own."""
    staging: str = ""
    """A folder beside it, in which the model is written before it takes its place."""
    device: str = "cpu"
    without_npu: bool = False
    """Whether torch_npu cannot be loaded here: libraries that look for it find none."""
    inputs: tuple[str, ...] = ()
    dynamic: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()
    opset: int = 18
    exporter: str = DYNAMO
    seed: int = 0
    cosine: float = 0.9999
    max_abs: float = 1e-3

    @property
    def is_script(self) -> bool:
        return ":" not in self.target

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @staticmethod
    def read(path: Path) -> Spec:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for name in ("arguments", "inputs", "dynamic", "sizes"):
            data[name] = tuple(data[name])
        return Spec(**data)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in the file, or in the call that made it, that keeps it from an NPU."""

    name: str
    message: str
    advice: str


@dataclass(frozen=True, slots=True)
class Input:
    """An input of the model's graph."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    """A size, or the symbol of one that is not fixed."""
    example: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One output in one case, against the module's."""

    case: str
    output: str
    status: str
    max_abs: float | None = None
    cosine: float | None = None
    relative: float | None = None
    """Length of the error to that of the module's output."""
    reasons: tuple[str, ...] = ()


@dataclass(slots=True)
class Exported:
    """A model that was exported, and what was seen of it."""

    file: str
    """Empty when it went to no file."""
    exporter: str
    place: str = ""
    """File and line of the call in a script."""
    opset: int = 0
    inputs: list[Input] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def differs(self) -> bool:
        return any(row.status == DIFFERS for row in self.rows)

    @property
    def changed(self) -> bool:
        return any(each.name == CHANGED for each in self.findings)

    @property
    def symbols(self) -> list[str]:
        """The names of the sizes that are not fixed, in the order of their places."""
        sizes = (size for item in self.inputs for size in item.shape)
        return list(dict.fromkeys(size for size in sizes if isinstance(size, str)))


@dataclass(slots=True)
class Result:
    """What the process that exports leaves behind."""

    exports: list[Exported] = field(default_factory=list)
    error: str = ""
    """What kept it from its end."""
    traceback: str = ""
    """The lines of the user's own code that led there."""
    environment: dict[str, str] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @staticmethod
    def read(path: Path) -> Result:
        data = json.loads(path.read_text(encoding="utf-8"))
        return Result(**{**data, "exports": [_exported(each) for each in data["exports"]]})


def _exported(data: dict[str, Any]) -> Exported:
    inputs = [
        Input(**{**each, "shape": tuple(each["shape"]), "example": tuple(each["example"])})
        for each in data["inputs"]
    ]
    rows = [Row(**{**each, "reasons": tuple(each["reasons"])}) for each in data["rows"]]
    findings = [Finding(**each) for each in data["findings"]]
    return Exported(**{**data, "inputs": inputs, "rows": rows, "findings": findings})

"""What the parent asks of a child process, and where the child leaves its answers."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from cuda2npu.running import RunError

TENSORS = "tensors.safetensors"
SIMULATOR_NOTES = "simulator.json"

REFERENCE = "reference"
NPU = "npu"

SIMULATED = (
    "simulated NPU: names, placement, dtypes and control flow are checked; kernel accuracy and "
    "speed are not"
)


class SmokeError(RunError):
    """Something that keeps a smoke run from being done. The text says what to do."""


@dataclass(frozen=True, slots=True)
class Spec:
    """One run of one script in a process of its own."""

    script: str
    """The file that runs as ``__main__``."""
    arguments: tuple[str, ...]
    folder: str
    """Where the child leaves its record; nothing else of ours is written."""
    device: str
    """``cpu``, ``cuda`` or ``npu``: where the tensors of the script are meant to be."""
    cuda_on_cpu: bool = False
    """Whether CUDA calls are led to the CPU."""
    steps: int = 0
    """Optimizer steps after which the run ends; 0 is when the script ends."""
    seed: int = 0
    dropout: bool = True
    devices: int = 1
    """How many devices the script sees, where they are not real."""
    module: str = ""
    """The name that the script is run by as a module, as ``python -m`` does."""
    root: str = ""
    """The folder of the project."""
    copy: str = ""
    """The folder in which files of the project have rewritten copies."""

    kept: str = ""
    """The folder in which is kept what the run changes below ``folders``."""
    folders: tuple[str, ...] = ()
    other_run: tuple[float, float] = (0.0, 0.0)
    """When another run of the script began and ended: files of that time are what it wrote."""

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @staticmethod
    def read(path: Path) -> Spec:
        data = json.loads(path.read_text(encoding="utf-8"))
        for name in ("arguments", "folders", "other_run"):
            data[name] = tuple(data[name])
        return Spec(**data)


@dataclass(frozen=True, slots=True)
class Tolerance:
    """From when on two tensors count as different."""

    cosine: float = 0.99
    max_abs: float = 0.01
    mean_abs: float = 1e-4
    """A layer over this is pointed out, but does not fail."""

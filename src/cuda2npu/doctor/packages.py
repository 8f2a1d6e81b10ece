"""What is installed for the interpreter that is looked at; no module of it is imported."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cuda2npu.doctor.machine import Machine
from cuda2npu.doctor.table import numbers
from cuda2npu.model import UsageError

MODULES = ("torch", "torch_npu", "numpy")
OF_CANN = (
    "attrs cython numpy decorator sympy cffi pyyaml pathlib2 psutil protobuf scipy requests absl-py"
).split()
"""What CANN's operator compiler imports: the installation guides of 8.5 and 9.0, "Dependencies"."""
_PINNED = {"protobuf": "'protobuf==3.20.*'"}
"""What those guides ask for in one version."""
_SECONDS = 60.0


@dataclass(frozen=True)
class Packages:
    """The packages of one interpreter."""

    python: str
    folders: Mapping[str, Path]
    """Where the modules lie that were found."""
    versions: Mapping[str, str]
    """By the name of the distribution; a folder that is merely on the path has none."""
    requires: tuple[str, ...]
    """The requirements in torch_npu's metadata, such as ``torch==2.13.0.*``."""
    broken: Mapping[str, str] = field(default_factory=dict)
    """Why the metadata of a distribution tells nothing."""
    strangers: frozenset[str] = frozenset()
    """Modules that are found where no compiled library lies: something else of the same name."""

    @property
    def required(self) -> tuple[str, ...]:
        """The names of torch_npu's requirements beside torch, without those under a condition."""
        names = (name_of(one) for one in self.requires if ";" not in one)
        return tuple(name for name in names if name != "torch")


def name_of(requirement: str) -> str:
    return re.split(r"[\s(=<>!~;\[]", requirement.strip())[0].lower()


def pip_install(names: Iterable[str]) -> str:
    """The command for what CANN imports."""
    return f"pip install {' '.join(_PINNED.get(name, name) for name in names)}"


def look_up(machine: Machine) -> Packages:
    """Ask the interpreter; raises UsageError if it is none."""
    found = _ask(machine, OF_CANN)
    requires = (found["distributions"].get("torch_npu") or {}).get("requires", [])
    missing = {name_of(one) for one in requires} - set(OF_CANN)
    if missing:
        found["distributions"].update(_ask(machine, sorted(missing))["distributions"])
    distributions = {name: one for name, one in found["distributions"].items() if one}
    broken = {name: why for name, one in distributions.items() if (why := _fault(one))}
    places = {name: Path(one["place"]) for name, one in found["modules"].items() if one["place"]}
    return Packages(
        found["python"],
        places,
        {name: one["version"] for name, one in distributions.items() if name not in broken},
        tuple(requires),
        broken,
        frozenset(name for name in places if not found["modules"][name]["compiled"]),
    )


def _fault(distribution: Mapping[str, Any]) -> str:
    """Why its metadata tells no version; empty if it does."""
    where, version = f"its metadata in {distribution['place']}", distribution["version"]
    if distribution["error"]:
        return f"{where} cannot be read: {distribution['error']}"
    return "" if numbers(version) else f"{where} names no version, but {version!r}"


def _ask(machine: Machine, names: list[str]) -> dict[str, Any]:
    script = Path(__file__).with_name("probe_child.py").read_text(encoding="utf-8")
    asked = [" ".join(MODULES), " ".join([*MODULES, *names])]
    try:
        ran = machine.run([machine.python, "-c", script, *asked], _SECONDS)
    except OSError as error:
        raise UsageError(f"--python {machine.python}: {error.strerror}") from None
    try:
        found: dict[str, Any] = json.loads(ran.output.splitlines()[-1])
        found["distributions"], found["modules"], found["python"]
    except (ValueError, IndexError, KeyError, TypeError):
        if ran.timed_out:
            raise UsageError(
                f"--python {machine.python}: gave no answer in {_SECONDS:.0f} s; "
                "run it by hand to see what it waits for"
            ) from None
        last = ran.output.strip().splitlines()[-1:] or [f"ended with {ran.code}"]
        raise UsageError(
            f"--python {machine.python}: is no Python 3.8 or newer that runs ({last[0]})"
        ) from None
    return found

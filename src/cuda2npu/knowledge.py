"""What the other files of a project say about one: a value that the engine hands to the rules.

It is collected before the first file is converted (see :mod:`cuda2npu.gathering`) and then the
same for every file but for ``here``. Standard library only, frozen, and cheap to pickle: it
travels to the worker processes with each file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

DEVICE: Final = "device"
"""A value that torch takes for a device or a device type."""
BACKEND: Final = "backend"
"""A value that torch.distributed takes for the backend of a process group."""
FOREIGN: Final = "foreign"
"""A value that something other than torch takes, too: a foreign package or a command."""

SINKS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        "to/0 to/device= device/0 device/type= cuda/0 autocast/0 set_default_device/0 "
        "init_device_mesh/0 init_device_mesh/device_type= DeviceMesh/0 DeviceMesh/device_type= "
        "load/1 load/map_location= Generator/device= Generator/0".split(),
        DEVICE,
    ),
    **dict.fromkeys(
        "init_process_group/0 init_process_group/backend= new_group/2 new_group/backend= "
        "init_distributed/0 init_distributed/dist_backend= Backend/0".split(),
        BACKEND,
    ),
}
"""Places, callee and position or keyword, that take a device or a backend of torch."""


@dataclass(frozen=True, slots=True)
class OwnClass:
    """A class of the project that defines a method which torch's tensors and modules have."""

    name: str
    path: str
    """Its file as the user is told of it."""
    methods: frozenset[str]
    """Every method and property that it defines itself."""
    own: frozenset[str]
    """Those of torch's names that it answers in a way of its own, and that lack an NPU twin."""
    is_module: bool
    """Whether it derives from ``torch.nn.Module``: then no tensor is one of them."""
    names: frozenset[str]
    """What it and its subclasses are called."""
    users: frozenset[str]
    """The real paths of the files that define, import or subclass it."""
    holders: frozenset[str]
    """Variables and attributes that hold one of them somewhere in the project."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Who imports the files that speak of CUDA. Paths are real ones."""

    leading: Mapping[str, str] = field(default_factory=dict)
    """By file: one of them that it imports, or that a package has a name from for it, as told
    to the user."""
    imported: frozenset[str] = frozenset()
    """Those of them, and of the files that lead to one, that another file imports."""
    ported: Mapping[str, str] = field(default_factory=dict)
    """By file: one that speaks of NPUs by itself and imports it, as told to the user."""


@dataclass(frozen=True, slots=True)
class Knowledge:
    """The facts of a project that rules may ask for. Empty by default."""

    here: str = ""
    """The real path of the file that asks."""
    classes: tuple[OwnClass, ...] = ()
    constants: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By the file that reads: a name as it is written there, with the constant that it means."""
    sinks: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """What takes the value of a constant, or of an attribute, option or key of this name."""
    readers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The readers that are not torch, as told to the user: ``cupy in export.py:12``."""
    calls: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By module: the names of torch.cuda that it still calls once it is converted."""
    programs: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By file: the options that it, or a module it imports, parses and something reads.

    A file without any is there, too, where it is called like one that has some.
    """
    files: frozenset[str] = frozenset()
    """The configuration files that the code names in a string."""
    twins: Mapping[str, str] = field(default_factory=dict)
    """By the real path of a file for CUDA: the one that does the same for NPUs, as it is shown."""
    reach: Reach | None = None
    """None where nobody asked for it: only the shim goes by imports."""

    def seen_from(self, path: str) -> Knowledge:
        """The same facts for the file with this real path."""
        return replace(self, here=path.replace("\\", "/"))

    @property
    def twin(self) -> str | None:
        """The file for NPUs beside this one: then this one is for CUDA, and stays."""
        return self.twins.get(self.here)

    def feeds(self, key: str) -> frozenset[str]:
        """What the project's code does with the value of an option or configuration key.

        Any of ``DEVICE``, ``BACKEND`` and ``FOREIGN``; empty when no reader was found, or when
        the name means other things elsewhere. ``key`` may be dotted (``train.device``): the
        code reads the last part, as ``cfg.train.device`` or ``cfg["train"]["device"]``.
        """
        return self.sinks.get(key.rpartition(".")[2].replace("-", "_"), frozenset())

    def takes(self, program: str, option: str, kind: str) -> bool:
        """Whether a program of the project hands the value of this option to torch as a ``kind``.

        ``program`` is the path of a script without ``.py``, as a command names it. Every file of
        the project that it can mean has to take the option.
        """
        name, tail = option.lstrip("-").replace("-", "_"), "/" + program.lstrip("/")
        meant = [
            options
            for path, options in self.programs.items()
            if ("/" + path).removesuffix(".py").removesuffix("/__main__").endswith(tail)
        ]
        return bool(meant) and self.feeds(name) == {kind} and all(name in each for each in meant)

    def names_file(self, path: str) -> bool:
        """Whether the code names this configuration file."""
        whole = "/" + path.replace("\\", "/")
        return any(whole.endswith("/" + named) for named in self.files)

    def constant(self, name: str) -> str | None:
        """The constant of the project that a name means in this file, as a key of ``sinks``."""
        return self.constants.get(self.here, {}).get(name)

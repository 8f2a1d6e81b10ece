"""Harmless equivalents of ``torch.cuda`` and its relatives for a run on the CPU. Child side."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from cuda2npu.simulator import generators

Meant = Callable[[Any], bool]

MEMORY = 64 * 2**30
NAME = "CPU in place of CUDA"

_NOTHING = (
    "synchronize empty_cache init _lazy_init "
    "reset_peak_memory_stats reset_max_memory_allocated reset_max_memory_cached ipc_collect "
    "reset_accumulated_memory_stats set_per_process_memory_fraction set_sync_debug_mode "
    "set_stream _sleep"
).split()
_ZERO = (
    "memory_allocated max_memory_allocated memory_reserved max_memory_reserved memory_cached "
    "max_memory_cached utilization"
).split()
_TYPES = "Float Double Half BFloat16 Byte Char Short Int Long Bool".split()


class Stream:
    """A stream whose work is done at once."""

    device = torch.device("cpu")
    cuda_stream = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def query(self) -> bool:
        return True

    def _nothing(self, *_: Any, **__: Any) -> None:
        pass

    synchronize = wait_stream = wait_event = _nothing

    def record_event(self, event: Any = None) -> Any:
        event = event or Event()
        event.record()
        return event


class Event:
    """An event that knows when it was recorded."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._time = 0.0

    def record(self, *_: Any) -> None:
        self._time = time.perf_counter()

    def elapsed_time(self, end: Event) -> float:
        return (end._time - self._time) * 1000

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def wait(self, *_: Any) -> None:
        pass


def replace_names(meant_for_cuda: Meant, devices: int = 1) -> None:
    _replace_torch_cuda(devices)
    _replace_mixed_precision()
    _replace_loading(meant_for_cuda)
    _replace_generator(meant_for_cuda)
    _replace_module_to()


def _set(owner: Any, **values: Any) -> None:
    for name, value in values.items():
        setattr(owner, name, value)


def _replace_torch_cuda(devices: int) -> None:
    cuda = torch.cuda
    for name in _NOTHING:
        setattr(cuda, name, lambda *_, **__: None)
    for name in _ZERO:
        setattr(cuda, name, lambda *_, **__: 0)
    for name in _TYPES:
        setattr(cuda, f"{name}Tensor", getattr(torch, f"{name}Tensor"))
    properties = SimpleNamespace(
        name=NAME, total_memory=MEMORY, major=8, minor=0, multi_processor_count=1
    )
    _set(
        cuda,
        is_available=lambda: True,
        is_initialized=lambda: True,
        is_bf16_supported=lambda *_, **__: True,
        is_current_stream_capturing=lambda: False,
        device_count=lambda: devices,
        get_device_name=lambda *_: NAME,
        get_device_capability=lambda *_: (8, 0),
        get_device_properties=lambda *_: properties,
        get_arch_list=list,
        mem_get_info=lambda *_: (MEMORY, MEMORY),
        memory_stats=lambda *_: {},
        memory_summary=lambda *_, **__: "",
        default_generators=(torch.default_generator,) * devices,
        current_stream=Stream,
        default_stream=Stream,
        Stream=Stream,
        Event=Event,
        stream=lambda *_: contextlib.nullcontext(),
        device=lambda *_: contextlib.nullcontext(),
        device_of=lambda *_: contextlib.nullcontext(),
    )
    _replace_current_device()
    generators.lead(cuda)
    if hasattr(cuda, "nvtx"):
        _set(
            cuda.nvtx,
            range_push=lambda *_: 0,
            range_pop=lambda *_: 0,
            mark=lambda *_: None,
            range=lambda *_, **__: contextlib.nullcontext(),
        )


def _replace_current_device() -> None:
    current = 0

    def set_device(device: Any) -> None:
        nonlocal current
        device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
        current = device.index or 0

    _set(torch.cuda, set_device=set_device, current_device=lambda: current)


def _replace_mixed_precision() -> None:
    """CUDA's autocast and scaler become those of the CPU; the type stays CUDA's.

    What asks whether CUDA's autocast is on gets the true answer.
    """
    autocast: Any = torch.amp.autocast_mode.autocast
    scaler: Any = torch.amp.GradScaler
    start, make = autocast.__init__, scaler.__init__
    enter, leave = autocast.__enter__, autocast.__exit__

    def init_autocast(
        self: Any, device_type: str, dtype: Any = None, *rest: Any, **options: Any
    ) -> None:
        self.meant_for_cuda = device_type == "cuda"
        if self.meant_for_cuda:
            device_type, dtype = "cpu", dtype or torch.get_autocast_dtype("cuda")
        start(self, device_type, dtype, *rest, **options)

    def enter_autocast(self: Any) -> Any:
        if self.meant_for_cuda:
            self.cuda_before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
            _set_autocast(self._enabled, self.fast_dtype)
        return enter(self)

    def leave_autocast(self: Any, *error: Any) -> Any:
        if self.meant_for_cuda:
            _set_autocast(*self.cuda_before)
        return leave(self, *error)

    def init_scaler(self: Any, device: str = "cuda", *rest: Any, **options: Any) -> None:
        make(self, "cpu" if device == "cuda" else device, *rest, **options)

    _set(autocast, __init__=init_autocast, __enter__=enter_autocast, __exit__=leave_autocast)
    scaler.__init__ = init_scaler


def _set_autocast(enabled: bool, dtype: torch.dtype) -> None:
    torch.set_autocast_enabled("cuda", enabled)
    torch.set_autocast_dtype("cuda", dtype)


def _replace_loading(meant_for_cuda: Meant) -> None:
    root: Any = torch
    load, default_type = root.load, root.set_default_tensor_type

    def load_on_cpu(file: Any, map_location: Any = None, *rest: Any, **options: Any) -> Any:
        if map_location is None or isinstance(map_location, dict) or meant_for_cuda(map_location):
            map_location = "cpu"
        return load(file, map_location, *rest, **options)

    def set_default_tensor_type(kind: Any) -> None:
        if isinstance(kind, str):
            kind = kind.replace("torch.cuda.", "torch.")
        default_type(kind)

    root.load = load_on_cpu
    root.set_default_tensor_type = set_default_tensor_type
    for storage in (root.UntypedStorage, root.TypedStorage):
        storage.cuda = lambda self, *_, **__: self


def _replace_generator(meant_for_cuda: Meant) -> None:
    root: Any = torch
    real = torch.Generator

    class AnyGenerator(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, real)

        def __call__(cls, device: Any = "cpu") -> Any:
            return real("cpu" if meant_for_cuda(device) else device)

    class Generator(metaclass=AnyGenerator):
        pass

    root.Generator = Generator


def _replace_module_to() -> None:
    """A number alone is a CUDA device; without an accelerator torch refuses to read it."""
    module: Any = torch.nn.Module
    move = module.to

    def to(self: Any, *args: Any, **options: Any) -> Any:
        if args:
            args = (_numbered(args[0]), *args[1:])
        if "device" in options:
            options["device"] = _numbered(options["device"])
        return move(self, *args, **options)

    module.to = to


def _numbered(device: Any) -> Any:
    is_number = isinstance(device, int) and not isinstance(device, bool)
    return torch.device("cuda", device) if is_number else device

"""Harmless equivalents of ``torch.cuda`` and its relatives for a run on the CPU. Child side."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Callable
from itertools import product
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn import Module
from torch.optim import optimizer

from cuda2npu.running.tensors import flatten
from cuda2npu.simulator import generators

Meant = Callable[[Any], bool]
Mark = Callable[[Any], None]

MEMORY = 64 * 2**30
NAME = "CPU in place of CUDA"

_NOTHING = (
    "synchronize empty_cache init _lazy_init "
    "reset_peak_memory_stats reset_max_memory_allocated reset_max_memory_cached ipc_collect "
    "reset_accumulated_memory_stats set_per_process_memory_fraction set_sync_debug_mode "
    "set_stream _sleep reset_peak_host_memory_stats reset_accumulated_host_memory_stats"
).split()
_ZERO = (
    "memory_allocated max_memory_allocated memory_reserved max_memory_reserved memory_cached "
    "max_memory_cached utilization memory_usage device_memory_used temperature power_draw "
    "clock_rate get_sync_debug_mode"
).split()
_STATISTICS = (
    "allocation allocated_bytes segment reserved_bytes active active_bytes inactive_split "
    "inactive_split_bytes requested_bytes"
).split()
_TYPES = "Float Double Half BFloat16 Byte Char Short Int Long Bool".split()


class Stream:
    """A stream whose work is done at once."""

    device = torch.device("cuda", 0)
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


class CudaType(type):
    """``torch.cuda.FloatTensor`` and its like: made from the types of the CPU."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, torch.Tensor) and value.type() == type_name(cls)

    def __call__(cls, *args: Any, **options: Any) -> Any:
        return getattr(torch, cls.__name__)(*args, **options).cuda()


def type_name(kind: Any) -> Any:
    """A type of tensors on CUDA by its name, anything else as it is."""
    return f"torch.cuda.{kind.__name__}" if isinstance(kind, CudaType) else kind


def replace_names(meant_for_cuda: Meant, mark: Mark, devices: int = 1) -> None:
    _replace_torch_cuda(devices)
    _replace_mixed_precision()
    _replace_loading(meant_for_cuda, mark)
    _replace_generator(meant_for_cuda)
    _replace_module_to()
    _replace_capturable()
    tensor: Any = torch.Tensor
    tensor.record_stream = lambda *_, **__: None  # takes no other stream than torch's own


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
        setattr(cuda, f"{name}Tensor", CudaType(f"{name}Tensor", (), {}))
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
        memory_stats=lambda *_: _no_statistics(),
        host_memory_stats=lambda *_: _no_statistics(),
        memory_snapshot=lambda *_, **__: [],
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


def _no_statistics() -> Counter[str]:
    """Nothing is counted: zero by the names of the core statistics, and by any other."""
    pools, figures = ("all", "large_pool", "small_pool"), ("current", "peak", "allocated", "freed")
    return Counter({".".join(key): 0 for key in product(_STATISTICS, pools, figures)})


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


def _replace_loading(meant_for_cuda: Meant, mark: Mark) -> None:
    root: Any = torch
    load, default_type = root.load, root.set_default_tensor_type
    on_cuda = False

    def load_on_cpu(file: Any, map_location: Any = None, *rest: Any, **options: Any) -> Any:
        on_cuda = meant_for_cuda(map_location)
        if map_location is None or isinstance(map_location, dict) or on_cuda:
            map_location = "cpu"
        loaded = load(file, map_location, *rest, **options)
        if on_cuda:
            holds = [*loaded.state_dict().values()] if isinstance(loaded, Module) else loaded
            for _, tensor in flatten(holds):
                mark(tensor)
        return loaded

    def set_default_tensor_type(kind: Any) -> None:
        nonlocal on_cuda
        kind, before = type_name(kind), on_cuda
        on_cuda = isinstance(kind, str) and kind.startswith("torch.cuda.")
        default_type(kind.replace("torch.cuda.", "torch.") if on_cuda else kind)
        if on_cuda or before:
            root.set_default_device("cuda" if on_cuda else None)

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


def _replace_capturable() -> None:
    """An optimizer that is to be captured in a graph keeps its steps beside its parameters."""
    ask = optimizer._get_capturable_supported_devices

    def devices(*args: Any, **options: Any) -> list[str]:
        return [*ask(*args, **options), "cpu"]

    for name, module in [*sys.modules.items()]:
        if name.startswith("torch.optim.") and hasattr(module, ask.__name__):
            setattr(module, ask.__name__, devices)


def _numbered(device: Any) -> Any:
    is_number = isinstance(device, int) and not isinstance(device, bool)
    return torch.device("cuda", device) if is_number else device

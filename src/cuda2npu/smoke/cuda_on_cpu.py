"""Runs a CUDA script on the CPU, unchanged. Child side, in the reference run alone.

Every tensor function passes a mode that turns CUDA devices in its arguments into the CPU. A move
to CUDA makes a copy there as it would on a GPU, and its storage is marked. Marked tensors tell the
script that they are on CUDA; torch's own code, which would go on to CUDA's, is told the truth.
What does not take part in torch functions, such as ``torch.cuda.synchronize``, is replaced
(``cuda_names``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

from cuda2npu.smoke import modes
from cuda2npu.smoke.cuda_autocast import follow_cuda
from cuda2npu.smoke.cuda_names import replace_names, type_name
from cuda2npu.smoke.cuda_parallel import replace_parallel
from cuda2npu.smoke.placement import MarkedPlacement

_TENSOR: Any = torch.Tensor
_SET_DEFAULT: Any = torch.set_default_device
_TO = torch.Tensor.to
_CPU = torch.Tensor.cpu
_TYPE = torch.Tensor.type

HOST = torch.device("cpu")


class CudaOnCpu(TorchFunctionMode):
    """Leads what is meant for CUDA to the CPU."""

    def __init__(self, placement: MarkedPlacement) -> None:
        super().__init__()
        self._placement = placement
        self._default = False
        self._special: dict[Any, Callable[..., Any]] = {
            torch.Tensor.cuda: self._cuda,
            torch.Tensor.to: self._to,
            torch.Tensor.cpu: self._cpu,
            torch.Tensor.type: self._type,
            torch.Tensor.type_as: self._type_as,
            torch.Tensor.pin_memory: lambda tensor, *_, **__: tensor,
        }

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if not self._placement.active:
            return func(*args, **kwargs)
        special = self._special.get(func)
        if special is not None:
            return special(*args, **kwargs)
        answer = _ANSWERS.get(func)
        if answer is not None:
            index = self._placement.index(args[0])
            if index is None or _asked_by_torch(sys._getframe(1)):
                return func(*args, **kwargs)
            return answer(index)
        device = kwargs.get("device")
        if device is None and self._default and func in _device_constructors():
            device = "cuda"
        if device is None:
            return self._computed(func, args, kwargs)
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        if not meant_for_cuda(device):
            return func(*args, **kwargs)
        made = func(*args, **{**kwargs, "device": HOST})
        if isinstance(made, torch.Tensor):
            self._placement.mark(made, number_of(device))
        return made

    def _computed(self, func: Any, args: Any, options: dict[str, Any]) -> Any:
        made = func(*args, **options)
        self._placement.carry((args, options), made)
        return made

    def set_default_device(self, device: Any) -> None:
        """What ``torch.set_default_device`` asks for; torch's own acts behind this mode."""
        self._default = device is not None and meant_for_cuda(device)
        _SET_DEFAULT("cpu" if self._default else device)

    def _cuda(self, tensor: Any, device: Any = None, *_: Any, **options: Any) -> Any:
        return self._moved(tensor, device, memory_format=options.get("memory_format"))

    def _moved(
        self, tensor: Any, device: Any = None, dtype: Any = None, copy: bool = False, **options: Any
    ) -> Any:
        """The tensor on "CUDA": itself when it is there, else a copy that autograd follows."""
        form = options.get("memory_format") or torch.preserve_format
        same = dtype is None or dtype == tensor.dtype
        index = number_of(device)
        if same and self._placement.index(tensor) == index and not copy:
            return tensor if form is torch.preserve_format else _TO(tensor, memory_format=form)
        moved = _TO(tensor, dtype=dtype or tensor.dtype, copy=True, memory_format=form)
        self._placement.mark(moved, index)
        return moved

    def _cpu(self, tensor: Any, *args: Any, **options: Any) -> Any:
        if self._placement.is_marked(tensor):
            return tensor.clone()
        return _CPU(tensor, *args, **options)

    def _to(self, tensor: Any, *args: Any, **options: Any) -> Any:
        target, args, options = self._target(args, options)
        if target is None:
            return self._computed(_TO, (tensor, *args), options)
        if meant_for_cuda(target):
            return self._moved(tensor, target, **_options(args, options))
        if torch.device(target).type == "cpu" and self._placement.is_marked(tensor):
            rest = {**_options(args, options), "copy": True}
            return _TO(tensor, device=target, **rest)
        return _TO(tensor, target, *args, **options)

    def _target(
        self, args: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[Any, Any, dict[str, Any]]:
        """The device among the arguments of ``Tensor.to``, and the others."""
        if "device" in options:
            rest = {key: value for key, value in options.items() if key != "device"}
            return options["device"], args, rest
        first = options.get("other", args[0] if args else None)
        if isinstance(first, torch.Tensor):
            rest = {key: value for key, value in options.items() if key != "other"}
            return self._place(first), (first.dtype, *args[1:]), rest
        if isinstance(first, (str, int, torch.device)):
            return first, args[1:], options
        return None, args, options

    def _place(self, tensor: Any) -> torch.device:
        index = self._placement.index(tensor)
        place: torch.device = tensor.device if index is None else torch.device("cuda", index)
        return place

    def _type_as(self, tensor: Any, other: Any) -> Any:
        return self._to(tensor, other)

    def _type(self, tensor: Any, kind: Any = None, *args: Any, **options: Any) -> Any:
        if kind is None:
            name: str = _TYPE(tensor)
            marked = self._placement.is_marked(tensor)
            return name.replace("torch.", "torch.cuda.", 1) if marked else name
        kind = type_name(kind)
        if isinstance(kind, torch.dtype):
            return self._computed(_TYPE, (tensor, kind, *args), options)
        if isinstance(kind, str) and kind.startswith("torch.cuda."):
            return self._moved(_TYPE(tensor, kind.replace("torch.cuda.", "torch.")))
        return _TYPE(self._cpu(tensor), kind, *args, **options)


def meant_for_cuda(device: Any) -> bool:
    if isinstance(device, torch.device):
        return device.type == "cuda"
    if isinstance(device, str):
        return device.partition(":")[0] == "cuda"
    return isinstance(device, int) and not isinstance(device, bool)


def number_of(device: Any) -> int:
    """That of a CUDA device; one without a number is the current one."""
    if isinstance(device, str):
        device = torch.device(device)
    number = device if isinstance(device, int) else getattr(device, "index", None)
    return torch.cuda.current_device() if number is None else number


_ANSWERS: dict[Any, Callable[[int], Any]] = {
    _TENSOR.device.__get__: lambda index: torch.device("cuda", index),
    _TENSOR.is_cuda.__get__: lambda _: True,
    _TENSOR.is_cpu.__get__: lambda _: False,
    _TENSOR.get_device: lambda index: index,
}
"""What a tensor on CUDA says of itself."""


def _asked_by_torch(frame: FrameType | None) -> bool:
    """Whether code of torch's, or ours, asks; a mode of torch's hands on who asked it."""
    while frame is not None and frame.f_globals.get("__name__") == "torch.utils._device":
        frame = frame.f_back
    name = "" if frame is None else str(frame.f_globals.get("__name__"))
    return name.partition(".")[0] in ("torch", "cuda2npu")


def _options(args: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    """What is left of ``Tensor.to(device, dtype, non_blocking, copy)`` as keywords."""
    named = dict(zip(("dtype", "non_blocking", "copy"), args, strict=False))
    named.update(options)
    named.pop("non_blocking", None)
    return {key: value for key, value in named.items() if value is not None}


def activate(devices: int = 1) -> MarkedPlacement:
    """Turn it on for the rest of the process, which then sees that many devices."""
    placement = MarkedPlacement()
    mode = CudaOnCpu(placement)
    replace_names(meant_for_cuda, placement.mark, devices)
    follow_cuda()
    replace_parallel(meant_for_cuda, placement.mark)
    placement.follow_lazy_modules()
    root: Any = torch
    root.set_default_device = mode.set_default_device
    modes.enter(mode)
    return placement

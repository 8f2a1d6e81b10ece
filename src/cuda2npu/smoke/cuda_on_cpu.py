"""Runs a CUDA script on the CPU, unchanged. Child side, in the reference run alone.

Every tensor function passes a mode that turns CUDA devices in its arguments into the CPU. A move
to CUDA makes a copy there as it would on a GPU, and its storage is marked. What does not take
part in torch functions, such as ``torch.cuda.synchronize``, is replaced (``cuda_names``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

from cuda2npu.smoke import modes
from cuda2npu.smoke.cuda_autocast import follow_cuda
from cuda2npu.smoke.cuda_names import replace_names
from cuda2npu.smoke.cuda_parallel import replace_parallel
from cuda2npu.smoke.placement import MarkedPlacement

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
            torch.Tensor.pin_memory: lambda tensor, *_, **__: tensor,
            torch.Tensor.record_stream: lambda *_, **__: None,
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
        device = kwargs.get("device")
        if device is None and self._default and func in _device_constructors():
            device = "cuda"
        if device is None:
            return func(*args, **kwargs)
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        if not meant_for_cuda(device):
            return func(*args, **kwargs)
        made = func(*args, **{**kwargs, "device": HOST})
        if isinstance(made, torch.Tensor):
            self._placement.mark(made)
        return made

    def set_default_device(self, device: Any) -> None:
        """What ``torch.set_default_device`` asks for; torch's own acts behind this mode."""
        self._default = device is not None and meant_for_cuda(device)
        _SET_DEFAULT("cpu" if self._default else device)

    def _cuda(self, tensor: Any, *_: Any, **options: Any) -> Any:
        return self._moved(tensor, memory_format=options.get("memory_format"))

    def _moved(self, tensor: Any, dtype: Any = None, copy: bool = False, **options: Any) -> Any:
        """The tensor on "CUDA": itself when it is there, else a copy that autograd follows."""
        form = options.get("memory_format") or torch.preserve_format
        same = dtype is None or dtype == tensor.dtype
        if same and self._placement.is_marked(tensor) and not copy:
            return tensor if form is torch.preserve_format else _TO(tensor, memory_format=form)
        moved = _TO(tensor, dtype=dtype or tensor.dtype, copy=True, memory_format=form)
        self._placement.mark(moved)
        return moved

    def _cpu(self, tensor: Any, *args: Any, **options: Any) -> Any:
        if self._placement.is_marked(tensor):
            return tensor.clone()
        return _CPU(tensor, *args, **options)

    def _to(self, tensor: Any, *args: Any, **options: Any) -> Any:
        target, args, options = _target(args, options)
        if target is None:
            return _TO(tensor, *args, **options)
        if meant_for_cuda(target):
            rest = _options(args, options)
            return self._moved(tensor, **rest)
        if torch.device(target).type == "cpu" and self._placement.is_marked(tensor):
            rest = {**_options(args, options), "copy": True}
            return _TO(tensor, device=target, **rest)
        return _TO(tensor, target, *args, **options)

    def _type(self, tensor: Any, kind: Any = None, *args: Any, **options: Any) -> Any:
        if isinstance(kind, str) and kind.startswith("torch.cuda."):
            kind = "torch." + kind.removeprefix("torch.cuda.")
            return self._moved(_TYPE(tensor, kind))
        if kind is None:
            return _TYPE(tensor, *args, **options)
        return _TYPE(tensor, kind, *args, **options)


def meant_for_cuda(device: Any) -> bool:
    if isinstance(device, torch.device):
        return device.type == "cuda"
    if isinstance(device, str):
        return device.partition(":")[0] == "cuda"
    return isinstance(device, int) and not isinstance(device, bool)


def _target(args: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """The device among the arguments of ``Tensor.to``, and the others."""
    if "device" in options:
        rest = {key: value for key, value in options.items() if key != "device"}
        return options["device"], args, rest
    if args and isinstance(args[0], (str, int, torch.device)):
        return args[0], args[1:], options
    if args and isinstance(args[0], torch.Tensor):
        return None, args, options
    return None, args, options


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
    replace_names(meant_for_cuda, devices)
    follow_cuda()
    replace_parallel(meant_for_cuda, placement.mark)
    placement.follow_lazy_modules()
    root: Any = torch
    root.set_default_device = mode.set_default_device
    modes.enter(mode)
    return placement

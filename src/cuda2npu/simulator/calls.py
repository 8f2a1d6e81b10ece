"""Every operator on the simulated device, computed by torch's own CPU kernel on the same memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

import torch

from cuda2npu.simulator import record
from cuda2npu.simulator.aliases import current_device, device_of, host_view, on_device
from cuda2npu.simulator.generators import finish, host_generator
from cuda2npu.simulator.outputs import Outputs
from cuda2npu.simulator.plans import Plan, plan_of

_Tensor = torch.Tensor
_Generator = torch.Generator
_CPU_DEVICE = torch.device("cpu")
_PLAIN = (int, float, bool, str, torch.dtype, type(None), complex)
_SLOW_TYPES = {torch.float64: "float64", torch.complex128: "complex128"}
_LOW_PRECISION = (torch.float16, torch.bfloat16)

Kernel = Callable[..., Any]


def mixed_devices(plan: Plan, first: _Tensor, second: _Tensor, position: int) -> NoReturn:
    names = plan.argument_names
    where = names[position] if position < len(names) else "tensors"
    operator = plan.name.partition("::")[2].replace(".", "_")
    raise RuntimeError(
        "Expected all tensors to be on the same device, but found at least two devices, "
        f"{_named(first)} and {_named(second)}! (when checking argument for argument {where} "
        f"in method wrapper_NPU__{operator})"
    )


def not_simulated(name: str) -> NoReturn:
    raise NotImplementedError(
        f"not simulated: {name} (torch {torch.__version__} has no CPU kernel for it)"
    ) from None


def _named(tensor: _Tensor) -> str:
    device = tensor.device
    return device.type if device.index is None else f"{device.type}:{device.index}"


class _Call:
    """The arguments of one call, with the CPU's view in the place of each device tensor."""

    __slots__ = ("device", "first", "generators", "index", "plan", "stray")

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.index = -1
        self.first: _Tensor | None = None
        self.stray: tuple[_Tensor, int] | None = None
        self.generators: list[tuple[_Generator, _Generator | None]] | None = None
        self.device: torch.device | None = None

    def tensor(self, value: _Tensor, position: int, checked: bool) -> _Tensor:
        index = value.get_device()
        if index < 0:
            if checked and self.stray is None and value.dim() and value.is_cpu:
                self.stray = (value, position)
            return value
        if self.index < 0:
            self.index = index
            self.first = value
        elif index != self.index and checked and value.dim() and self.first is not None:
            if self.first.dim():
                mixed_devices(self.plan, self.first, value, position)
            self.index, self.first = index, value
        dtype = value.dtype
        if dtype in _SLOW_TYPES:
            _note_slow_type(self.plan.name, dtype)
        return host_view(value)

    def sequence(self, values: list[Any] | tuple[Any, ...], position: int) -> Any:
        checked = self.plan.checks_lists
        for value in values:
            if isinstance(value, _Tensor):
                return [
                    self.tensor(v, position, checked) if isinstance(v, _Tensor) else v
                    for v in values
                ]
            if value is not None:
                return values
        return values

    def other(self, value: Any, position: int) -> Any:
        if isinstance(value, _Tensor):
            return self.tensor(value, position, self.plan.checks_devices)
        if isinstance(value, (list, tuple)):
            return self.sequence(value, position)
        if isinstance(value, torch.device):
            if value.type == "npu":
                self.device = value
                return _CPU_DEVICE
        elif isinstance(value, _Generator) and value.device.type == "npu":
            host, _ = host_generator(value)
            self.generators = [*(self.generators or []), (value, host)]
            return host
        return value

    def place(self) -> torch.device:
        if self.index >= 0:
            return device_of(self.index)
        if self.device is not None and self.device.index is not None:
            return self.device
        return device_of(current_device())


def _note_slow_type(name: str, dtype: torch.dtype) -> None:
    kind = _SLOW_TYPES[dtype]
    record.note(kind, name, f"{name} on {kind} tensors of the NPU")


def kernel_for(name: str, *, falls_back: bool = False, key: Any = None) -> Kernel:
    """The generic kernel of one operator; its schema is read at the first call."""
    plan: Plan | None = None

    def kernel(*args: Any, **kwargs: Any) -> Any:
        nonlocal plan
        if plan is None:
            plan = plan_of(name)
            if key is not None:
                plan = replace(plan, key=key, outputs=None)
        if falls_back:
            _warn_of_fallback(name)
            record.note("cpu-fallback", name, f"{name} has no NPU kernel and runs on the CPU")
        return run(plan, args, kwargs)

    return kernel


_warned: set[str] = set()


def _warn_of_fallback(name: str) -> None:
    if name not in _warned:
        _warned.add(name)
        warnings.warn(
            f"CAUTION: The operator '{name}' is not currently supported on the NPU backend and "
            "will fall back to run on the CPU. This may have performance implications.",
            stacklevel=3,
        )


def run(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    call = _Call(plan)
    checked = plan.checks_devices
    tensor = call.tensor
    host_args = [
        tensor(value, position, checked)
        if isinstance(value, _Tensor)
        else value
        if type(value) in _PLAIN_SET
        else call.other(value, position)
        for position, value in enumerate(args)
    ]
    host_kwargs = kwargs
    if kwargs:
        host_kwargs = {
            key: value if type(value) in _PLAIN_SET else call.other(value, len(args))
            for key, value in kwargs.items()
        }
        if call.device is not None:
            host_kwargs.pop("pin_memory", None)
    if call.stray is not None and call.first is not None:
        _refuse(call)
    before = [_argument(place, host_args, host_kwargs) for place in plan.written]
    if plan.key is None:
        not_simulated(plan.name)
    if plan.outputs is not None and call.first is not None:
        return _written_in_place(plan, plan.outputs, host_args, host_kwargs, call.index)
    try:
        if call.first is None:  # a factory: without a tensor the dispatcher needs its own way
            result = plan.dispatch(*host_args, **host_kwargs)
        else:
            result = plan.call(plan.key, *host_args, **host_kwargs)
    except (RuntimeError, NotImplementedError) as error:
        result = _second_try(plan, error, host_args, host_kwargs)
    if call.generators is not None:
        for generator, host in call.generators:
            finish(generator, host)
    for place, host in zip(plan.written, before, strict=True):
        if host is not None:
            _grow(_argument(place, args, kwargs), _argument(place, host_args, host_kwargs))
    return _wrap(plan, result, args, kwargs, call)


def _written_in_place(
    plan: Plan, outputs: Outputs, args: list[Any], kwargs: dict[str, Any], index: int
) -> _Tensor:
    key = outputs.key(args, kwargs)
    look = None if key is None else outputs.known.get(key)
    try:
        if look is not None:
            return outputs.run(look, plan.key, args, kwargs, index)
        result = plan.call(plan.key, *args, **kwargs)
    except (RuntimeError, NotImplementedError) as error:
        result = _second_try(plan, error, args, kwargs)
    if key is not None:
        outputs.remember(key, result)
    return on_device(result, device_of(index))


_PLAIN_SET = frozenset(_PLAIN)


def _refuse(call: _Call) -> None:
    assert call.stray is not None
    assert call.first is not None
    stray, position = call.stray
    if call.first.dim() == 0 and not call.plan.written:
        mixed_devices(call.plan, stray, call.first, position)
    mixed_devices(call.plan, call.first, stray, position)


def _argument(place: tuple[int, str], args: Any, kwargs: dict[str, Any]) -> Any:
    position, name = place
    if 0 <= position < len(args):
        return args[position]
    return kwargs.get(name)


def _grow(device: Any, host: Any) -> None:
    """Gives an output the size that its kernel gave to the CPU's view of it."""
    if isinstance(device, (list, tuple)):
        for one, other in zip(device, host, strict=True):
            _grow(one, other)
        return
    if not isinstance(device, _Tensor) or device.get_device() < 0 or device is host:
        return
    same = device.shape == host.shape
    if same and (host.numel() == 0 or device.data_ptr() == host.data_ptr()):
        return
    if not same:
        device.resize_(host.shape)
    if host.numel():
        host_view(device).copy_(host)


def _wants_float32(name: str, text: str) -> bool:
    if "batch_norm" in name and "expected scalar type" in text:  # float statistics beside others
        return True
    return "not implemented for 'Half'" in text or "not implemented for 'BFloat16'" in text


def _second_try(plan: Plan, error: Exception, args: list[Any], kwargs: dict[str, Any]) -> Any:
    text = str(error)
    if "resiz" in text and plan.written:
        return _with_fresh_outputs(plan, args, kwargs)
    if _wants_float32(plan.name, text):
        widened = _in_float32(plan, args, kwargs)
        if widened is not None:
            return widened[0]
    if isinstance(error, NotImplementedError) and "Could not run" in text:
        not_simulated(plan.name)
    raise error


def _with_fresh_outputs(plan: Plan, args: list[Any], kwargs: dict[str, Any]) -> Any:
    for position, name in plan.written:
        old = _argument((position, name), args, kwargs)
        if not isinstance(old, _Tensor):
            continue
        fresh = torch.empty(0, dtype=old.dtype)
        if 0 <= position < len(args):
            args[position] = fresh
        else:
            kwargs[name] = fresh
    return plan.call(plan.key, *args, **kwargs)


def _in_float32(plan: Plan, args: list[Any], kwargs: dict[str, Any]) -> tuple[Any] | None:
    """What the CPU lacks in low precision is computed in float32 and rounded."""
    if plan.is_view or any(key == "out" for key in kwargs):
        return None
    low: list[torch.dtype] = []
    pairs: list[tuple[_Tensor, _Tensor]] = []

    def widen(value: Any) -> Any:
        if isinstance(value, _Tensor) and value.dtype in _LOW_PRECISION:
            low.append(value.dtype)
            wide = value.float()
            pairs.append((value, wide))
            return wide
        return [widen(v) for v in value] if isinstance(value, list) else value

    def narrow(value: Any) -> Any:
        if isinstance(value, _Tensor):
            return value.to(low[0]) if value.dtype is torch.float32 else value
        return type(value)(narrow(v) for v in value) if isinstance(value, (list, tuple)) else value

    wide_args = [widen(value) for value in args]
    wide_kwargs = {key: widen(value) for key, value in kwargs.items()}
    if not low:
        return None
    result = plan.call(plan.key, *wide_args, **wide_kwargs)
    if plan.written:
        for value, wide in pairs:
            value.copy_(wide)
    return (narrow(result),)


def _wrap(
    plan: Plan, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any], call: _Call
) -> Any:
    if isinstance(result, _Tensor):
        place = plan.returned[0]
        if place is not None:
            return _argument(place, args, kwargs)
        if plan.is_view:
            return _view_or_copy(result, args, call)
        if result.dtype in _SLOW_TYPES:
            _note_slow_type(plan.name, result.dtype)
        return on_device(result, call.place())
    if isinstance(result, tuple):
        device = call.place()
        return tuple(
            value
            if not isinstance(value, (_Tensor, list))
            else _argument(place, args, kwargs)
            if place is not None
            else on_device(value, device)
            if isinstance(value, _Tensor)
            else [on_device(each, device) for each in value]
            for value, place in zip(result, plan.returned, strict=True)
        )
    if isinstance(result, list):
        device = call.place()
        if plan.is_view:
            return [_view_or_copy(each, args, call) for each in result]
        return [on_device(e, device) if isinstance(e, _Tensor) else e for e in result]
    return result


def _view_or_copy(result: _Tensor, args: tuple[Any, ...], call: _Call) -> _Tensor:
    source = next((a for a in args if isinstance(a, _Tensor) and a.get_device() >= 0), None)
    if source is not None and result.dtype is source.dtype:
        start = source.untyped_storage().data_ptr()
        if result.untyped_storage().data_ptr() == start:
            return source.as_strided(result.size(), result.stride(), result.storage_offset())
    return on_device(result, call.place())

"""Writing a result straight into the device's memory, where an operator has an ``out`` form.

The first call with given shapes shows what the result looks like; the next ones allocate it on the
device and hand its CPU view to the ``out`` form. It saves an allocation and a copy for each large
result.
"""

from __future__ import annotations

from typing import Any

import torch

from cuda2npu.simulator.aliases import device_of, host_view
from cuda2npu.simulator.libraries import split

_SMALL = 8192  # elements; below, the copy costs less than the look-up
_MOST = 4096  # remembered shapes of one operator
_PAIRS = """
    mm=mm.out addmm=addmm.out bmm=bmm.out baddbmm=baddbmm.out
    add.Tensor=add.out sub.Tensor=sub.out mul.Tensor=mul.out div.Tensor=div.out
    neg=neg.out exp=exp.out log=log.out sqrt=sqrt.out rsqrt=rsqrt.out reciprocal=reciprocal.out
    sigmoid=sigmoid.out tanh=tanh.out gelu=gelu.out silu=silu.out sin=sin.out cos=cos.out
    abs=abs.out clamp=clamp.out clamp_min=clamp_min.out leaky_relu=leaky_relu.out
    pow.Tensor_Scalar=pow.Tensor_Scalar_out maximum=maximum.out minimum=minimum.out
    threshold_backward=threshold_backward.grad_input gelu_backward=gelu_backward.grad_input
    silu_backward=silu_backward.grad_input sigmoid_backward=sigmoid_backward.grad_input
    tanh_backward=tanh_backward.grad_input leaky_relu_backward=leaky_relu_backward.grad_input
    sum.dim_IntList=sum.IntList_out mean.dim=mean.out _softmax=_softmax.out
    _softmax_backward_data=_softmax_backward_data.out _log_softmax=_log_softmax.out
    _log_softmax_backward_data=_log_softmax_backward_data.out cat=cat.out
    index_select=index_select.out where.self=where.self_out
""".split()
_out_forms = dict(pair.split("=") for pair in _PAIRS)

Key = tuple[Any, ...]
Look = tuple[torch.Size, tuple[int, ...], torch.dtype]


class Outputs:
    """What is known of the results of one operator."""

    def __init__(self, out_name: str) -> None:
        self.known: dict[Key, Look] = {}
        schema = torch._C._get_schema(*split(out_name))
        self.argument = schema.arguments[-1].name
        found: Any = torch._C._get_operation_overload(*split(out_name))
        self.call = found[1]

    def key(self, args: list[Any], kwargs: dict[str, Any]) -> Key | None:
        """None for a call that is better served by a copy."""
        parts: list[Any] = []
        large = False
        for value in args:
            kind = type(value)
            if isinstance(value, torch.Tensor):
                large = large or value.numel() >= _SMALL
                parts.append((value.shape, value.stride(), value.dtype))
            elif kind is list:
                for each in value:
                    if isinstance(each, torch.Tensor):
                        large = large or each.numel() >= _SMALL
                        parts.append((each.shape, each.stride(), each.dtype))
                    else:
                        parts.append(each)
                parts.append(len(value))
            else:
                parts.append(kind if kind is float else value)
        if not large:
            return None
        for name, value in kwargs.items():
            if isinstance(value, torch.Tensor):
                return None
            parts.append((name, type(value) if isinstance(value, float) else value))
        return tuple(parts)

    def remember(self, key: Key, result: torch.Tensor) -> None:
        if result.is_complex() or result.untyped_storage().nbytes() != result.nbytes:
            return
        if len(self.known) >= _MOST:
            self.known.clear()
        self.known[key] = (result.size(), result.stride(), result.dtype)

    def run(
        self, look: Look, key_of_cpu: Any, args: list[Any], kwargs: dict[str, Any], index: int
    ) -> torch.Tensor:
        size, stride, dtype = look
        made = torch.empty_strided(size, stride, dtype=dtype, device=device_of(index))
        self.call(key_of_cpu, *args, **kwargs, **{self.argument: host_view(made)})
        return made


def outputs_of(name: str) -> Outputs | None:
    form = _out_forms.get(name.removeprefix("aten::"))
    if form is None:
        return None
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    out_name = f"aten::{form}"
    return Outputs(out_name) if has(name, "CPU") and has(out_name, "CPU") else None

"""Notes of what the NPU's autocast leaves in half precision and CUDA's computes in float32.

torch_npu registers an autocast kernel for every operation of CUDA's lists but these; what a script
computes with them in float16 or bfloat16 has another type than it has on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cuda2npu.simulator import record
from cuda2npu.simulator.libraries import library, redirect, split

LEFT_IN_HALF = (
    "rms_norm upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d "
    "_upsample_nearest_exact2d upsample_nearest3d _upsample_nearest_exact3d upsample_linear1d "
    "upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d upsample_bicubic2d "
    "_upsample_bicubic2d_aa"
).split()
_HALF = (torch.float16, torch.bfloat16)
_KEYS: Any = torch._C.DispatchKey
_KEY = _KEYS.AutocastPrivateUse1


def register() -> None:
    put = library("aten")
    has: Any = torch._C._dispatch_has_kernel_for_dispatch_key
    for name in LEFT_IN_HALF:
        if not has(f"aten::{name}", _KEY.name):
            put(name, _KEY.name, _noted(name))


def _noted(name: str) -> Callable[..., Any]:
    full = f"aten::{name}"
    composite = redirect(full, torch._C.DispatchKey.CompositeImplicitAutograd)
    found: Any = torch._C._get_operation_overload(*split(full))
    is_composite = torch._C._dispatch_has_kernel_for_dispatch_key(full, "CompositeImplicitAutograd")

    def kernel(tensor: torch.Tensor, *args: Any, **options: Any) -> Any:
        if tensor.dtype in _HALF:
            kind = str(tensor.dtype).removeprefix("torch.")
            text = f"{full} stays in {kind} under the NPU's autocast; CUDA's makes it float32"
            record.note("autocast", full, text)
        if is_composite:
            return composite(tensor, *args, **options)
        keys: Any = torch._C.DispatchKeySet
        with torch._C._ExcludeDispatchKeyGuard(keys(_KEY)):
            return found[0](tensor, *args, **options)

    return kernel

"""Puts the simulated kernels in the place of torch_npu's own.

torch.library spends a millisecond on each operator, the dispatcher itself a few microseconds; so
the dispatcher's own binding is used, and nothing is looked up before an operator's first call.
"""

from __future__ import annotations

import torch

from cuda2npu.simulator import (
    aliases,
    autocast,
    compile_stand_in,
    generators,
    hosted,
    native_ops,
    parallel,
    record,
    special_kernels,
)
from cuda2npu.simulator.calls import kernel_for
from cuda2npu.simulator.libraries import library, redirect

_has = torch._C._dispatch_has_kernel_for_dispatch_key
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
_EXPLICIT = torch._C.DispatchKey.CompositeExplicitAutograd
_AUTOGRAD = torch._C.DispatchKey.Autograd

# torch_npu's own: they allocate, describe or look at memory and call no kernel of the chip.
_NATIVE = frozenset(
    """
    empty.memory_format empty_strided empty_like set_ set_.source_Storage set_.source_Tensor
    set_.source_Storage_storage_offset is_set_to view as_strided _reshape_alias resize_
    record_stream is_pinned _pin_memory _local_scalar_dense unfold squeeze squeeze.dim unsqueeze
    view_as_complex view_as_real set_data
    """.split()
)
_NOT_TRACED = "aten::convolution"
"""What ``torch.jit.trace`` looks into instead of recording it: it must not find the CPU's view."""
_registered = False


def register() -> None:
    """Gives torch_npu, already imported, all its operators; a second call does nothing."""
    global _registered
    if _registered:
        return
    _registered = True
    hosted.remember_dispatch_state()
    aliases.keep_freed_memory()
    _register_generic()
    _register_sparse()
    special_kernels.register()
    native_ops.register()
    autocast.register()
    generators.install()
    compile_stand_in.install()
    parallel.install()
    record.arm()
    # The backward pass stays in the thread of the script: a second one would bring a second pool of
    # threads to the same cores, and would have no line of the script on its stack.
    torch.autograd.set_multithreading_enabled(False)


def _register_generic() -> None:
    """Every aten operator of torch_npu, and those for which torch_npu goes to the CPU."""
    put = library("aten")
    has_schema = torch._C._dispatch_has_kernel
    for name in torch._C._dispatch_get_all_op_names():
        if not name.startswith("aten::") or name[6:] in _NATIVE or not has_schema(name):
            continue
        here = _has(name, "PrivateUse1")
        composite = _has(name, "CompositeImplicitAutograd")
        if composite and not _has(name, "CPU"):
            if here:
                put(name[6:], "PrivateUse1", redirect(name, _COMPOSITE))
            if _has(name, "AutogradPrivateUse1"):
                put(name[6:], "AutogradPrivateUse1", redirect(name, _COMPOSITE))
            continue
        if here and (_is_composite_factory(name) or name == _NOT_TRACED):
            put(name[6:], "PrivateUse1", redirect(name, _EXPLICIT))
        elif here:
            put(name[6:], "PrivateUse1", kernel_for(name))
        elif _goes_to_the_cpu(name):
            put(name[6:], "PrivateUse1", kernel_for(name, falls_back=True))
        if _has(name, "AutogradPrivateUse1") and _has(name, "Autograd"):
            put(name[6:], "AutogradPrivateUse1", redirect(name, _AUTOGRAD))


def _register_sparse() -> None:
    """The operators on sparse tensors that torch_npu computes on the chip; it lacks the others."""
    put = library("aten")
    key = torch._C.DispatchKey.SparseCPU
    for name in ("add.Tensor", "add_.Tensor", "mul.Tensor", "sparse_mask", "_coalesce"):
        if _has(f"aten::{name}", "SparseCPU"):
            put(name, "SparsePrivateUse1", kernel_for(f"aten::{name}", key=key))


def _is_composite_factory(name: str) -> bool:
    return _has(name, "BackendSelect") and _has(name, "CompositeExplicitAutograd")


def _goes_to_the_cpu(name: str) -> bool:
    return _has(name, "CPU") and not (
        _has(name, "CompositeExplicitAutograd")
        or _has(name, "CompositeExplicitAutogradNonFunctional")
    )

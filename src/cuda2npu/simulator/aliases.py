"""Two tensors over one memory: what lies on the simulated device, seen as a tensor of the CPU.

Device memory is host memory here, so nothing is copied to let a CPU kernel read or write it. What a
CPU kernel hands back is copied into memory of the device's own allocator, so that memory statistics
and limits stay true.
"""

from __future__ import annotations

from ctypes import CDLL, memmove
from typing import Any

import torch

_CPU = torch.device("cpu")
_storage_over = torch._C._construct_storage_from_data_pointer
_empty = torch._C._VariableFunctions.empty
_empty_strided = torch._C._VariableFunctions.empty_strided
_devices: dict[int, torch.device] = {}
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt in glibc


def keep_freed_memory() -> None:
    """The result of a CPU kernel lives until it is copied; its pages are kept for the next one."""
    mallopt = getattr(CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, 1 << 25)
        mallopt(_TRIM_THRESHOLD, 1 << 29)


def torch_npu_module() -> Any:
    """``torch.npu``, which torch does not know of by itself."""
    module: Any = torch
    return module.npu


def current_device() -> int:
    index: int = torch_npu_module().current_device()
    return index


def device_of(index: int) -> torch.device:
    found = _devices.get(index)
    if found is None:
        found = _devices[index] = torch.device("npu", index)
    return found


def host_view(tensor: torch.Tensor) -> torch.Tensor:
    """The CPU tensor over the same memory; the caller keeps ``tensor`` alive while it is used."""
    if tensor.layout is not torch.strided:
        return _sparse_host_view(tensor)
    storage = tensor.untyped_storage()
    size = storage.nbytes()
    view: torch.Tensor = _empty(0, dtype=tensor.dtype, device=_CPU)
    if size == 0:
        return view.as_strided(tensor.size(), tensor.stride()) if tensor.numel() == 0 else view
    shared: Any = _storage_over(storage.data_ptr(), _CPU, size)
    return view.set_(shared, tensor.storage_offset(), tensor.size(), tensor.stride())


def _sparse_host_view(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.layout is torch.sparse_coo:
        view: torch.Tensor = torch.sparse_coo_tensor(
            host_view(tensor._indices()),
            host_view(tensor._values()),
            tensor.size(),
            check_invariants=False,
        )
        return view._coalesced_(tensor.is_coalesced())
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        compressed, plain = tensor.crow_indices(), tensor.col_indices()
    else:
        compressed, plain = tensor.ccol_indices(), tensor.row_indices()
    made: torch.Tensor = torch.sparse_compressed_tensor(
        host_view(compressed),
        host_view(plain),
        host_view(tensor.values()),
        tensor.size(),
        layout=tensor.layout,
        check_invariants=False,
    )
    return made


def on_device(host: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A new tensor of the device with the content, shape and strides of ``host``."""
    if host.layout is not torch.strided:
        return _sparse_on_device(host, device)
    dtype = host.dtype
    if dtype.is_complex and host.is_conj():
        host = host.resolve_conj()
    size = host.size()
    storage = host.untyped_storage()
    length = storage.nbytes()
    if length == host.nbytes and not host.is_neg():
        made: torch.Tensor = _empty_strided(size, host.stride(), dtype=dtype, device=device)
        if length:
            source = host.data_ptr()
            if source:
                memmove(made.data_ptr(), source, length)
            else:  # a tensor of zeros that has no memory
                made.zero_()
        return made
    if host.is_neg():
        host = host.resolve_neg()
    strides = torch.empty_like(host, device="meta").stride()
    made = _empty_strided(size, strides, dtype=dtype, device=device)
    if host.numel():
        host_view(made).copy_(host)
    return made


def _sparse_on_device(host: torch.Tensor, device: torch.device) -> torch.Tensor:
    if host.layout is torch.sparse_coo:
        made: torch.Tensor = torch.sparse_coo_tensor(
            on_device(host._indices(), device),
            on_device(host._values(), device),
            host.size(),
            check_invariants=False,
        )
        return made._coalesced_(host.is_coalesced())
    by_rows = host.layout in (torch.sparse_csr, torch.sparse_bsr)
    compressed = host.crow_indices() if by_rows else host.ccol_indices()
    plain = host.col_indices() if by_rows else host.row_indices()
    return torch.sparse_compressed_tensor(
        on_device(compressed, device),
        on_device(plain, device),
        on_device(host.values(), device),
        host.size(),
        layout=host.layout,
        check_invariants=False,
    )

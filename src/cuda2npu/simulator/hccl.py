"""The collectives of ``hccl``, served by Gloo on the CPU's views of the same memory.

A group's backend for the device is a Gloo backend of its own, so that names, ranks, sequence
numbers and shutdown are torch's. The dispatcher's ``c10d`` operators on NPU tensors are led to a
second, hidden group that knows that backend as the CPU's.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from cuda2npu.simulator import uneven
from cuda2npu.simulator.aliases import host_view
from cuda2npu.simulator.libraries import library
from cuda2npu.simulator.plans import plan_of

Tensor = torch.Tensor
_CPU_KEY = torch._C.DispatchKey.CPU
_POINT_TO_POINT = {"send", "recv_", "recv_any_source_"}
_RETURNS_TENSORS = {
    "_allgather_base_", "_reduce_scatter_base_", "allgather_", "allreduce_", "alltoall_",
    "broadcast_", "reduce_scatter_", "scatter_",
}  # fmt: skip
_WORK_ALONE = {
    "allgather_coalesced_", "allgather_into_tensor_coalesced_", "allreduce_coalesced_",
    "alltoall_base_", "gather_", "reduce_", "reduce_scatter_tensor_coalesced_", "barrier",
}  # fmt: skip
_hidden: dict[str, Any] = {}  # by group name: the second group, as the dispatcher passes it
_pending: dict[str, list[Any]] = {}  # the sends and receives of a coalesced block
_registered = False


_Gloo: Any = dist.ProcessGroupGloo
_c10d: Any = torch._C._distributed_c10d


class SimulatedHccl(_Gloo):  # type: ignore[misc]
    """What ``group._get_backend(torch.device("npu"))`` answers."""

    group_name_: str

    def batch_isend_irecv(self, kinds: list[str], tensors: list[Tensor], peers: list[int]) -> Any:
        works = [
            self.send([host_view(tensor)], peer, 0)
            if kind == "isend"
            else self.recv([host_view(tensor)], peer, 0)
            for kind, tensor, peer in zip(kinds, tensors, peers, strict=True)
        ]
        return _finished(works, tensors)

    def allgather(self, outputs: Any, inputs: Any, *options: Any) -> Any:
        return _finished([super().allgather(_enter(outputs), _enter(inputs), *options)], outputs)

    def gather(self, outputs: Any, inputs: Any, *options: Any) -> Any:
        return _finished([super().gather(_enter(outputs), _enter(inputs), *options)], outputs)

    def get_hccl_comm_name(self, rank: int, init_comm: bool = True) -> str:
        return f"simulated_{self.group_name_}_{rank}"


def _create(options: Any, backend_options: Any = None) -> Any:
    store, rank, size = options.store, options.group_rank, options.group_size
    backend = SimulatedHccl(store, rank, size, options.timeout)
    backend.group_name_ = options.group_id
    backend.options.group_name = options.group_id
    backend.options.global_ranks_in_group = options.global_ranks_in_group
    backend._set_sequence_number_for_group()
    group: Any = dist.ProcessGroup(store, rank, size)
    group._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
    group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, backend)
    group._set_group_name(f"{options.group_id}_on_host")
    _hidden[options.group_id] = (group, backend)
    _keep_for_ever(backend)
    return backend


def _keep_for_ever(backend: Any) -> None:
    """Let a group end with the process only.

    Gloo's threads want the interpreter's lock to drop a finished work. Its destructor waits for
    them, and holds the lock when a DDP model that outlived the group is freed: neither goes on.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(backend))


def _finished(works: list[Any], tensors: Any) -> Any:
    """A work that is done, whose result is the device's tensors."""
    for work in works:
        work.wait()
    flat = _flat(tensors)
    devices = sorted({t.device for t in flat if t.get_device() >= 0}, key=str)
    future: Any = torch.futures.Future(devices=[*devices])
    future.set_result(flat)
    return _c10d._create_work_from_future(future)


def _flat(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [each for one in value for each in _flat(one)] if isinstance(value, list) else []


def _enter(value: Any) -> Any:
    if isinstance(value, Tensor):
        return host_view(value) if value.get_device() >= 0 else value
    return [_enter(v) for v in value] if isinstance(value, list) else value


def _hidden_group(boxed: Any) -> tuple[str, Any]:
    name = dist.ProcessGroup.unbox(boxed).group_name
    if name not in _hidden:
        raise RuntimeError(f"the process group {name!r} was not made by the simulated hccl")
    return name, _hidden[name][0].boxed()


def _kernel(name: str) -> Callable[..., Any]:
    plan: Any = None
    position = -1

    def kernel(*args: Any) -> Any:
        nonlocal plan, position
        if plan is None:
            plan = plan_of(f"c10d::{name}")
            position = plan.argument_names.index("process_group")
        if _captured.wanted:
            _captured.seen.append(args)
            raise _CaptureError
        group_name, group = _hidden_group(args[position])
        host = [group if i == position else _enter(value) for i, value in enumerate(args)]
        if name in _POINT_TO_POINT:
            work = plan.call(_CPU_KEY, *host)
            if group_name in _pending:
                _pending[group_name].append(work)
            return work
        if name in ("_allgather_base_", "_reduce_scatter_base_"):  # Gloo counts the rows
            host[0], host[1] = host[0].view(-1), host[1].contiguous().view(-1)
        tensors = args[0]
        works = _by_other_means(name, host, group_name)
        if works is None:
            works = [_collective(plan, host, position, group_name)]
        done = _finished(works, [] if name == "barrier" else tensors).boxed()
        return (tensors, done) if name in _RETURNS_TENSORS else done

    return kernel


def _by_other_means(name: str, host: list[Any], group_name: str) -> list[Any] | None:
    """The works of a collective over sizes that Gloo does not know; None for any other."""
    backend: Any = _hidden[group_name][1]
    if name == "allgather_" and uneven.differ(host[0][0]):

        def broadcast(tensor: Tensor, root: int) -> None:
            options: Any = dist.BroadcastOptions()
            options.rootRank = root
            backend.broadcast([tensor], options).wait()

        uneven.gather(host[0][0], host[1][0], backend.rank(), broadcast)
        return []
    if name == "alltoall_":  # of lists: the sizes of this rank do not tell those of the others
        uneven.exchange(host[0], host[1], lambda *each: backend.alltoall_base(*each).wait())
        return []
    return None


def _collective(plan: Any, host: list[Any], position: int, group_name: str) -> Any:
    try:
        return _start(plan, host)
    except RuntimeError as error:
        if "AVG" not in str(error) or "reduce_op" not in plan.argument_names:
            raise
    host[plan.argument_names.index("reduce_op")] = _sum()
    size = _hidden[group_name][0].size()
    work = _start(plan, host)
    for tensor in _flat(host[0]):
        tensor.div_(size)
    return work


def _start(plan: Any, host: list[Any]) -> Any:
    answer = plan.call(_CPU_KEY, *host)
    work = dist.Work.unbox(answer[-1] if isinstance(answer, (tuple, list)) else answer)
    work.wait()
    return work


class _CaptureError(RuntimeError):
    pass


class _Capture:
    wanted = False

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []


_captured = _Capture()
_sums: list[Any] = []


def _sum() -> Any:
    """``ReduceOp.SUM`` as the dispatcher passes it: seen in a call that goes no further."""
    if not _sums:
        group = next(iter(_hidden.values()))[0]
        options: Any = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.SUM
        _captured.wanted = True
        try:
            group.allreduce([torch.empty(1, device="npu")], options)
        except RuntimeError:
            pass
        finally:
            _captured.wanted = False
        _sums.append(_captured.seen.pop()[2])
    return _sums[0]


def _patch_coalescing() -> None:
    group_class: Any = dist.ProcessGroup
    start, end = group_class._start_coalescing, group_class._end_coalescing

    def is_ours(group: Any, device: Any) -> bool:
        return getattr(device, "type", device) == "npu" and group.group_name in _hidden

    def start_coalescing(group: Any, device: Any) -> None:
        if not is_ours(group, device):
            start(group, device)
            return
        _pending[group.group_name] = []

    def end_coalescing(group: Any, device: Any) -> Any:
        if not is_ours(group, device):
            return end(group, device)
        works = _pending.pop(group.group_name, [])
        return _finished([dist.Work.unbox(work) for work in works], [])

    group_class._start_coalescing = start_coalescing
    group_class._end_coalescing = end_coalescing


def register() -> None:
    """Gives the backend ``hccl`` of torch_npu, already imported, its collectives."""
    global _registered
    if _registered or not dist.is_available():
        return
    _registered = True
    put = library("c10d")
    for name in _POINT_TO_POINT | _RETURNS_TENSORS | _WORK_ALONE:
        put(name, "PrivateUse1", _kernel(name))
    plugin = dist.Backend._BackendPlugin(_create, True)
    dist.Backend._plugins["HCCL"] = plugin
    dist.Backend._plugins.pop("LCCL", None)
    _patch_coalescing()
    forget = c10d.destroy_process_group

    def destroy_process_group(group: Any = None) -> None:
        name = None if group is None else getattr(group, "group_name", None)
        forget(group)
        if name is None:
            _hidden.clear()
        else:
            _hidden.pop(name, None)

    c10d.destroy_process_group = destroy_process_group
    dist.destroy_process_group = destroy_process_group

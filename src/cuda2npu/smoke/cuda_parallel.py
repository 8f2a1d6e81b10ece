"""DDP, FSDP and process groups of a CUDA script on the CPU, over Gloo. Child side."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch

from cuda2npu.simulator import uneven
from cuda2npu.smoke.sync_batch_norm import replace_sync_batch_norm

Meant = Callable[[Any], bool]
Mark = Callable[[Any], None]

HOST = torch.device("cpu")
_FSDP = "torch.distributed.fsdp.fully_sharded_data_parallel"
_REDUCE = "all_reduce reduce reduce_scatter reduce_scatter_tensor".split()


def replace_parallel(meant_for_cuda: Meant, mark: Mark) -> None:
    _replace_data_parallel()
    if not torch.distributed.is_available():
        return
    _replace_ddp()
    replace_sync_batch_norm()
    _replace_groups(meant_for_cuda)
    sys.meta_path.insert(0, _AfterImport(_FSDP, lambda module: _replace_fsdp(module, mark)))


def _replace_data_parallel() -> None:
    """One device computes it all."""
    module: Any = import_module("torch.nn.parallel.data_parallel")
    module._get_available_device_type = lambda: None

    def data_parallel(
        module: Any, inputs: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0,
        module_kwargs: Any = None,
    ) -> Any:  # fmt: skip
        inputs = inputs if isinstance(inputs, tuple) else (inputs,)
        return module(*inputs, **(module_kwargs or {}))

    owners: tuple[Any, ...] = (module, torch.nn.parallel)
    for owner in owners:
        owner.data_parallel = data_parallel


def _replace_ddp() -> None:
    parallel: Any = torch.nn.parallel.DistributedDataParallel
    make = parallel.__init__

    def init_ddp(
        self: Any, module: Any, device_ids: Any = None, output_device: Any = None, *rest: Any,
        **options: Any,
    ) -> None:  # fmt: skip
        make(self, module, None, None, *rest, **options)

    parallel.__init__ = init_ddp


def _replace_fsdp(module: Any, mark: Mark) -> None:
    """The shards and what is gathered from them are on CUDA, unless they are offloaded."""
    parallel = module.FullyShardedDataParallel
    handles: Any = import_module("torch.distributed.fsdp._flat_param").FlatParamHandle
    make, prepare = parallel.__init__, handles.init_flat_param_attributes

    def init_fsdp(self: Any, *args: Any, **options: Any) -> None:
        make(self, *args, **{**options, "device_id": HOST})

    def init_flat_param_attributes(self: Any) -> None:
        prepare(self)
        if not self._offload_params:
            tensors = vars(self.flat_param).values()
            for tensor in (self.flat_param, *tensors):
                if isinstance(tensor, torch.Tensor):
                    mark(tensor)

    parallel.__init__ = init_fsdp
    utils: Any = import_module("torch.distributed.fsdp._init_utils")
    utils._check_module_states_for_sync_module_states = lambda _: None  # would have them on a GPU
    stream: Any = import_module("torch.cpu").Stream
    stream.synchronize = lambda _: None  # asked for where parameters are offloaded
    handles.init_flat_param_attributes = init_flat_param_attributes


def _replace_groups(meant_for_cuda: Meant) -> None:
    c10d: Any = import_module("torch.distributed.distributed_c10d")
    meshes: Any = import_module("torch.distributed.device_mesh")
    made = {
        name: _over_gloo(getattr(c10d, name), meant_for_cuda)
        for name in ("init_process_group", "new_group")
    }
    made |= {name: _averaging(getattr(c10d, name)) for name in _REDUCE}
    made |= {"all_gather": _gathering(c10d), "all_to_all": _exchanging(c10d)}
    made["is_nccl_available"] = lambda: True
    init_mesh, make_mesh = meshes.init_device_mesh, meshes.DeviceMesh.__init__

    def init_device_mesh(device_type: str, *args: Any, **options: Any) -> Any:
        return init_mesh("cpu" if meant_for_cuda(device_type) else device_type, *args, **options)

    def init(self: Any, device_type: str, *args: Any, **options: Any) -> None:
        make_mesh(self, "cpu" if meant_for_cuda(device_type) else device_type, *args, **options)

    meshes.DeviceMesh.__init__ = init
    for owner in (c10d, torch.distributed):
        for name, function in made.items():
            setattr(owner, name, function)
    owners: tuple[Any, ...] = (meshes, torch.distributed)
    for owner in owners:
        owner.init_device_mesh = init_device_mesh


def _averaging(reduce: Callable[..., Any]) -> Callable[..., Any]:
    """Gloo knows no average: the sum, and then the share of each rank."""
    signature = inspect.signature(reduce)

    def averaging(*args: Any, **options: Any) -> Any:
        given = signature.bind(*args, **options)
        distributed: Any = torch.distributed
        if given.arguments.get("op") != distributed.ReduceOp.AVG:
            return reduce(*args, **options)
        given.arguments["op"] = distributed.ReduceOp.SUM
        work = reduce(*given.args, **given.kwargs)
        if work is not None:
            work.wait()
        size = distributed.get_world_size(given.arguments.get("group"))
        next(iter(given.arguments.values())).div_(size)
        return work

    return averaging


def _gathering(c10d: Any) -> Callable[..., Any]:
    all_gather = c10d.all_gather

    def gathering(tensor_list: Any, tensor: Any, group: Any = None, async_op: bool = False) -> Any:
        if not uneven.differ(tensor_list):
            return all_gather(tensor_list, tensor, group, async_op)

        def broadcast(whole: Any, root: int) -> None:
            c10d.broadcast(whole, group=group, group_src=root)

        uneven.gather(tensor_list, tensor, c10d.get_rank(group), broadcast)
        return _done(tensor_list) if async_op else None

    return gathering


def _exchanging(c10d: Any) -> Callable[..., Any]:
    def exchanging(outputs: Any, inputs: Any, group: Any = None, async_op: bool = False) -> Any:
        def one(*arguments: Any) -> None:
            c10d.all_to_all_single(*arguments, group=group)

        uneven.exchange(outputs, inputs, one)
        return _done(outputs) if async_op else None

    return exchanging


def _done(result: Any) -> Any:
    """A work that is finished, for a script that waits for it."""
    future: Any = torch.futures.Future()
    future.set_result(result)
    c10d: Any = torch._C._distributed_c10d
    return c10d._create_work_from_future(future)


def _over_gloo(function: Callable[..., Any], meant_for_cuda: Meant) -> Callable[..., Any]:
    def over_gloo(*args: Any, **options: Any) -> Any:
        args = tuple("gloo" if _is_nccl(value) else value for value in args)
        if _is_nccl(options.get("backend")):
            options["backend"] = "gloo"
        if meant_for_cuda(options.get("device_id")):
            del options["device_id"]
        return function(*args, **options)

    return over_gloo


def _is_nccl(value: object) -> bool:
    return isinstance(value, str) and "nccl" in value.lower() and "/" not in value


class _AfterImport(MetaPathFinder):
    """Calls a function once a module is imported, which is not done for all scripts: it is slow."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self._name, self._then = name, then

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        found = find_spec(name)
        loader: Any = None if found is None else found.loader
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            self._then(module)

        loader.exec_module = exec_module
        return found

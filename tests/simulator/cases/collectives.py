# torch_npu gives torch and its tensors names at run time that no stub knows.
# mypy: disable-error-code="attr-defined,operator,no-untyped-call,union-attr,arg-type"
# mypy: disable-error-code="import-untyped,index,no-any-return"
from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch_npu  # noqa: F401
from support import Tensor, raises, run_cases
from torch import nn
from torch.nn.parallel import DistributedDataParallel

rank = int(os.environ["RANK"])
torch.npu.set_device(rank)
device = torch.device("npu", rank)


def on_npu(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float32, device=device)


def holds(tensor: Tensor, *values: float) -> None:
    assert tensor.device == device
    assert tensor.cpu().tolist() == list(values)


def case_reductions() -> None:
    for operation, expected in (("SUM", 3.0), ("AVG", 1.5), ("MAX", 2.0), ("PRODUCT", 2.0)):
        x = on_npu(rank + 1)
        dist.all_reduce(x, op=getattr(dist.ReduceOp, operation))
        holds(x, expected)
    for dtype in (torch.bfloat16, torch.float16, torch.int64):
        x = on_npu(rank + 1).to(dtype)
        dist.all_reduce(x)
        holds(x, 3)
    x = on_npu(rank + 1)
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    assert work.is_completed()
    holds(x, 3)
    x = on_npu(rank + 1)
    dist.reduce(x, 0)
    if rank == 0:
        holds(x, 3)
    out = on_npu(0)
    dist.reduce_scatter(out, [on_npu(rank), on_npu(rank + 10)])
    holds(out, 1 if rank == 0 else 21)
    dist.reduce_scatter_tensor(out, on_npu(rank, rank + 10), op=dist.ReduceOp.AVG)
    holds(out, 0.5 if rank == 0 else 10.5)


def case_gathering_and_spreading() -> None:
    x = on_npu(rank)
    dist.broadcast(x, 1)
    holds(x, 1)
    parts = [on_npu(0), on_npu(0)]
    dist.all_gather(parts, on_npu(rank))
    holds(parts[1], 1)
    whole = torch.empty(2, device=device)
    dist.all_gather_into_tensor(whole, on_npu(rank))
    holds(whole, 0, 1)
    parts = [on_npu(0), on_npu(0)]
    dist.gather(on_npu(rank), parts if rank == 0 else None, dst=0)
    if rank == 0:
        holds(parts[1], 1)
    out = on_npu(0)
    dist.scatter(out, [on_npu(5), on_npu(6)] if rank == 0 else None, src=0)
    holds(out, 5 + rank)
    dist.all_to_all_single(whole, on_npu(rank * 10, rank * 10 + 1))
    holds(whole, rank, 10 + rank)
    parts = [on_npu(0), on_npu(0)]
    dist.all_to_all(parts, [on_npu(rank * 10), on_npu(rank * 10 + 1)])
    holds(parts[1], 10 + rank)


def case_uneven_sizes() -> None:
    """NCCL and HCCL gather and exchange tensors of different sizes."""
    parts = [torch.zeros(1, device=device), torch.zeros(2, device=device)]
    dist.all_gather(parts, torch.full((rank + 1,), rank + 5.0, device=device))
    holds(parts[0], 5)
    holds(parts[1], 6, 6)
    out = torch.empty(3, device=device)
    splits = [1, 2] if rank == 0 else [2, 1]
    dist.all_to_all_single(out, on_npu(0, 1, 2) + 10 * rank, splits, splits)
    holds(out, *((0, 10, 11) if rank == 0 else (1, 2, 12)))
    sizes = [[1, 2], [1, 1]]  # even on rank 1 alone
    parts = [torch.zeros(sizes[sender][rank], device=device) for sender in range(2)]
    work = dist.all_to_all(parts, [on_npu(*[rank] * n) for n in sizes[rank]], async_op=True)
    work.wait()
    holds(torch.cat(parts), *((0, 1) if rank == 0 else (0, 0, 1)))


def case_point_to_point() -> None:
    if rank == 0:
        dist.send(on_npu(7), 1)
    else:
        x = on_npu(0)
        assert dist.recv(x) == 0
        holds(x, 7)
    x = on_npu(-1)
    sending, receiving = dist.isend(on_npu(rank), 1 - rank), dist.irecv(x, 1 - rank)
    sending.wait()
    receiving.wait()
    holds(x, 1 - rank)
    x = on_npu(-1)
    send, receive = dist.P2POp(dist.isend, on_npu(rank), 1 - rank), None
    receive = dist.P2POp(dist.irecv, x, 1 - rank)
    for work in dist.batch_isend_irecv([send, receive]):
        work.wait()
    holds(x, 1 - rank)
    dist.barrier()
    dist.barrier(device_ids=[rank])


def case_objects() -> None:
    found: list[Any] = [None, None]
    dist.all_gather_object(found, {"rank": rank})
    assert found[1] == {"rank": 1}
    found = [rank]
    dist.broadcast_object_list(found, 0)
    assert found == [0]
    found = [None, None]
    dist.gather_object(rank, found if rank == 0 else None)
    assert rank or found == [0, 1]
    found = [None]
    dist.scatter_object_list(found, [1, 2] if rank == 0 else None)
    assert found == [rank + 1]


def case_groups() -> None:
    assert dist.get_backend() == "hccl"
    both, second = dist.new_group([0, 1]), dist.new_group([1])
    x = on_npu(rank)
    dist.all_reduce(x, group=both)
    holds(x, 1)
    if rank == 1:
        dist.all_reduce(x, group=second)
    on_cpu = dist.new_group([0, 1], backend="gloo")
    dist.all_reduce(torch.ones(1), group=on_cpu)
    mixed = dist.new_group([0, 1], backend="cpu:gloo,npu:hccl")
    for place in ("cpu", device):
        y = torch.ones(1, device=place)
        dist.all_reduce(y, group=mixed)
        assert y.item() == 2
    raises(
        lambda: dist.all_reduce(torch.ones(1)), "No backend type associated with device type cpu"
    )


def case_coalesced() -> None:
    first, second = on_npu(rank), on_npu(rank + 1)
    with dist._coalescing_manager(device=device):
        dist.all_reduce(first)
        dist.all_reduce(second)
    holds(second, 3)
    wholes = [torch.empty(2, device=device) for _ in range(2)]
    with dist._coalescing_manager(device=device):
        for whole, part in zip(wholes, (first, second), strict=True):
            dist.all_gather_into_tensor(whole, part)
    holds(wholes[1], 3, 3)


def case_functional() -> None:
    import torch.distributed._functional_collectives as functional

    holds(functional.all_reduce(on_npu(rank), "sum", dist.group.WORLD) + 0, 1)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers = nn.Linear(4, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, 2)
    return nn.Sequential(*layers).to(device)


def trained(options: dict[str, Any], prepare: Callable[[Any], Any] = lambda m: m) -> None:
    model = DistributedDataParallel(prepare(network()), device_ids=[rank], **options)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    for step in range(3):
        torch.manual_seed(step * 2 + rank)
        x = torch.randn(3, 4, device=device)
        if step == 1 and not options.get("static_graph"):
            with model.no_sync():
                model(x).sum().backward()
        optimizer.zero_grad()
        model(x).pow(2).sum().backward()
        assert model.module[0].weight.grad.device == device
        optimizer.step()
    weights = [torch.empty_like(model.module[0].weight) for _ in range(2)]
    dist.all_gather(weights, model.module[0].weight.detach())
    assert torch.equal(weights[0].cpu(), weights[1].cpu())


def case_data_parallel() -> None:
    trained({})
    trained({"find_unused_parameters": True})
    trained({"gradient_as_bucket_view": True})
    trained({"static_graph": True})
    trained({}, nn.SyncBatchNorm.convert_sync_batchnorm)


def case_synchronized_norm_is_the_whole_batchs() -> None:
    torch.manual_seed(1)
    whole = torch.randn(6, 8)
    plain, mine = nn.BatchNorm1d(8), nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(8))
    x = whole.clone().requires_grad_()
    expected = plain(x)
    expected.pow(3).sum().backward()
    part = whole[rank * 3 : rank * 3 + 3].to(device).requires_grad_()
    out = mine.to(device)(part)
    out.pow(3).sum().backward()
    assert torch.allclose(out.cpu(), expected[rank * 3 : rank * 3 + 3], atol=1e-5)
    assert torch.allclose(part.grad.cpu(), x.grad[rank * 3 : rank * 3 + 3], atol=1e-4)
    assert torch.allclose(mine.running_var.cpu(), plain.running_var, atol=1e-5)


def case_sharded_data_parallel() -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(network(), device_id=device)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    for _ in range(2):
        model(torch.randn(3, 4, device=device)).sum().backward()
        model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()


def case_fully_shard_on_a_mesh() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh, model = init_device_mesh("npu", (2,)), network()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    fully_shard(model[0], mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    for _ in range(2):
        model(torch.randn(3, 4, device=device)).float().sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def case_tensor_parallel() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("npu", (2,))
    x = distribute_tensor(torch.arange(4.0).to(device), mesh, [Shard(0)])
    assert x.full_tensor().tolist() == [0, 1, 2, 3]
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4)).to(device)
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "1": RowwiseParallel()})
    model(torch.ones(2, 4, device=device)).sum().backward()


if __name__ == "__main__":
    dist.init_process_group("hccl")
    run_cases(globals())
    dist.destroy_process_group()

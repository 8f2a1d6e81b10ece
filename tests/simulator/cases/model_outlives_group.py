"""DDP models that are freed when their group is destroyed already, again and again."""

import os

import torch
import torch.distributed as dist
import torch_npu
from support import keep
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train(device: int) -> None:
    group = dist.new_group()
    layers = nn.Sequential(*[nn.Linear(16, 16) for _ in range(8)]).to(f"npu:{device}")
    model = DistributedDataParallel(
        layers, device_ids=[device], process_group=group, bucket_cap_mb=1e-4
    )
    for _ in range(3):
        model(torch.ones(4, 16, device=f"npu:{device}")).sum().backward()
    dist.destroy_process_group(group)


rank = int(os.environ["LOCAL_RANK"])
torch_npu.npu.set_device(rank)
dist.init_process_group("hccl")
for _ in range(10):
    train(rank)
keep({})

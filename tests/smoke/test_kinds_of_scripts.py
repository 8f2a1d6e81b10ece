"""What torch lets a script do with its modules, under the recorder and with CUDA on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from needs import needs

from smoke.support import Smoke

pytestmark = needs("torch")

LAZY = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.used = nn.Sequential(
            nn.LazyConv2d(2, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(3)
        )
        self.never_called = nn.LazyLinear(2)
    def forward(self, x):
        return self.used(x)
net = Net().cuda()
net(torch.randn(2, 1, 8, 8, device="cuda"))
optimizer = torch.optim.SGD(net.used.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    net(torch.randn(2, 1, 8, 8, device="cuda")).square().mean().backward()
    optimizer.step()
"""

CHECKPOINT = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.drop = nn.Dropout(0.2)
    def forward(self, x):
        return self.drop(torch.relu(self.layer(x))) + torch.rand(8, device="cuda")
first, second = Block().cuda(), Block().cuda()
optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    x = torch.randn(4, 8, device="cuda", requires_grad=True)
    x = checkpoint(second, checkpoint(first, x, use_reentrant=False), use_reentrant=bool(step % 2))
    loss = x.sum()
    if step == 1:
        loss.backward()
    else:
        parameters = [*first.parameters(), *second.parameters()]
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters)):
            parameter.grad = gradient
    optimizer.step()
"""

TRANSFORMED = """
import torch
from torch import nn
from torch.func import functional_call, grad, jacrev, vmap
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.0), nn.Linear(8, 1)).cuda()
weights = {name: value.detach() for name, value in model.named_parameters()}
def loss(weights, x, y):
    return (functional_call(model, weights, (x.unsqueeze(0),)).squeeze(0) - y).square().mean()
for _ in range(3):
    x = torch.randn(16, 4, device="cuda")
    each = vmap(grad(loss), in_dims=(None, 0, 0))(weights, x, x.sum(1, keepdim=True))
    weights = {name: weights[name] - 0.1 * each[name].mean(0) for name in weights}
vmap(jacrev(model))(torch.randn(3, 4).cuda())
"""

TRACED = """
import torch
from torch import nn
model = nn.Sequential(
    nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.ConvTranspose2d(2, 1, 3), nn.Flatten(),
    nn.Linear(64, 2),
).cuda().eval()
traced = torch.jit.trace(model, torch.randn(1, 1, 8, 8).cuda())
out = traced(torch.randn(2, 1, 8, 8).cuda())
print(out, out.half(), sep="\\n")
assert not torch.equal(*out)
"""


@pytest.mark.parametrize("script", [LAZY, CHECKPOINT, TRANSFORMED, TRACED])
def test_runs_and_matches(run: Smoke, folder: Path, script: str) -> None:
    (folder / "script.py").write_text(script)
    report = run("script.py")
    assert report.code == 0, [*report.failures, report.comparison]
    assert report.comparison is not None
    assert report.comparison.total.max_abs < 1e-5
    assert not report.notes, "printing and tracing are torch's own doing"


SYNCHRONIZED = """
import os
import torch
import torch.distributed as dist
from torch import nn
dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(rank)
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, momentum=None), nn.Flatten()).cuda()
model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
model = nn.parallel.DistributedDataParallel(model, device_ids=[rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    optimizer.zero_grad()
    model(torch.randn(2 + rank, 1, 6, 6).cuda() * (rank + 1)).square().mean().backward()
    optimizer.step()
model.eval()
model(torch.randn(2, 1, 6, 6).cuda())
dist.destroy_process_group()
"""


def test_batch_norm_across_ranks(run: Smoke, folder: Path) -> None:
    (folder / "script.py").write_text(SYNCHRONIZED)
    report = run("script.py", nproc=2, steps=0)
    assert report.code == 0, [*report.failures, report.comparison]
    assert report.comparison is not None
    assert report.comparison.total.max_abs < 1e-4
    assert len(report.ranks) == 2


SHARDED = """
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel as FSDP, fully_shard
dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(0)
def model():
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
mesh = DeviceMesh("cuda", list(range(dist.get_world_size())))
models = [
    FSDP(model(), device_id=rank, sync_module_states=True, use_orig_params=True),
    FSDP(model(), device_id=torch.device("cuda", rank), cpu_offload=CPUOffload(True)),
    fully_shard(model().cuda(), mesh=mesh),
]
for net in models:
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        net(torch.randn(4, 8).cuda()).square().mean().backward()
        optimizer.step()
dist.destroy_process_group()
"""


def test_ways_to_shard(run: Smoke, folder: Path) -> None:
    (folder / "script.py").write_text(SHARDED)
    report = run("script.py", nproc=2, steps=0)
    assert report.code == 0, [*report.failures, report.comparison]
    assert report.comparison is not None
    assert report.comparison.total.max_abs < 1e-5
    assert len(report.comparison.losses) == 6

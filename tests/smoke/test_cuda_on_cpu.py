"""CUDA scripts on the CPU: the reference where there is no GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from needs import needs

from cuda2npu.running.process import RECORD
from cuda2npu.smoke.npu import reference_environment
from cuda2npu.smoke.process import run_child
from cuda2npu.smoke.spec import Spec

pytestmark = needs("torch")

SCRIPT = """
import copy
import os
import tempfile
import torch
import torch.nn as nn
import torch.distributed as dist
import torch.nn.functional as F
from torch.cuda.amp import GradScaler, autocast

device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
assert device.type == "cuda" and torch.cuda.device_count() == 1
torch.cuda.set_device(0)
torch.cuda.manual_seed_all(3)
torch.backends.cudnn.benchmark = True
torch.cuda.empty_cache(), torch.cuda.synchronize(), torch.cuda.memory_allocated()
print(torch.cuda.get_device_name(0), torch.cuda.get_device_properties(0).total_memory)

# A move to CUDA is a copy, and a second one is none.
host = torch.ones(3)
there = host.cuda()
there += 1
assert host.tolist() == [1, 1, 1] and there.tolist() == [2, 2, 2]
assert there.cuda() is there and there.to("cuda") is there
back = there.cpu()
back += 1
assert there.tolist() == [2, 2, 2]
for made in (
    torch.zeros(2, device="cuda"), torch.zeros(2, device=0), torch.tensor([1.0], device=device),
    host.to(0), host.to(device, non_blocking=True), host.to("cuda:0", torch.float64),
    host.to(device=device, dtype=torch.half), torch.cuda.FloatTensor(2).fill_(1),
    host.type(torch.cuda.FloatTensor), host.type("torch.cuda.DoubleTensor"),
    torch.randn(2, device="cuda", generator=torch.Generator(device="cuda").manual_seed(1)),
    torch.empty_like(host, device="cuda"), host.pin_memory().cuda(non_blocking=True),
    torch.arange(3, device=device), torch.full((2,), 1.0, device=device, requires_grad=True),
):
    assert made.is_cuda and str(made.device) == "cuda:0" and made.get_device() == 0
assert host.to("cuda:0", torch.float64).dtype is torch.float64
assert isinstance(torch.Generator("cuda"), torch.Generator)

# What is computed on CUDA is there, until it is moved back; a copy into another tensor moves none.
for made in (
    there[1:].view(-1) * 2, torch.cat([there, there]), there.new_zeros(2), torch.zeros_like(there),
    copy.deepcopy(nn.Linear(2, 2).cuda()).weight, there.half(), torch.ones(3).to(there),
    torch.ones(3).type_as(there), F.relu(there).max(0).values,
):
    assert made.is_cuda and made.device.type == device.type == "cuda" and not made.is_cpu
assert there.type() == "torch.cuda.FloatTensor"
assert isinstance(there, torch.cuda.FloatTensor) and isinstance(there, torch.Tensor)
assert not isinstance(host, torch.cuda.FloatTensor)
assert not isinstance(there.half(), torch.cuda.FloatTensor)
torch.set_default_tensor_type("torch.cuda.DoubleTensor")
assert torch.ones(1).is_cuda and torch.ones(1).dtype is torch.float64
torch.set_default_tensor_type(torch.FloatTensor)
assert not torch.ones(1).is_cuda and torch.ones(1).dtype is torch.float32
into = torch.zeros(3)
into.copy_(there)
for made in (
    into, there.cpu(), there.to("cpu", non_blocking=True), there.to(into),
    torch.zeros_like(there, device="cpu"), torch.tensor(there.tolist()),
    there.type("torch.FloatTensor"), there.type(torch.FloatTensor),
):
    assert not made.is_cuda and made.get_device() == -1
with torch.device("cuda"):
    assert torch.ones(2).is_cuda and torch.ones(2).sum().is_cuda
with torch.autocast(there.device.type, dtype=torch.float16, enabled=there.is_cuda):
    assert (there[None] @ there).dtype is torch.float16
there.record_stream(torch.cuda.current_stream())
statistics = torch.cuda.memory_stats()
assert statistics["allocated_bytes.all.current"] == statistics["num_ooms"] == 0
assert statistics.get("reserved_bytes.all.peak") == 0

# Gradients pass the moves.
leaf = torch.ones(2, requires_grad=True)
leaf.cuda().sum().backward()
captured = nn.Linear(2, 2).cuda()
captured(torch.ones(1, 2, device="cuda")).sum().backward()
assert captured.weight.grad.is_cuda
torch.optim.Adam(captured.parameters(), capturable=True).step()
assert leaf.grad.tolist() == [1, 1]

with torch.cuda.stream(torch.cuda.Stream()):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    end.record()
    assert start.elapsed_time(end) >= 0
torch.cuda.current_stream().wait_stream(torch.cuda.Stream())

model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2, device="cuda"))
model.to(device).to(0).to(device=0)
model = nn.DataParallel(model.cuda(), device_ids=[0])
nn.parallel.data_parallel(model.module, torch.ones(2, 4).cuda(), range(2))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
scaler = GradScaler()
with autocast():
    out = model(torch.ones(3, 4).cuda())
    assert out.dtype is torch.float16
    loss = F.cross_entropy(out.float(), torch.tensor([0, 1, 0]).cuda())
with torch.autocast("cuda", dtype=torch.bfloat16):
    assert (out @ out.T).dtype is torch.bfloat16
with autocast():
    norm = nn.LayerNorm(2).cuda()(out)
    assert norm.dtype is F.cross_entropy(out, torch.tensor([0, 1, 0])).dtype is torch.float32
    assert out.softmax(-1).dtype is out.sum().dtype is torch.float32
    assert nn.GELU()(out).dtype is torch.float16
assert out.softmax(-1).dtype is torch.float16
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()

with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "w.pt")
    torch.save(model.state_dict(), path)
    assert all(w.is_cuda for w in torch.load(path, map_location="cuda:0").values())
    torch.load(path, map_location={"cuda:0": "cuda:0"})
    assert not any(w.is_cuda for w in torch.load(path, map_location="cpu").values())
    torch.save(model, path)
    assert torch.load(path, map_location=device, weights_only=False).module[0].weight.is_cuda
    torch.save(model.state_dict(), path)
    torch.load(path, map_location=lambda storage, _: storage.cuda(0))
    store = "file://" + os.path.join(folder, "store")
    dist.init_process_group("nccl", init_method=store, rank=0, world_size=1)
    parallel = nn.parallel.DistributedDataParallel(
        nn.Linear(2, 2).cuda(), device_ids=[0], output_device=0
    )
    parallel(torch.ones(1, 2).cuda()).sum().backward()
    dist.all_reduce(torch.ones(1).cuda())
    dist.destroy_process_group()
compiled = torch.compile(nn.Linear(2, 2).cuda())
compiled(torch.ones(1, 2).cuda())
torch.set_default_device("cuda")
assert torch.ones(2).device.type == "cuda"
loader = torch.utils.data.DataLoader([1, 2], pin_memory=True, generator=torch.Generator("cuda"))
print([batch.cuda() for batch in loader])
"""


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("reference")
    script = folder / "script.py"
    script.write_text(SCRIPT)
    spec = Spec(str(script), (), str(folder), "cpu", cuda_on_cpu=True)
    ended = run_child(spec, reference_environment(), 120)
    assert ended.code == 0, ended.output
    found: dict[str, Any] = json.loads((Path(folder) / RECORD).read_text())
    return found


def test_the_script_ran_to_its_end(record: dict[str, Any]) -> None:
    assert record["ended"] == "script"


def test_what_was_moved_counts_as_on_cuda(record: dict[str, Any]) -> None:
    places = {
        event["name"]: event.get("placed") for event in record["events"] if event["kind"] == "call"
    }
    assert places["DataParallel.module.0"] == "cuda"
    assert places["DataParallel.module.1"] == "cuda"
    assert places["DistributedDataParallel.module"] == "cuda"


def test_the_loss_is_that_before_scaling(record: dict[str, Any]) -> None:
    losses = [event["value"] for event in record["events"] if event["kind"] == "loss"]
    assert losses[0] == 2
    assert losses[1] < 10

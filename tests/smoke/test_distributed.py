"""Scripts of several processes: those of a launcher, and those that a script starts itself."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from processes import gone

from cuda2npu.engine import rewrite_source
from cuda2npu.model import Options
from cuda2npu.running import process
from cuda2npu.smoke.npu import reference_environment
from cuda2npu.smoke.outcome import Comparison, First, Row, Status
from cuda2npu.smoke.ranks import across, read_runs, run_ranks
from cuda2npu.smoke.spec import Spec
from cuda2npu.smoke.stage import Report, Request, capture
from smoke.support import TIMEOUT, Smoke
from smoke.test_end_to_end import explain


def agrees(report: Report, ranks: int, losses: int) -> None:
    assert report.code == 0, explain(report)
    assert sorted(report.ranks) == list(range(ranks))
    for comparison in report.ranks.values():
        assert len(comparison.losses) == losses
        for old, new in comparison.losses:
            assert old is not None
            assert new == pytest.approx(old, abs=1e-5)
    firsts = [comparison.losses[0][0] for comparison in report.ranks.values()]
    assert len(set(firsts)) == ranks, "each rank has data of its own"


def still_running(marker: Path) -> list[str]:
    """The command lines and environments of all processes that name a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            told = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if str(marker).encode() in told:
            found.append(told.replace(b"\0", b" ").decode("utf-8", "replace"))
    return found


def test_processes_of_a_launcher(run: Smoke, folder: Path) -> None:
    report = run("ddp.py", nproc=2, steps=0, arguments=(str(folder / "kept.pt"),))
    agrees(report, ranks=2, losses=8)
    assert (folder / "kept.pt").stat().st_size > 1000
    assert still_running(folder) == []


def test_processes_that_the_script_starts(run: Smoke, folder: Path) -> None:
    """They end after the steps, and the workers that load their data are no ranks."""
    report = run("spawn.py", devices=2, steps=3)
    agrees(report, ranks=2, losses=3)
    assert still_running(folder) == []


@pytest.mark.parametrize("style", ["wrapped", "sharded"])
def test_a_model_that_is_sharded(run: Smoke, folder: Path, style: str) -> None:
    """Each rank is compared by its own shards, with names as in the model that was sharded."""
    saved = folder / "saved.pt"
    arguments = ("--save", str(saved)) if style == "wrapped" else ("--fully-shard",)
    report = run("fsdp.py", nproc=2, steps=0, arguments=arguments)
    agrees(report, ranks=2, losses=2)
    assert report.comparison is not None
    names = [row.name for row in report.comparison.rows if row.kind == "layer"]
    root = "FullyShardedDataParallel" if style == "wrapped" else "FSDPModel"
    assert {root, f"{root}.blocks.1.mlp.0", f"{root}.head"} <= set(names)
    if style == "wrapped":
        assert saved.stat().st_size > 1000, "saving gathers all shards on the CPU"
    assert still_running(folder) == []


@pytest.mark.parametrize("nproc", [2, 0])
def test_all_processes_are_captured(run: Smoke, folder: Path, tmp_path: Path, nproc: int) -> None:
    """Those of a launcher, and those that the script starts."""
    name, steps = ("ddp.py", 2) if nproc else ("spawn.py", 3)
    kept = tmp_path / "kept"
    request = Request(folder / name, steps=steps, timeout=TIMEOUT, nproc=nproc, devices=2)
    assert not capture(request, kept).failures
    assert sorted(path.name for path in kept.iterdir()) == ["manifest.json", "rank0", "rank1"]
    report = run(name, nproc=nproc, devices=2, steps=steps, reference=kept)
    agrees(report, ranks=2, losses=steps)
    assert report.reference_name.startswith("captured on")


def test_gradients_that_are_not_averaged_are_found(
    run: Smoke, folder: Path, torch_npu: str
) -> None:
    text = (folder / "ddp.py").read_text()
    right = rewrite_source(text, Options(torch_npu=torch_npu)).text
    indent = " " * 16
    wrong = right.replace("loss = F.cross", f"with model.no_sync():\n{indent}loss = F.cross")
    assert wrong != right
    (folder / "wrong.py").write_text(wrong)
    report = run("ddp.py", nproc=2, steps=2, rewritten=folder / "wrong.py")
    assert report.code == 1, explain(report)
    assert report.comparison is not None
    first = report.comparison.first
    assert first is not None
    assert first.step == 1
    assert first.seen == "step 1 of SGD"
    assert "gradient norm" in first.reasons[0]
    assert any("no_sync" in edit.after for edit in report.suspects)
    assert {row.rank for row in report.comparison.rows} == {None, 1}


LAUNCHES = """
import subprocess, sys
if "--worker" not in sys.argv:
    sys.exit(subprocess.call([sys.executable, "-m", "torch.distributed.run", "--standalone",
                              "--nproc_per_node", "2", __file__, "--worker"]))
import os, torch, torch.distributed as dist
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
net = torch.nn.Linear(2, 2).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(100):
    loss = net(torch.ones(1, 2).cuda() * (i + dist.get_rank())).sum()
    loss.backward()
    dist.all_reduce(net.weight.grad)
    optimizer.step()
    dist.barrier()
"""


def reference(folder: Path, text: str, nproc: int, timeout: float = 60, steps: int = 0) -> Spec:
    script = folder / "script.py"
    script.write_text(text)
    (folder / "run").mkdir()
    return Spec(str(script), (), str(folder / "run"), "cpu", cuda_on_cpu=True,
                steps=steps, devices=2)  # fmt: skip


def test_a_launcher_that_the_script_calls(tmp_path: Path, torch_npu: str) -> None:
    spec = reference(tmp_path, LAUNCHES, 0, steps=2)
    (ended,) = run_ranks(spec, 0, reference_environment(), 60, lambda _: None)
    assert ended.code == 0, ended.output
    runs = read_runs(tmp_path / "run", 0, marked=True)
    assert [(run.rank, run.steps, run.ended) for run in runs if run] == [
        (0, 2, "steps"),
        (1, 2, "steps"),
    ]
    assert still_running(tmp_path) == []


HANGS = """
import os, pathlib, torch, torch.distributed as dist
pathlib.Path({folder!r}, os.environ["RANK"]).write_text(str(os.getpid()))
dist.init_process_group("nccl")
torch.nn.Linear(2, 2)(torch.ones(1, 2))
group = dist.new_group([0, 1])
if dist.get_rank() == 0:
    dist.all_reduce(torch.ones(1))
dist.barrier(group)
"""


def test_time_is_up_in_a_collective(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torch_npu: str
) -> None:
    """Each rank shows where it hangs, and both are gone."""
    monkeypatch.setattr(process, "GRACE", 2.0)
    spec = reference(tmp_path, HANGS.format(folder=str(tmp_path)), 2)
    began = time.monotonic()
    ended = run_ranks(spec, 2, reference_environment(), 12, lambda _: None)
    assert time.monotonic() - began < 40
    assert all(each.timed_out for each in ended)
    assert "in all_reduce" in ended[0].output
    assert "in barrier" in ended[1].output
    assert all(gone(int((tmp_path / rank).read_text())) for rank in "01")


UNEVEN = """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)
own = torch.full((rank + 1,), float(rank)).cuda()
found = [torch.zeros(1).cuda(), torch.zeros(2).cuda()]
dist.all_gather(found, own)
sent = [torch.full((size,), rank + 3.0).cuda() for size in ((2, 1), (1, 1))[rank]]
got = [torch.zeros((2, 1)[rank]).cuda(), torch.zeros(1).cuda()]
work = dist.all_to_all(got, sent, async_op=True)
work.wait()
values = torch.cat(found + got)
assert values.tolist() == [0, 1, 1] + ([3, 3, 4] if rank == 0 else [3, 4])
torch.nn.Identity().cuda()(values * (rank + 1))
"""


def test_collectives_of_different_sizes(run: Smoke, folder: Path) -> None:
    (folder / "uneven.py").write_text(UNEVEN)
    report = run("uneven.py", nproc=2)
    assert report.code == 0, explain(report)
    assert sorted(report.ranks) == [0, 1]


FAILS = """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
if dist.get_rank() == 1:
    raise ValueError("no data for this rank")
dist.barrier()
"""


def test_the_rank_that_failed_first_is_told(run: Smoke, folder: Path) -> None:
    (folder / "fails.py").write_text(FAILS)
    report = run("fails.py", nproc=2)
    assert report.code == 2
    assert report.failures[0].summary == "rank 1: ValueError: no data for this rank"
    assert still_running(folder) == []


def test_the_first_difference_of_all_ranks_is_named() -> None:
    def compared(step: int, status: Status) -> Comparison:
        first = First("Net.head", "Net.head", "", step, ("cosine 0.5",))
        return Comparison([Row("Net.head", "layer", status=status)], first=first)

    whole = across({0: compared(3, Status.OK), 1: compared(2, Status.DIFFERS)})
    assert whole.first is not None
    assert (whole.first.rank, whole.first.step) == (1, 2)
    assert [row.title for row in whole.rows] == ["Net.head", "rank 1: Net.head"]
    assert not whole.matches

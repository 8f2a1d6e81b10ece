"""torch_npu as published, over the simulated runtime: what its own functions answer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from needs import needs

pytestmark = needs("torch_npu")
Done = subprocess.CompletedProcess[str]


def simulate(
    *options: str, program: str, command: tuple[str, ...] = ("python", "-c"), **environ: str
) -> Done:
    """Run a program on the simulated NPU; its stdout and stderr."""
    return subprocess.run(
        [sys.executable, "-m", "cuda2npu", "simulate", *options, "--", *command, dedent(program)],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def lines(done: Done) -> list[str]:
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_devices() -> None:
    program = """
        import torch
        print(torch.npu.is_available(), torch.npu.device_count(), torch.npu.get_device_name(1))
        print(torch.accelerator.current_accelerator(), torch.npu.utils.get_cann_version())
        properties = torch.npu.get_device_properties(0)
        print(properties.name, properties.total_memory, properties.cube_core_num)
        torch.npu.set_device(2)
        print(torch.npu.current_device(), torch.empty(1, device="npu").device)
        print(torch.npu.can_device_access_peer(0, 1), torch.npu.utilization())
        try:
            torch.npu.set_device(3)
        except RuntimeError as error:
            print("device 3 of 3 does not exist" in str(error))
    """
    assert lines(simulate("--devices", "3", "--chip", "310P", program=program)) == [
        "True 3 Ascend310P3",
        "npu 8.5.0",
        "Ascend310P3 25769803776 8",
        "2 npu:2",
        "True 0",
        "True",
    ]


def test_visible_devices() -> None:
    done = simulate(
        "--devices", "4", program="import torch; print(torch.npu.device_count())",
        ASCEND_RT_VISIBLE_DEVICES="1,3,7,0",
    )  # fmt: skip
    assert lines(done) == ["2"]


def test_streams_and_events() -> None:
    program = """
        import time, torch
        stream = torch.npu.Stream()
        start, end = (torch.npu.Event(enable_timing=True) for _ in "12")
        with torch.npu.stream(stream):
            assert torch.npu.current_stream() == stream != torch.npu.default_stream()
            start.record()
            time.sleep(0.05)
            end.record()
        torch.npu.current_stream().wait_stream(stream)
        end.synchronize()
        torch.npu.synchronize()
        print(stream.query(), end.query(), 49 < start.elapsed_time(end) < 5000)
        try:
            print(start.elapsed_time(torch.npu.Event(enable_timing=True)))
        except (RuntimeError, ValueError) as error:
            print(type(error).__name__)
    """
    assert lines(simulate(program=program))[0] == "True True True"


MEMORY = """
    import torch
    free, total = torch.npu.mem_get_info()
    print(free == total == 64 << 20)
    kept = torch.empty(8 << 20, dtype=torch.uint8, device="npu")
    print(torch.npu.memory_allocated() >> 20, torch.npu.mem_get_info()[0] < free)
    try:
        torch.empty(64 << 20, dtype=torch.uint8, device="npu")
    except torch.OutOfMemoryError as error:
        print("NPU out of memory. Tried to allocate " in str(error))
    del kept
    torch.npu.empty_cache()
    print(torch.npu.mem_get_info()[0] == free, torch.npu.max_memory_allocated() >> 20)
    print("allocated_bytes.all.peak" in torch.npu.memory_stats())
"""


@pytest.mark.parametrize("segments", ["False", "True"])
def test_memory_and_its_limit(segments: str) -> None:
    done = simulate(
        "--memory", "64MiB", program=MEMORY,
        PYTORCH_NPU_ALLOC_CONF=f"expandable_segments:{segments}",
    )  # fmt: skip
    assert lines(done) == ["True", "8 True", "True", "True 8", "True"]


def test_host_memory_and_random_state() -> None:
    program = """
        import io, torch
        print(torch.empty(8).pin_memory().is_pinned(), torch.empty(8).is_pinned())
        generator = torch.Generator("npu").manual_seed(3)
        print(generator.device, generator.initial_seed())
        torch.npu.manual_seed_all(5)
        state = torch.npu.get_rng_state()
        torch.npu.set_rng_state(state)
        print(torch.npu.initial_seed(), bool((torch.npu.get_rng_state() == state).all()))
        file = io.BytesIO()
        torch.save(torch.arange(3.0).npu(), file)
        for place in (None, "cpu"):
            file.seek(0)
            loaded = torch.load(file, map_location=place)
            print(loaded.device, loaded.tolist())
    """
    assert lines(simulate(program=program)) == [
        "True False",
        "npu 3",
        "5 True",
        "npu:0 [0.0, 1.0, 2.0]",
        "cpu [0.0, 1.0, 2.0]",
    ]


def test_data_parallel() -> None:
    program = """
        import torch
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        model, rows = model.npu(), torch.randn(6, 4).npu()
        halves = torch.nn.DataParallel(model, device_ids=[0, 1])(rows)
        halves.square().sum().backward()
        grads = [parameter.grad.clone() for parameter in model.parameters()]
        model.zero_grad()
        whole = model(rows)
        whole.square().sum().backward()
        print(halves.device, torch.allclose(halves, whole, atol=1e-6))
        pairs = zip(grads, model.parameters())
        print(all(torch.allclose(grad, other.grad, atol=1e-5) for grad, other in pairs))
    """
    assert lines(simulate("--devices", "2", program=program)) == ["npu:0 True", "True"]


@pytest.mark.parametrize("turn", ["list", "lambda points: list(points)[::-1]"])
def test_the_entry_points_may_load_in_any_order(turn: str) -> None:
    program = f"""
        import importlib.metadata
        points, turn = importlib.metadata.entry_points, {turn}
        importlib.metadata.entry_points = lambda **chosen: turn(points(**chosen))
        import torch
        print(torch.ones(2, device="npu").add(1).sum().item())
    """
    assert lines(simulate(program=program)) == ["4.0"]


def test_a_graph_is_refused_by_name() -> None:
    program = """
        import torch
        with torch.npu.graph(torch.npu.NPUGraph()):
            pass
    """
    done = simulate(program=program)
    assert done.returncode == 1
    assert "aclmdlRICaptureBegin (torch.npu.NPUGraph, torch.npu.graph) is not simulated" in (
        done.stderr
    )


def test_profilers_start_and_stop(tmp_path: Path) -> None:
    program = f"""
        import os, torch, torch_npu
        os.chdir({str(tmp_path)!r})
        with torch.profiler.profile() as host:
            torch.ones(2).add(1)
        print("aten::add" in str(host.key_averages()))
        with torch_npu.profiler.profile():
            torch.ones(2).npu()
        torch.npu.mstx.range_end(torch.npu.mstx.range_start("step"))
        torch.npu.mstx.mark("here")
    """
    assert "True" in lines(simulate(program=program))


@pytest.mark.parametrize("first", ["torch", "torch_npu"])
def test_operators_whichever_is_imported_first(first: str) -> None:
    program = f"""
        import {first}
        import torch, torch_npu
        print(torch.ones(2, device="npu").add(1).sum().item())
    """
    assert lines(simulate(program=program)) == ["4.0"]


def test_children_have_it_too(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        dedent(
            """
            import subprocess, sys, torch

            class Numbers(torch.utils.data.Dataset):
                def __len__(self): return 2
                def __getitem__(self, index):
                    return torch.full((2,), float(index)), torch.npu.device_count()

            if __name__ == "__main__":
                loader = torch.utils.data.DataLoader(
                    Numbers(), batch_size=2, num_workers=1, pin_memory=True,
                    multiprocessing_context="spawn",
                )
                for rows, counts in loader:
                    there = rows.npu(non_blocking=True)
                    print(rows.is_pinned(), there.device, there.cpu().tolist(), counts.tolist())
                probe = "import torch; print(torch.npu.device_count())"
                subprocess.run([sys.executable, "-c", probe], check=True)
            """
        )
    )
    done = simulate("--devices", "2", program=str(script), command=("python",))
    assert lines(done) == ["True npu:0 [[0.0, 0.0], [1.0, 1.0]] [2, 2]", "2"]
    assert done.stderr.count("simulated NPU") == 1


def test_torchrun(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        dedent(
            f"""
            import os, pathlib, torch, torch.distributed as dist
            rank = int(os.environ["LOCAL_RANK"])
            torch.npu.set_device(rank)
            dist.init_process_group("hccl")
            words = (dist.get_backend(), dist.get_world_size(), torch.empty(1, device="npu").device)
            pathlib.Path({str(tmp_path)!r}, str(rank)).write_text(" ".join(map(str, words)))
            dist.destroy_process_group()
            """
        )
    )
    run = ("torchrun", "--standalone", "--nproc_per_node", "2")
    done = simulate("--devices", "2", program=str(script), command=run)
    assert done.returncode == 0, done.stderr
    assert [(tmp_path / rank).read_text() for rank in "01"] == ["hccl 2 npu:0", "hccl 2 npu:1"]


def test_activated_in_a_running_process() -> None:
    program = """
        from cuda2npu.simulator.activate import activate
        from cuda2npu.simulator.environment import Simulation
        activate(Simulation(devices=2))
        import torch
        print(torch.npu.device_count(), torch.ones(2, device="npu:1").add(1).sum().item())
        activate()
    """
    done = subprocess.run(
        [sys.executable, "-c", dedent(program)], capture_output=True, text=True, check=False
    )
    assert lines(done) == ["2 4.0"]


def test_the_entry_point_does_nothing_unless_asked() -> None:
    program = """
        import sys
        import cuda2npu.simulator
        before = set(sys.modules)
        cuda2npu.simulator.autoload()
        print(sorted(set(sys.modules) - before), "ctypes" in sys.modules)
    """
    environ = {name: text for name, text in os.environ.items() if "SIMULATE" not in name}
    done = subprocess.run(
        [sys.executable, "-c", dedent(program)], env=environ, capture_output=True, text=True
    )
    assert lines(done) == ["[] False"]

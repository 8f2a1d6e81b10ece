"""The tables of torch_npu names against what is known about them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cuda2npu import releases
from cuda2npu.releases import (
    NEWEST,
    RELEASES,
    env_exists,
    environment,
    exists,
    first_release,
    names,
    parameters,
    releases_with,
    resolve_release,
    torch_cuda_names,
)

ROOT = Path(__file__).parent.parent
DATA = Path(releases.__file__).parent

HEADS = ("2.7.1", "2.9.0", "2.10.0", "2.11.0", "2.12.0", "2.13.0", "2.14.0")
"""The wheels built from newer sources: 2.9.1 came before the post-releases of 2.7.1 and 2.9.0."""

EVERYWHERE = """
    torch.npu torch_npu torch_npu.npu torch.npu.is_available torch.npu.Stream torch.npu.Event
    torch.npu.NPUGraph torch.npu.graph torch.npu.make_graphed_callables torch.npu.set_stream
    torch.npu.NPUGraph.capture_begin torch.npu.NPUPluggableAllocator torch.npu.MemPool
    torch.npu.memory.empty_cache torch_npu.npu.empty_cache torch.npu.random.manual_seed
    torch.npu.amp.GradScaler.get_scale torch.npu.amp.GradScaler.unscale_ torch.npu.amp.common
    torch.npu.amp.autocast torch_npu.npu.amp.GradScaler torch_npu.npu.amp.custom_fwd
    torch.npu.amp.custom_bwd torch_npu.npu.amp.autocast_mode.autocast torch.npu.mstx
    torch.npu.mstx.mark torch.npu.mstx.range_start torch.npu.mstx.range_end
    torch.npu.mstx.mstx_range torch.npu.matmul.allow_hf32 torch.npu.conv.allow_hf32
    torch.npu.backends.fft_plan_cache.max_size torch.npu.enable_flash_sdp
    torch_npu.npu._sanitizer.enable_npu_sanitizer torch.npu.default_generators
    torch.npu.get_device_capability torch.npu.is_bf16_supported torch.npu.FloatTensor
    torch.npu.BFloat16Tensor torch.npu.HalfStorage torch.npu._lazy_call torch.npu._lazy_init
    torch.npu._is_in_bad_fork torch.npu.memory._record_memory_history torch.npu.Stream.npu_stream
    torch.distributed.is_hccl_available torch.distributed.Backend.HCCL
    torch.distributed.Backend.LCCL torch_npu._C._distributed_c10d.ProcessGroupHCCL
    torch_npu._C._distributed_c10d.ProcessGroupHCCL.Options torch.Tensor.npu torch.Tensor.is_npu
    torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler torch.nn.Module.npu
    torch_npu.profiler.profile torch_npu.profiler.schedule torch_npu.profiler.ProfilerAction
    torch_npu.profiler.tensorboard_trace_handler torch_npu.profiler._ExperimentalConfig
    torch_npu.profiler.ProfilerActivity.NPU torch_npu.profiler.ProfilerActivity.CPU
    torch_npu.utils.cpp_extension.NpuExtension torch_npu.contrib.transfer_to_npu
    torch_npu.optim.NpuFusedAdam torch_npu.optim.NpuFusedAdamW torch_npu.optim.NpuFusedSGD
    torch_npu.optim.NpuFusedLamb torch_npu.optim.NpuFusedRMSprop torch_npu.optim.NpuFusedAdamP
    torch_npu.optim.NpuFusedRMSpropTF torch_npu.optim.NpuFusedAdadelta
    torch_npu.optim.NpuFusedBertAdam torch_npu.npu_fusion_attention torch_npu.npu_rms_norm
    torch_npu.npu_swiglu torch_npu.npu_rotary_mul torch_npu.npu_format_cast
"""

NOWHERE = """
    torch.npu.CUDAGraph torch.npu.OutOfMemoryError torch.npu.CudaError torch.npu.optimize
    torch.npu.DeferredCudaCallError torch.npu.AcceleratorError torch.npu.check_error
    torch.npu.cudaStatus torch.npu.clock_rate torch.npu.temperature torch.npu.power_draw
    torch.npu.memory_usage torch.npu.device_memory_used torch.npu.list_gpu_processes
    torch.npu.get_arch_list torch.npu.get_gencode_flags torch.npu.has_half torch.npu.has_magma
    torch.npu.is_tf32_supported torch.npu.current_solver_handle torch.npu.GreenContext
    torch.npu.caching_allocator_enable torch.npu.caching_allocator_disabled torch.npu.nvtx
    torch.npu.ComplexFloatStorage torch.npu.ComplexDoubleStorage torch.npu.nccl torch.npu.comm
    torch.npu.sparse torch.npu.jiterator torch.npu.tunable torch.npu.gds torch.npu.profiler
    torch.npu.cudart torch.npu.get_stream_from_external torch.npu.graphs.CUDAGraph
    torch.npu.mstx.range torch.npu.mstx.mstx torch.npu.matmul.allow_tf32 torch.npu.os
    torch_npu.utils.encryption torch_npu.nvtx torch.distributed.all_reduce torch.cuda.Stream
    torch_npu.npu.Stream.cuda_stream torch.npu.warnings torch.npu.nothing
"""


@pytest.mark.parametrize("name", EVERYWHERE.split())
def test_in_every_release(name: str) -> None:
    assert releases_with(name) == RELEASES


@pytest.mark.parametrize("name", NOWHERE.split())
def test_in_no_release(name: str) -> None:
    assert releases_with(name) == ()
    assert first_release(name) is None
    assert not exists(name, NEWEST)


@pytest.mark.parametrize(
    "name",
    [
        "torch.npu.mstx.range_push",
        "torch.npu.mstx.range_pop",
        "torch.npu.mstx.annotate",
        "torch.npu.ExternalStream",
        "torch.npu.npurt",
        "torch.npu._sleep",
    ],
)
def test_absent_from_older_heads(name: str) -> None:
    assert releases_with(name) == HEADS
    assert not exists(name, "2.8.0")
    assert not exists(name, "2.9.1")


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("torch.npu.get_per_process_memory_fraction", "2.7.1"),
        ("torch.npu.host_memory_stats", "2.7.1"),
        ("torch.npu.host_empty_cache", "2.7.1"),
        ("torch.npu.set_deterministic_level", "2.7.1"),
        ("torch.profiler.ProfilerActivity.NPU", "2.12.0"),
    ],
)
def test_from_some_release_on(name: str, first: str) -> None:
    assert first_release(name) == first
    assert releases_with(name) == RELEASES[RELEASES.index(first) :]


def test_names_with_gaps() -> None:
    assert releases_with("torch.npu.ipc_collect") == ("2.1.0", *RELEASES[4:])
    assert releases_with("torch.npu.StreamContext") == ("2.1.0", *RELEASES[3:])
    assert releases_with("torch.npu.MemPoolContext")[-1] == "2.12.0"


def test_both_spellings_are_the_same_name() -> None:
    for name in names():
        if name.startswith("torch_npu.npu."):
            assert releases_with("torch." + name[len("torch_npu.") :]) == releases_with(name)


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("2.7", "2.7.1"),
        ("2.7.1", "2.7.1"),
        ("2.7.1.post4", "2.7.1"),
        ("v2.6.0", "2.6.0"),
        ("2.13", "2.13.0"),
        ("2.1", "2.1.0"),
        ("2.9", "2.9.1"),
        ("2.9.0", "2.9.0"),
        ("2.9.0.post9", "2.9.0"),
        ("2.14.0rc1", "2.14.0"),
        (" 2.8.0+gitabc ", "2.8.0"),
    ],
)
def test_resolve_release(text: str, release: str) -> None:
    assert resolve_release(text) == release


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("2.7.0", "2.7.1"),
        ("1.11.0", "2.1.0"),
        ("3.0", "2.14.0"),
        ("2.2", "2.1.0"),
        ("2", "2.1.0"),
        ("2.7.1; import os", "2.7.1"),
    ],
)
def test_unknown_release_names_the_nearest(text: str, nearest: str) -> None:
    with pytest.raises(ValueError, match="unknown torch_npu release") as caught:
        resolve_release(text)
    assert f"nearest known is {nearest} " in str(caught.value)
    assert all(release in str(caught.value) for release in RELEASES)


@pytest.mark.parametrize("text", ["", "latest"])
def test_none_is_near_what_holds_no_number(text: str) -> None:
    with pytest.raises(ValueError, match=r"unknown torch_npu release '\w*' \(known: 2.1.0, "):
        resolve_release(text)


def test_unresolved_release_is_an_error() -> None:
    for ask in (exists, env_exists):
        with pytest.raises(ValueError, match="resolve_release"):
            ask("torch.npu.Stream", "2.7")
    with pytest.raises(ValueError, match="resolve_release"):
        parameters("torch.npu.Stream", "2.7")


@pytest.mark.parametrize(
    ("name", "release", "expected"),
    [
        ("ASCEND_LAUNCH_BLOCKING", "2.1.0", True),
        ("ASCEND_RT_VISIBLE_DEVICES", NEWEST, True),
        ("PYTORCH_NPU_ALLOC_CONF", "2.1.0", True),
        ("PYTORCH_NO_NPU_MEMORY_CACHING", "2.1.0", True),
        ("PYTORCH_ALLOC_CONF", "2.9.0", False),
        ("PYTORCH_ALLOC_CONF", "2.10.0", True),
        ("HCCL_BLOCKING_WAIT", "2.6.0", True),
        ("TORCH_HCCL_BLOCKING_WAIT", "2.6.0", False),
        ("TORCH_HCCL_BLOCKING_WAIT", "2.7.1", True),
        ("TORCH_NPU_DEVICE_CAPABILITY", "2.6.0", False),
        ("TORCH_NPU_DEVICE_CAPABILITY", "2.7.1", True),
        ("CUDA_VISIBLE_DEVICES", NEWEST, False),
        ("CUDA_LAUNCH_BLOCKING", NEWEST, False),
        ("NCCL_DEBUG", NEWEST, False),
    ],
)
def test_environment(name: str, release: str, expected: bool) -> None:
    assert env_exists(name, release) is expected


@pytest.mark.parametrize(
    ("name", "release", "expected"),
    [
        ("torch.npu.graph", "2.4.0", "npu_graph pool stream capture_error_mode"),
        (
            "torch.npu.graph",
            "2.13.0",
            "npu_graph pool stream auto_dispatch_capture capture_error_mode",
        ),
        (
            "torch_npu.npu.amp.GradScaler",
            "2.1.0",
            "init_scale growth_factor backoff_factor growth_interval dynamic enabled",
        ),
        ("torch.npu.amp.autocast", NEWEST, "enabled dtype cache_enabled"),
        ("torch.npu.amp.custom_fwd", NEWEST, "fwd * cast_inputs"),
        ("torch.npu.Event", "2.1.0", "enable_timing blocking interprocess"),
        ("torch.npu.Stream", "2.1.0", "device priority **kwargs"),
        ("torch.npu.is_bf16_supported", "2.9.1", ""),
        ("torch.npu.is_bf16_supported", "2.9.0", "including_emulation"),
        ("torch.npu.mstx.mark", "2.3.1", "message"),
        ("torch.npu.mstx.mark", NEWEST, "message stream domain"),
        ("torch_npu.utils.cpp_extension.NpuExtension", NEWEST, "name sources *args **kwargs"),
    ],
)
def test_parameters(name: str, release: str, expected: str) -> None:
    assert parameters(name, release) == tuple(expected.split())


def test_parameters_of_what_is_absent() -> None:
    assert parameters("torch.npu.mstx.range_push", "2.8.0") is None
    assert parameters("torch.npu.CUDAGraph", NEWEST) is None


def test_operators_have_the_parameters_of_their_schema() -> None:
    given = parameters("torch_npu.npu_fusion_attention", "2.1.0")
    assert given is not None
    assert given[:5] == ("query", "key", "value", "head_num", "input_layout")
    assert "sparse_mode" in given


def test_torch_cuda_names() -> None:
    found = torch_cuda_names()
    assert {
        "torch.cuda.amp.autocast",
        "torch.cuda.CUDAGraph",
        "torch.cuda.nvtx.range_push",
        "torch.cuda.nccl.version",
        "torch.cuda.OutOfMemoryError",
        "torch.cuda.memory.empty_cache",
    } <= found
    assert all(name.startswith("torch.cuda.") for name in found)
    assert not any("._" in name for name in found)


@pytest.mark.parametrize("file", ["names.json", "signatures.json", "torch_cuda.json"])
def test_tables_are_sorted(file: str) -> None:
    data = json.loads((DATA / file).read_text(encoding="utf-8"))
    assert data["about"]["source"]
    assert data["about"]["date"]
    for table in ("names", "env", "signatures"):
        rows = list(data.get(table, ()))
        assert rows == sorted(rows)


def test_every_release_has_its_wheel() -> None:
    wheels = json.loads((DATA / "names.json").read_text(encoding="utf-8"))["wheels"]
    assert tuple(wheels) == RELEASES
    for release, wheel in wheels.items():
        assert wheel["version"].startswith(release)
        assert wheel["file"].startswith(f"torch_npu-{wheel['version']}-")
        assert len(wheel["sha256"]) == 64


def test_every_span_can_be_read() -> None:
    for table in (names(), environment()):
        for name, spans in table.items():
            assert spans, name
            assert releases._covered(spans), name


def test_tables_load_fast() -> None:
    best = 1.0
    for _ in range(5):
        releases._read.cache_clear()
        start = time.perf_counter()
        names()
        best = min(best, time.perf_counter() - start)
    assert best < 0.003


@pytest.mark.slow
def test_a_wheel_still_reads_as_recorded(tmp_path: Path) -> None:
    script = str(ROOT / "tools" / "extract_names.py")
    done = subprocess.run(
        [sys.executable, script, "check", "2.13.0", "--wheels", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr

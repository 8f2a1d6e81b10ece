"""The stand-in for CANN is compiled once, whoever asks, or it is said what is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest
from needs import needs

from cuda2npu.simulator import SimulatorError, build, elf

needs_torch_npu = needs("torch_npu")
needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="there is no C compiler"
)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "cuda2npu"


@needs_torch_npu
@needs_compiler
def test_built_once(cache: Path) -> None:
    folder = build.libraries()
    made = (folder / build.RUNTIME).stat().st_mtime_ns
    assert folder.parent == cache
    assert build.libraries() == folder
    assert (folder / build.RUNTIME).stat().st_mtime_ns == made


@needs_torch_npu
@needs_compiler
def test_what_the_wheel_needs_is_there(cache: Path) -> None:
    folder = build.libraries()
    wheel, _ = build._torch_npu()
    wanted, missing = build.needs(wheel)
    assert {"libascendcl.so", "libhccl.so", "libacl_tdt_channel.so"} <= missing
    assert "aclrtMalloc" in wanted
    assert not {name for name in wanted if name.startswith(("Py", "THP", "pthread", "dl"))}
    runtime = elf.read(folder / build.RUNTIME)
    assert wanted <= runtime.defined
    for name in missing:
        library = elf.read(folder / name)
        assert library.soname == name
        assert build.RUNTIME in library.needed


@needs_torch_npu
@needs_compiler
def test_two_at_once(cache: Path) -> None:
    environ = {**os.environ, "XDG_CACHE_HOME": str(cache.parent)}
    probe = "from cuda2npu.simulator import build; print(build.libraries())"

    def one(_: int) -> str:
        return subprocess.run(
            [sys.executable, "-c", probe], env=environ, check=True, capture_output=True, text=True
        ).stdout

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(one, range(2))
    assert first == second
    assert [path.name for path in cache.iterdir()] == [Path(first.strip()).name]


@needs_torch_npu
def test_no_compiler(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SimulatorError, match=r"needs a C compiler.*apt install gcc"):
        build.libraries()


@needs_torch_npu
def test_the_compiler_of_cc_is_not_there(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-cc -m64")
    with pytest.raises(SimulatorError, match="no-such-cc"):
        build.libraries()


@needs_torch_npu
def test_a_compiler_that_fails_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "false")
    with pytest.raises(SimulatorError, match="headers of the C library"):
        build.libraries()
    assert list(cache.iterdir()) == []


def test_not_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SimulatorError, match=r"needs Linux.*darwin"):
        build.libraries()


@needs_torch_npu
def test_beside_a_cuda_build_of_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    version = tmp_path / "torch" / "version.py"
    version.parent.mkdir()
    version.write_text("cuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n")

    class Spec:
        submodule_search_locations = (str(version.parent),)

    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: Spec() if name == "torch" else find_spec(name)
    )
    with pytest.raises(SimulatorError, match=r"built for CUDA 13\.0.*build for the CPU"):
        build.libraries()


def test_without_torch_npu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(SimulatorError, match=r"pip install 'cuda2npu\[smoke\]'"):
        build.libraries()


@needs_torch_npu
def test_another_torch_npu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _: "2.7.1")
    with pytest.raises(SimulatorError, match=r"torch_npu 2\.7\.1.*only 2\.13"):
        build.libraries()


@needs_torch_npu
def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(SimulatorError, match="XDG_CACHE_HOME"):
        build.libraries()


def test_elf_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(b"\x7fELF\x01\x01" + bytes(64))
    with pytest.raises(ValueError, match="64-bit"):
        elf.read(path)

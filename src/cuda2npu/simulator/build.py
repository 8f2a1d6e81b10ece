"""Compiles the stand-in for the CANN libraries, once, into the user's cache folder."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from importlib import metadata, util
from pathlib import Path

from cuda2npu.simulator import SimulatorError, elf

SUPPORTED = "2.13."
"""The torch_npu releases whose needs were looked at; another one may call what answers wrongly."""

RUNTIME = "libcuda2npu_runtime.so"
"""All the code; the libraries under CANN's names only point to it, so that state is kept once."""

OPENED = ("libmsprofiler.so", "libmspti.so", "libms_tools_ext.so", "libascend_hal.so")
"""The libraries that profilers open by name."""

POINTER = "void *cuda2npu_runtime(void *unused) { return unused; }\n"
"""One function, for the tables that stack traces are read with."""

CANN_PARTS = ("runtime", "compiler", "opp")
"""The folders of an installed CANN that torch_npu looks for; empty here."""

SOURCES = Path(__file__).parent / "runtime"
OPTIONS = ("-std=gnu11", "-O2", "-fPIC", "-fvisibility=hidden")
INSTALL = "pip install 'cuda2npu[smoke]'"
_CUDA_BUILD = re.compile(r"^cuda\b[^=\n]*= '([\d.]+)'", re.M)
_PLAIN_NAME = re.compile(r"(?!_)[A-Za-z0-9_]+")


def libraries() -> Path:
    """The folder with the compiled libraries; compiles them if they are not there yet."""
    if sys.platform != "linux":
        raise SimulatorError(
            f"the simulated NPU needs Linux, as torch_npu does; this is {sys.platform}. "
            "Use a Linux machine, a container or WSL."
        )
    wheel, version = _torch_npu()
    _refuse_cuda_build()
    compiler = _compiler()
    sources = sorted(SOURCES.glob("*.[ch]"))
    folder = _cache() / f"runtime-{version}-{_key(sources, version, compiler)}"
    if not (folder / RUNTIME).exists():
        _publish(wheel, compiler, [path for path in sources if path.suffix == ".c"], folder)
    return folder


def _torch_npu() -> tuple[Path, str]:
    """The folder and the version of the installed torch_npu, which is not imported for it."""
    spec = util.find_spec("torch_npu")
    if spec is None or not spec.submodule_search_locations:
        raise SimulatorError(f"torch_npu is not installed beside cuda2npu; {INSTALL}")
    version = metadata.version("torch-npu")
    if not version.startswith(SUPPORTED):
        raise SimulatorError(
            f"torch_npu {version} cannot be simulated, only {SUPPORTED}x; {INSTALL}"
        )
    return Path(spec.submodule_search_locations[0]), version


def _refuse_cuda_build() -> None:
    """torch_npu 2.13 ends the process beside a CUDA build of torch.

    Both register the same settings of their allocators ("Duplicated key …").
    """
    spec = util.find_spec("torch")
    folders = spec.submodule_search_locations if spec else None
    built = cuda_build(Path(folders[0])) if folders else None
    if built:
        raise SimulatorError(
            f"this torch is built for CUDA {built}, and torch_npu does not run beside such a "
            "build. Install PyTorch's build for the CPU: its start page names the index to take "
            "it from (torch 2.13.0+cpu)."
        )


def cuda_build(torch: Path) -> str | None:
    """The CUDA that the torch in this folder was built for; None for any other build."""
    version = torch / "version.py"
    text = version.read_text(encoding="utf-8", errors="replace") if version.is_file() else ""
    built = _CUDA_BUILD.search(text)
    return built[1] if built else None


def _compiler() -> list[str]:
    asked = os.environ.get("CC")
    for name in [asked] if asked else ["cc", "gcc", "clang"]:
        program, *options = shlex.split(name)
        found = shutil.which(program)
        if found:
            return [found, *options]
    raise SimulatorError(
        f"the C compiler that CC names, {asked}, is not there"
        if asked
        else "the simulated NPU needs a C compiler and none was found (cc, gcc, clang); install "
        "one (Debian, Ubuntu: apt install gcc libc6-dev; Fedora: dnf install gcc) or set CC"
    )


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "cuda2npu"


def _key(sources: Iterable[Path], version: str, compiler: Sequence[str]) -> str:
    state = Path(compiler[0]).resolve().stat()
    words = [version, platform.machine(), *compiler, str(state.st_size), str(state.st_mtime_ns)]
    digest = hashlib.sha256("\0".join([*words, *OPTIONS]).encode())
    for source in (*sources, Path(__file__)):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:16]


def _publish(wheel: Path, compiler: list[str], sources: list[Path], folder: Path) -> None:
    """Build beside the folder and rename: whoever comes second drops what it built."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=".build-", dir=folder.parent))
    except OSError as error:
        raise SimulatorError(
            f"the compiled runtime cannot be kept in {folder.parent}: {error.strerror}; "
            "set XDG_CACHE_HOME to a folder that can be written to"
        ) from None
    try:
        _build(wheel, compiler, sources, work)
        work.chmod(0o755)
        try:
            work.rename(folder)
        except OSError:
            if not (folder / RUNTIME).exists():
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _build(wheel: Path, compiler: list[str], sources: list[Path], work: Path) -> None:
    wanted, missing = needs(wheel)
    _run([*compiler, *OPTIONS, "-c", *map(str, sources)], work)
    objects = [f"{source.stem}.o" for source in sources]
    link = [*compiler, *OPTIONS, "-shared", "-Wl,--no-as-needed"]
    runtime = [*link, f"-Wl,-soname,{RUNTIME}", "-lpthread", "-ldl", "-o", RUNTIME, *objects]
    _run(runtime, work)
    unanswered = sorted(wanted - elf.read(work / RUNTIME).defined)
    (work / "unsupported.c").write_text(_unsupported(unanswered), encoding="utf-8")
    _run([*runtime, "unsupported.c"], work)
    (work / "pointer.c").write_text(POINTER, encoding="utf-8")
    _run([*compiler, *OPTIONS, "-c", "pointer.c"], work)
    for name in sorted(missing.union(OPENED)):
        soname = [f"-Wl,-soname,{name}", "-Wl,-rpath,$ORIGIN", "-o", name]
        _run([*link, *soname, "pointer.o", RUNTIME], work)
    for part in (*objects, "pointer.o"):
        (work / part).unlink()
    for part in CANN_PARTS:
        (work / "cann" / part).mkdir(parents=True)


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SimulatorError(
            f"{shlex.join(command)} failed; are the headers of the C library installed "
            f"(libc6-dev, glibc-devel)?\n{done.stderr.strip()}"
        )


def needs(wheel: Path) -> tuple[set[str], set[str]]:
    """The functions and the libraries that torch_npu takes from CANN to be loaded at all."""
    site = wheel.parent
    own = [*wheel.glob("_C*.so"), *wheel.glob("lib/libtorch_npu.so")]
    own += [*wheel.glob("lib/libtensorpipe.so"), *wheel.glob("lib/libnpu_profiler.so")]
    read = [elf.read(path) for path in own]
    beside = {library.soname for library in read}
    torch = [path for path in (site / "torch" / "lib").glob("*.so*") if path.is_file()]
    missing = {
        name
        for library in read
        for name in library.needed
        if name not in beside and not _is_known(name, site)
    }
    undefined = set[str]().union(*(library.undefined for library in read))
    undefined = {name for name in undefined if _PLAIN_NAME.fullmatch(name)}
    for path in (*torch, *own):
        undefined -= elf.read(path).defined
    process = ctypes.CDLL(None)
    return {name for name in undefined if not hasattr(process, name)}, missing


def _is_known(name: str, site: Path) -> bool:
    """True for a library of torch or of the system."""
    return (site / "torch" / "lib" / name).exists() or bool(
        re.match(r"ld-linux|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|gomp)\.so", name)
    )


def _unsupported(names: list[str]) -> str:
    lines = ["int sim_unsupported(const char *function);"]
    lines += [
        f'__attribute__((visibility("default"))) int {name}(void) '
        f'{{ return sim_unsupported("{name}"); }}'
        for name in names
    ]
    return "\n".join(lines) + "\n"

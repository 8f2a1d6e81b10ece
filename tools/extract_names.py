"""Writes the tables of names under ``src/cuda2npu/releases`` from the published wheels.

    python tools/extract_names.py write [--wheels DIR]    all releases, about four minutes
    python tools/extract_names.py check 2.13.0            one release against the tables
    python tools/extract_names.py torch-cuda              needs torch importable (a CPU build)

``pip`` fetches each wheel that DIR does not hold yet. A wheel is read, never imported, so no
NPU, no CANN and no torch is needed. To add a release, add its newest wheel to ``WHEELS``.

What is not in the tables: members that a class inherits from torch; operators that are made
at run time only; names that torch itself offers, unless torch_npu replaces them. A submodule
counts as existing though it may have to be imported first.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import importlib
import json
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from wheel_names import Found, read_wheel

DATA = Path(__file__).parent.parent / "src" / "cuda2npu" / "releases"

WHEELS = {
    "2.1.0": "2.1.0.post17",
    "2.3.1": "2.3.1.post6",
    "2.4.0": "2.4.0.post4",
    "2.5.1": "2.5.1.post1",
    "2.6.0": "2.6.0.post5",
    "2.7.1": "2.7.1.post11",
    "2.8.0": "2.8.0.post5",
    "2.9.0": "2.9.0.post9",
    "2.9.1": "2.9.1",
    "2.10.0": "2.10.0.post7",
    "2.11.0": "2.11.0.post3",
    "2.12.0": "2.12.0.post3",
    "2.13.0": "2.13.0",
    "2.14.0": "2.14.0",
}
"""The wheel read for each release, oldest first."""

_LEAVES = {"graphs", "memory", "streams", "utils", "random", "npu_config"}
"""Modules of torch_npu.npu whose functions the package itself offers too."""

_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")


def fetch(version: str, folder: Path) -> Path:
    """The wheel of one version, downloaded into a folder unless it is there."""
    pattern = f"torch_npu-{version}-*.whl"
    if not list(folder.glob(pattern)):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary=:all:", "--python-version", "3.11", "--dest", str(folder)]
        command += [word for name in _PLATFORMS for word in ("--platform", name)]
        subprocess.run([*command, f"torch-npu=={version}"], check=True)
    return next(folder.glob(pattern))


def spans(having: Iterable[str]) -> str:
    """``2.7.1,2.9.0-`` for 2.7.1 alone and everything from 2.9.0 on; ``2.1.0-2.6.0`` is closed.

    Adding a release changes only the rows of names that end or begin with it.
    """
    order = list(WHEELS)
    indices = sorted(order.index(release) for release in having)
    parts: list[str] = []
    while indices:
        first = last = indices.pop(0)
        while indices and indices[0] == last + 1:
            last = indices.pop(0)
        if last == len(order) - 1:
            parts.append(order[first] + "-")
        else:
            parts.append(order[first] if first == last else f"{order[first]}-{order[last]}")
    return ",".join(parts)


def table(having: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Each name with the spans of the releases that have it, from the names of each release."""
    rows: dict[str, list[str]] = {}
    for release, names in having.items():
        for name in names:
            rows.setdefault(name, []).append(release)
    return {name: spans(rows[name]) for name in sorted(rows)}


def is_recorded_signature(path: str) -> bool:
    """Whether porting may depend on the parameters: not in leaf modules, not gradients."""
    parts = path.split(".")
    if path.startswith("torch_npu.npu."):
        public = not any(part.startswith("_") for part in parts[2:])
        return len(parts) == 3 or (public and parts[2] not in _LEAVES)
    if path.startswith(("torch_npu.profiler.", "torch_npu.optim.")):
        return parts[2][0].isupper() or len(parts) == 3 or parts[2] == "profile"
    if path.startswith(("torch_npu.utils.cpp_extension.", "torch_npu.distributed.")):
        return True
    return len(parts) == 2 and not path.startswith("torch_npu._") and "_backward" not in path


def signature_table(found: Mapping[str, Found]) -> dict[str, dict[str, str]]:
    """For each name, each list of parameters with the spans of its releases."""
    rows: dict[str, dict[str, list[str]]] = {}
    for release, one in found.items():
        for path, names in one.signatures.items():
            if is_recorded_signature(path) and path in one.names:
                rows.setdefault(path, {}).setdefault(" ".join(names), []).append(release)
    return {
        path: {spans(releases): names for names, releases in rows[path].items()}
        for path in sorted(rows)
    }


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """One row a line, so that a difference can be read."""
    path.write_text(json.dumps(data, indent=0, ensure_ascii=True) + "\n", encoding="utf-8")
    print(f"{path.name}: {path.stat().st_size} bytes")


def write(folder: Path) -> None:
    """Reads every wheel and writes ``names.json`` and ``signatures.json``."""
    found: dict[str, Found] = {}
    wheels: dict[str, dict[str, str]] = {}
    for release, version in WHEELS.items():
        wheel = fetch(version, folder)
        found[release] = read_wheel(str(wheel))
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        wheels[release] = {"version": version, "file": wheel.name, "sha256": digest}
        one = found[release]
        print(f"{release}: {len(one.names)} names, {len(one.env)} variables", flush=True)
    about = {
        "source": "published torch-npu wheels, read by tools/extract_names.py",
        "date": datetime.date.today().isoformat(),
        "spans": "2.7.1,2.9.0- is 2.7.1 and everything from 2.9.0 on",
    }
    names = table({release: one.names for release, one in found.items()})
    env = table({release: one.env for release, one in found.items()})
    write_json(DATA / "names.json", {"about": about, "wheels": wheels, "env": env, "names": names})
    write_json(DATA / "signatures.json", {"about": about, "signatures": signature_table(found)})


def check(release: str, folder: Path) -> int:
    """Compares one wheel with the tables; prints and counts the differences."""
    sys.path.insert(0, str(DATA.parent.parent))
    releases = importlib.import_module("cuda2npu.releases")
    found = read_wheel(str(fetch(WHEELS[release], folder)))
    recorded = {name for name in releases.names() if release in releases.releases_with(name)}
    recorded_env = {name for name in releases.environment() if releases.env_exists(name, release)}
    differences = sorted(recorded ^ found.names) + sorted(recorded_env ^ found.env)
    differences += [
        path
        for path, names in found.signatures.items()
        if is_recorded_signature(path) and releases.parameters(path, release) != names
    ]
    for name in differences:
        print(name)
    print(f"{release}: {len(found.names)} names, {len(differences)} differences")
    return min(len(differences), 1)


def cuda_names(module: types.ModuleType, seen: set[str]) -> Iterator[str]:
    """Public names of a module and of its public submodules, ``__all__`` and ``dir`` together."""
    seen.add(module.__name__)
    declared = set(getattr(module, "__all__", ()))
    for name in sorted({*dir(module), *declared}):
        value = getattr(module, name, None)
        if name.startswith("_"):
            continue
        if isinstance(value, types.ModuleType):
            if value.__name__.startswith("torch.cuda."):
                yield f"{module.__name__}.{name}"
                if value.__name__ not in seen:
                    yield from cuda_names(value, seen)
        elif name in declared or str(getattr(value, "__module__", "")).startswith("torch.cuda"):
            yield f"{module.__name__}.{name}"


def write_torch_cuda() -> None:
    """Writes ``torch_cuda.json`` from the torch that is installed."""
    torch = importlib.import_module("torch")
    package = importlib.import_module("torch.cuda")
    for path in Path(str(package.__file__)).parent.glob("*.py"):
        if not path.stem.startswith("_"):
            importlib.import_module(f"torch.cuda.{path.stem}")
    names = {*cuda_names(package, set()), "torch.cuda.OutOfMemoryError"}
    names |= {"torch.cuda.AcceleratorError"} if hasattr(package, "AcceleratorError") else set()
    about = {
        "source": "dir() and __all__ of torch.cuda, read by tools/extract_names.py",
        "date": datetime.date.today().isoformat(),
        "torch": str(torch.__version__),
    }
    write_json(DATA / "torch_cuda.json", {"about": about, "names": sorted(names)})


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("action", choices=["write", "check", "torch-cuda"])
    parser.add_argument("release", nargs="?", default=list(WHEELS)[-1], choices=list(WHEELS))
    parser.add_argument("--wheels", type=Path, help="folder that holds, or receives, the wheels")
    given = parser.parse_args()
    if given.action == "torch-cuda":
        write_torch_cuda()
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.wheels or Path(scratch)
        if given.action == "check":
            return check(given.release, folder)
        write(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())

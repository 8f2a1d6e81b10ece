"""A reference that is kept: the records of a run and a manifest that is written last."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from cuda2npu import __version__
from cuda2npu.running.process import RECORD
from cuda2npu.running.source import digest
from cuda2npu.smoke.outcome import Run, read_run
from cuda2npu.smoke.ranks import rank_folder
from cuda2npu.smoke.spec import TENSORS, SmokeError, Spec

MANIFEST = "manifest.json"
FORMAT = 2


_MANIFEST: dict[str, type] = {
    "script": str, "arguments": list, "seed": int, "steps": int, "dropout": bool, "nproc": int,
    "device": str, "environment": dict, "made": str, "processes": int, "project": dict,
    "files": dict,
}  # fmt: skip
"""What is read of a manifest again."""


class Captured(NamedTuple):
    """A reference as it is read back."""

    runs: list[Run]
    """Of each process that computed something."""
    files: list[Path]
    """The files of the project that were read, the script first."""
    manifest: dict[str, Any]


def check_target(target: Path, force: bool) -> None:
    """Nothing is overwritten but a capture, and a whole one only where that was asked for."""
    if target.exists() and not target.is_dir():
        raise SmokeError(f"{target}: is a file; -o takes a folder")
    try:
        _try_to_write(target)
        empty = not target.is_dir() or not any(target.iterdir())
    except OSError as error:
        raise SmokeError(f"{target}: cannot be written: {error.strerror}") from None
    if empty:
        return
    if not _holds_records(target):
        raise SmokeError(f"{target}: is not empty and holds no capture; take another folder")
    if (target / MANIFEST).exists() and not force:
        raise SmokeError(
            f"{target}: holds a capture already; --force replaces it, another folder keeps it"
        )


def _try_to_write(target: Path) -> None:
    """Raise OSError where the folder of a capture could not be made, before the work is done."""
    parent = next(parent for parent in target.absolute().parents if parent.exists())
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=parent):
        pass


def _holds_records(folder: Path) -> bool:
    return (folder / MANIFEST).exists() or any(folder.glob(f"*/{RECORD}"))


def keep(target: Path, spec: Spec, nproc: int, runs: Sequence[Run], files: Iterable[Path]) -> None:
    """Put the records of all processes at ``target`` in one step; raises SmokeError."""
    try:
        _keep(target, spec, nproc, runs, files)
    except OSError as error:
        raise SmokeError(f"{target}: cannot be written: {error.strerror}") from None


def _keep(target: Path, spec: Spec, nproc: int, runs: Sequence[Run], files: Iterable[Path]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        for number, run in enumerate(runs):
            rank_folder(staging, number).mkdir()
            for name in (RECORD, TENSORS):
                shutil.copyfile(run.folder / name, rank_folder(staging, number) / name)
        manifest = _manifest(staging, spec, nproc, runs, files)
        (staging / MANIFEST).write_text(json.dumps(manifest, indent=2), encoding="utf-8")
        staging.chmod(0o755)
        if target.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
            target.rename(old / "old")
            staging.rename(target)
            shutil.rmtree(old)
        else:
            staging.rename(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _manifest(
    staging: Path, spec: Spec, nproc: int, runs: Sequence[Run], files: Iterable[Path]
) -> dict[str, Any]:
    folder = Path(spec.script).parent
    return {
        "format": FORMAT,
        "cuda2npu": __version__,
        "script": Path(spec.script).name,
        **_asked(spec, nproc),
        "device": "cpu" if spec.cuda_on_cpu else spec.device,
        "ended": runs[0].ended,
        "environment": runs[0].environment,
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "processes": len(runs),
        # As seen from the script: it may lie elsewhere on the machine with the NPU.
        "project": {os.path.relpath(path, folder): digest(path) for path in files},
        "files": {
            str(path.relative_to(staging)): digest(path) for path in sorted(staging.glob("*/*"))
        },
    }


def _asked(spec: Spec, nproc: int) -> dict[str, Any]:
    """What must be the same in both runs, by the names of the options."""
    return {
        "arguments": list(spec.arguments),
        "seed": spec.seed,
        "steps": spec.steps,
        "dropout": spec.dropout,
        "nproc": nproc,
    }


def load(folder: Path, spec: Spec, nproc: int) -> Captured:
    """What was captured from this very script; raises SmokeError for anything else."""
    manifest = _read_manifest(folder)
    for name, expected in manifest["files"].items():
        if not (folder / name).is_file() or digest(folder / name) != expected:
            raise SmokeError(f"{folder}: {name} is damaged or missing; capture it again")
    files = _unchanged(folder, manifest, Path(spec.script))
    for name, value in _asked(spec, nproc).items():
        if manifest[name] != value:
            raise SmokeError(
                f"{folder}: was captured with {name} {manifest[name]!r}, this run has {value!r}; "
                "give both commands the same"
            )
    marked = manifest["device"] == "cpu"
    count = manifest["processes"]
    runs = [read_run(rank_folder(folder, number), marked=marked) for number in range(count)]
    alone = count == 1 and not nproc
    numbered = [replace(run, rank=None if alone else rank) for rank, run in enumerate(runs)]
    return Captured(numbered, files, manifest)


def _unchanged(folder: Path, manifest: dict[str, Any], script: Path) -> list[Path]:
    """The files of the project, which must be those that were captured."""
    if script.name != manifest["script"]:
        raise SmokeError(
            f"{folder}: was captured from another script, {manifest['script']}, not from "
            f"{script.name}; capture it again"
        )
    found = []
    for name, expected in manifest["project"].items():
        path = (script.parent / name).resolve()
        if not path.is_file() or digest(path) != expected:
            what = "is changed" if path.is_file() else "is missing"
            raise SmokeError(
                f"{folder}: was captured from another version of the program: {name} {what} "
                "since then; capture it again"
            )
        found.append(path)
    return found


def _read_manifest(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise SmokeError(f"{folder}: no such folder")
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        what = "half-written capture" if _holds_records(folder) else "no capture"
        raise SmokeError(f"{folder}: {what}: it has no {MANIFEST}; capture it again") from None
    except (OSError, ValueError) as error:
        raise SmokeError(f"{folder}: {MANIFEST} cannot be read: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise SmokeError(f"{folder}: was captured by another version of cuda2npu; capture it again")
    for name, kind in _MANIFEST.items():
        if not isinstance(manifest.get(name), kind):
            raise SmokeError(
                f"{folder}: {MANIFEST} is damaged: {name} is missing or no {kind.__name__}"
            )
    return manifest

"""A reference that is kept: the record of a run and a manifest that is written last."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from cuda2npu import __version__
from cuda2npu.smoke.outcome import Run, read_run
from cuda2npu.smoke.spec import RECORD, TENSORS, SmokeError, Spec

MANIFEST = "manifest.json"
FORMAT = 1


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def check_target(target: Path) -> None:
    """A folder that holds anything but a capture is not overwritten."""
    if target.exists() and not target.is_dir():
        raise SmokeError(f"{target}: is a file; -o takes a folder")
    if target.is_dir() and any(target.iterdir()) and not (target / RECORD).exists():
        raise SmokeError(f"{target}: is not empty and holds no capture; take another folder")


def keep(folder: Path, target: Path, spec: Spec, run: Run) -> None:
    """Put the record in ``folder`` at ``target`` in one step."""
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        for name in (RECORD, TENSORS):
            shutil.copyfile(folder / name, staging / name)
        manifest = _manifest(staging, spec, run)
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


def _manifest(folder: Path, spec: Spec, run: Run) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "cuda2npu": __version__,
        "script": Path(spec.script).name,
        "script_sha256": digest(Path(spec.script)),
        "arguments": list(spec.arguments),
        "device": "cpu" if spec.cuda_on_cpu else spec.device,
        "seed": spec.seed,
        "steps": spec.steps,
        "dropout": spec.dropout,
        "ended": run.ended,
        "environment": run.environment,
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "files": {name: digest(folder / name) for name in (RECORD, TENSORS)},
    }


def load(folder: Path, script: Path, spec: Spec) -> tuple[Run, dict[str, Any]]:
    """The captured run of this very script; raises SmokeError for anything else."""
    manifest = _read_manifest(folder)
    for name, expected in manifest["files"].items():
        if not (folder / name).is_file() or digest(folder / name) != expected:
            raise SmokeError(f"{folder}: {name} is damaged or missing; capture it again")
    if manifest["script_sha256"] != digest(script):
        raise SmokeError(
            f"{folder}: was captured from another script or version of it "
            f"({manifest['script']}), not from {script.name} as it is now; capture it again"
        )
    asked = {"arguments": list(spec.arguments), "seed": spec.seed, "steps": spec.steps,
             "dropout": spec.dropout}  # fmt: skip
    for name, value in asked.items():
        if manifest[name] != value:
            raise SmokeError(
                f"{folder}: was captured with {name} {manifest[name]!r}, this run has {value!r}"
            )
    return read_run(folder, marked=manifest["device"] == "cpu"), manifest


def _read_manifest(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise SmokeError(f"{folder}: no such folder")
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        what = "half-written capture" if (folder / RECORD).exists() else "no capture"
        raise SmokeError(f"{folder}: {what}: it has no {MANIFEST}; capture it again") from None
    except (OSError, ValueError) as error:
        raise SmokeError(f"{folder}: {MANIFEST} cannot be read: {error}") from None
    if manifest.get("format") != FORMAT:
        raise SmokeError(f"{folder}: was captured by another version of cuda2npu; capture it again")
    return manifest

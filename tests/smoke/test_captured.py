"""References that are kept. No torch."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cuda2npu.smoke.captured import MANIFEST, check_target, keep, load
from cuda2npu.smoke.outcome import read_run
from cuda2npu.smoke.spec import RECORD, TENSORS, SmokeError, Spec

pytest.importorskip("safetensors")


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    script = tmp_path / "train.py"
    script.write_text("print('train')\n")
    return Spec(str(script), ("--epochs", "1"), "", "cpu", cuda_on_cpu=True, steps=3)


@pytest.fixture
def kept(tmp_path: Path, spec: Spec) -> Path:
    from safetensors.numpy import save_file

    folder = tmp_path / "run"
    folder.mkdir()
    save_file({"0": np.ones(3, np.float32)}, folder / TENSORS)
    record = {"events": [], "state": [], "modules": {}, "ended": "steps", "steps": 3,
              "environment": {"torch": "2.13.0"}}  # fmt: skip
    (folder / RECORD).write_text(json.dumps(record))
    keep(folder, tmp_path / "kept", spec, read_run(folder))
    return tmp_path / "kept"


def test_round_trip(kept: Path, spec: Spec) -> None:
    run, manifest = load(kept, Path(spec.script), spec)
    assert run.marked
    assert run.values["0"].tolist() == [1, 1, 1]
    assert manifest["arguments"] == ["--epochs", "1"]
    assert manifest["environment"] == {"torch": "2.13.0"}
    assert [path.name for path in kept.parent.iterdir() if path.name.startswith(".")] == []


def test_a_capture_is_replaced_whole(kept: Path, spec: Spec) -> None:
    (kept / "old").write_text("")
    run, _ = load(kept, Path(spec.script), spec)
    keep(kept, kept, spec, run)
    assert not (kept / "old").exists()


def test_another_script(kept: Path, spec: Spec) -> None:
    Path(spec.script).write_text("print('changed')\n")
    with pytest.raises(SmokeError, match="another script"):
        load(kept, Path(spec.script), spec)


@pytest.mark.parametrize(
    ("change", "name"),
    [({"arguments": ()}, "arguments"), ({"seed": 1}, "seed"), ({"steps": 4}, "steps"),
     ({"dropout": False}, "dropout")],
)  # fmt: skip
def test_another_run(kept: Path, spec: Spec, change: dict[str, object], name: str) -> None:
    with pytest.raises(SmokeError, match=f"captured with {name}"):
        load(kept, Path(spec.script), replace(spec, **change))  # type: ignore[arg-type]


def test_half_written(kept: Path, spec: Spec) -> None:
    (kept / MANIFEST).unlink()
    with pytest.raises(SmokeError, match="half-written"):
        load(kept, Path(spec.script), spec)


@pytest.mark.parametrize("name", [RECORD, TENSORS])
def test_cut_short(kept: Path, spec: Spec, name: str) -> None:
    data = (kept / name).read_bytes()
    (kept / name).write_bytes(data[:-1])
    with pytest.raises(SmokeError, match="damaged"):
        load(kept, Path(spec.script), spec)


def test_no_capture(tmp_path: Path, spec: Spec) -> None:
    with pytest.raises(SmokeError, match="no such folder"):
        load(tmp_path / "none", Path(spec.script), spec)
    with pytest.raises(SmokeError, match="no capture"):
        load(tmp_path, Path(spec.script), spec)


def test_a_folder_with_other_things_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_text("")
    with pytest.raises(SmokeError, match="no capture"):
        check_target(tmp_path)

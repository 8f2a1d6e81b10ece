"""References that are kept. No torch."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cuda2npu.running.process import RECORD
from cuda2npu.smoke.captured import MANIFEST, check_target, keep, load
from cuda2npu.smoke.outcome import Run, read_run
from cuda2npu.smoke.spec import TENSORS, SmokeError, Spec

pytest.importorskip("safetensors")


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    script = tmp_path / "train.py"
    script.write_text("print('train')\n")
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "net.py").write_text("print('net')\n")
    return Spec(str(script), ("--epochs", "1"), "", "cpu", cuda_on_cpu=True, steps=3)


def record(folder: Path, spec: Spec, rank: int = 0) -> Run:
    """The record of a run, as a process leaves it."""
    from safetensors.numpy import save_file

    own = folder / f"run{rank}"
    own.mkdir()
    save_file({"0": np.full(3, rank, np.float32)}, own / TENSORS)
    data = {"events": [], "state": [], "modules": {}, "ended": "steps", "steps": 3,
            "environment": {"torch": "2.13.0"}, "rank": rank}  # fmt: skip
    (own / RECORD).write_text(json.dumps(data))
    return read_run(own)


def files(spec: Spec) -> list[Path]:
    script = Path(spec.script)
    return [script, script.parent / "nets" / "net.py"]


@pytest.fixture
def kept(tmp_path: Path, spec: Spec) -> Path:
    keep(tmp_path / "kept", spec, 0, [record(tmp_path, spec)], files(spec))
    return tmp_path / "kept"


def test_round_trip(kept: Path, spec: Spec) -> None:
    (run,), read, manifest = load(kept, spec, 0)
    assert run.marked
    assert run.rank is None
    assert run.values["0"].tolist() == [0, 0, 0]
    assert read == files(spec)
    assert manifest["arguments"] == ["--epochs", "1"]
    assert manifest["environment"] == {"torch": "2.13.0"}
    assert [path.name for path in kept.parent.iterdir() if path.name.startswith(".")] == []


def test_several_processes(tmp_path: Path, spec: Spec) -> None:
    runs = [record(tmp_path, spec, rank) for rank in range(2)]
    keep(tmp_path / "kept", spec, 2, runs, files(spec))
    read = load(tmp_path / "kept", spec, 2).runs
    assert [(run.rank, run.values["0"][0]) for run in read] == [(0, 0), (1, 1)]
    with pytest.raises(SmokeError, match="captured with nproc 2, this run has 0"):
        load(tmp_path / "kept", spec, 0)


def test_a_capture_is_replaced_whole(kept: Path, spec: Spec) -> None:
    (kept / "old").write_text("")
    with pytest.raises(SmokeError, match="holds a capture already; --force replaces it"):
        check_target(kept, force=False)
    check_target(kept, force=True)
    keep(kept, spec, 0, load(kept, spec, 0).runs, files(spec))
    assert not (kept / "old").exists()


def test_another_script(kept: Path, spec: Spec) -> None:
    other = Path(spec.script).with_name("other.py")
    other.write_text("print('train')\n")
    with pytest.raises(SmokeError, match="another script"):
        load(kept, replace(spec, script=str(other)), 0)


@pytest.mark.parametrize("name", ["train.py", "nets/net.py"])
def test_another_version_of_the_program(kept: Path, spec: Spec, name: str) -> None:
    path = Path(spec.script).parent / name
    path.write_text("print('changed')\n")
    with pytest.raises(SmokeError, match=f"{name} is changed"):
        load(kept, spec, 0)
    path.unlink()
    with pytest.raises(SmokeError, match=f"{name} is missing"):
        load(kept, spec, 0)


def test_the_program_may_lie_elsewhere(kept: Path, spec: Spec, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    for path in files(spec):
        target = tmp_path / "elsewhere" / path.relative_to(tmp_path)
        target.parent.mkdir(exist_ok=True)
        path.rename(target)
    moved = replace(spec, script=str(tmp_path / "elsewhere" / "train.py"))
    assert load(kept, moved, 0).files == files(moved)


@pytest.mark.parametrize(
    ("change", "name"),
    [({"arguments": ()}, "arguments"), ({"seed": 1}, "seed"), ({"steps": 4}, "steps"),
     ({"dropout": False}, "dropout")],
)  # fmt: skip
def test_another_run(kept: Path, spec: Spec, change: dict[str, object], name: str) -> None:
    with pytest.raises(SmokeError, match=f"captured with {name}"):
        load(kept, replace(spec, **change), 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["[]", "{}", "null", '"manifest"', "3", "\\ff", "{"])
def test_what_is_no_manifest(kept: Path, spec: Spec, text: str) -> None:
    (kept / MANIFEST).write_text(text)
    with pytest.raises(SmokeError, match=r"capture|cannot be read"):
        load(kept, spec, 0)


@pytest.mark.parametrize(
    ("name", "value"), [("files", None), ("files", []), ("project", 1), ("processes", "two")]
)
def test_a_manifest_with_parts_missing(kept: Path, spec: Spec, name: str, value: object) -> None:
    manifest = json.loads((kept / MANIFEST).read_text())
    manifest[name] = value
    (kept / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(SmokeError, match=f"is damaged: {name} is missing or no"):
        load(kept, spec, 0)


def test_a_place_that_cannot_be_written(tmp_path: Path, spec: Spec) -> None:
    (tmp_path / "file").write_text("")
    for target in (tmp_path / "file" / "kept", Path("/proc/nope/kept")):
        with pytest.raises(SmokeError, match="cannot be written"):
            check_target(target, force=False)
        with pytest.raises(SmokeError, match="cannot be written"):
            keep(target, spec, 0, [], files(spec))
    check_target(tmp_path / "new" / "kept", force=False)
    assert not (tmp_path / "new").exists()


def test_half_written(kept: Path, spec: Spec) -> None:
    (kept / MANIFEST).unlink()
    with pytest.raises(SmokeError, match="half-written"):
        load(kept, spec, 0)
    check_target(kept, force=False)


@pytest.mark.parametrize("name", [RECORD, TENSORS])
def test_cut_short(kept: Path, spec: Spec, name: str) -> None:
    path = kept / "rank0" / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(SmokeError, match="damaged"):
        load(kept, spec, 0)


def test_no_capture(tmp_path: Path, spec: Spec) -> None:
    with pytest.raises(SmokeError, match="no such folder"):
        load(tmp_path / "none", spec, 0)
    with pytest.raises(SmokeError, match="no capture"):
        load(tmp_path, spec, 0)


def test_a_folder_with_other_things_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_text("")
    with pytest.raises(SmokeError, match="no capture"):
        check_target(tmp_path, force=True)

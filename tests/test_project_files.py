"""Whole projects on the command line: Python beside configs, requirements and containers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PROJECTS = Path(__file__).parent.parent / "fixtures" / "projects"
COMMAND = [sys.executable, "-m", "cuda2npu"]


def run(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=120
    )
    assert "Traceback" not in done.stderr
    return done


def test_a_patch_of_every_kind_of_file(tmp_path: Path) -> None:
    done = run("rewrite", PROJECTS / "detector" / "before", "--diff", cwd=tmp_path)
    assert done.returncode == 0
    for line in (
        "+distributed_type: MULTI_NPU",
        "+            - name: ASCEND_RT_VISIBLE_DEVICES",
        "+    ASCEND_LAUNCH_BLOCKING=1",
        "+    model.npu()",
    ):
        assert f"{line}\n" in done.stdout


def test_a_template_is_a_note_in_a_folder_and_an_error_by_name(tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text("{% if gpu %}\ndevice: cuda\n{% endif %}\n")
    (tmp_path / "a.yaml").write_text("env:\n  CUDA_VISIBLE_DEVICES: 0\n")
    for _ in range(2):
        done = run("rewrite", ".", cwd=tmp_path)
        assert done.returncode == 0
        assert "note: values.yaml: line 1: no YAML" in done.stderr
    assert (tmp_path / "a.yaml").read_text() == "env:\n  ASCEND_RT_VISIBLE_DEVICES: 0\n"
    done = run("check", "values.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert "error: values.yaml: line 1: no YAML" in done.stderr


def test_many_templates_are_counted(tmp_path: Path) -> None:
    for number in range(8):
        (tmp_path / f"t{number}.yaml").write_text("{% cuda %}\n")
    done = run("check", ".", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr.count("no YAML") == 5
    assert "3 more files could not be read" in done.stderr


def test_broken_python_stays_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print 'cuda'\n")
    assert run("check", ".", cwd=tmp_path).returncode == 2


def test_data_is_not_read_unless_it_is_named(tmp_path: Path) -> None:
    data = tmp_path / "annotations.json"
    data.write_text(json.dumps({"device": "cuda", "rows": ["x" * 99] * 11_000}))
    (tmp_path / "uv.lock").write_text('device = "cuda"\n')
    (tmp_path / "package-lock.json").write_text('{"device": "cuda"}')
    done = run("check", ".", cwd=tmp_path)
    assert done.returncode == 0
    assert "1 file not read, too large for settings: annotations.json" in done.stderr
    assert run("check", "annotations.json", cwd=tmp_path).returncode == 1
    done = run("rewrite", ".", "--output", "copy", cwd=tmp_path)
    assert (tmp_path / "copy" / "annotations.json").read_bytes() == data.read_bytes()


def test_stdin_is_read_as_its_name_says(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "rewrite", "--unsafe", "--stdin-filename", "c.yaml", "-"],
        input="device: cuda  # one\n",
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "device: npu  # one\n"


def test_suppressions_in_documents(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("device: cuda  # cuda2npu: ignore[NPU831]\n")
    (tmp_path / "requirements.txt").write_text("# cuda2npu: skip-file\nflash_attn\n")
    assert run("check", ".", cwd=tmp_path).returncode == 0


def test_the_shim_asks_for_torch_npu_and_edits_no_config(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch==2.1.0\n")
    (tmp_path / "c.yaml").write_text("env:\n  CUDA_VISIBLE_DEVICES: 0\n")
    done = run("check", ".", "--target", "shim", "--format", "json", cwd=tmp_path)
    assert [item["code"] for item in json.loads(done.stdout)["findings"]] == ["NPU837", "NPU840"]


def test_a_file_with_a_twin_for_npus_is_left_and_told_of(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    for name in ("cuda_backend.py", "npu_backend.py", "train.py"):
        (tmp_path / name).write_text("import torch\nx = torch.ones(2).cuda()\n")
    (tmp_path / "requirements-cuda.txt").write_text("flash-attn\n")
    (tmp_path / "requirements-npu.txt").write_text("torch-npu\n")
    done = run("rewrite", ".", cwd=tmp_path)
    note = "note: {}: left as it is, for CUDA: {} is its twin for NPUs"
    assert note.format("cuda_backend.py", "npu_backend.py") in done.stderr
    assert note.format("requirements-cuda.txt", "requirements-npu.txt") in done.stderr
    assert ".cuda()" in (tmp_path / "cuda_backend.py").read_text()
    assert ".npu()" in (tmp_path / "npu_backend.py").read_text()
    assert ".npu()" in (tmp_path / "train.py").read_text()
    named = run("check", "cuda_backend.py", cwd=tmp_path)
    assert (named.returncode, named.stdout) == (0, "")
    assert note.format("cuda_backend.py", "npu_backend.py") in named.stderr

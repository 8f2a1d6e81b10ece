"""A rule pack of somebody else, installed as its readme says and found by its entry point."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACK = ROOT / "fixtures" / "rule-pack"
TRAIN = """\
import torch
from acme_train import AcmeTrainer
from acme_train.kernels import fused_norm

AcmeTrainer(torch.nn.Linear(2, 2).cuda(), accelerator="gpu")
AcmeTrainer(fused_norm, accelerator="gpu")  # cuda2npu: ignore
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the pack's package, for PYTHONPATH."""
    source = shutil.copytree(PACK, tmp_path_factory.mktemp("source") / "rule-pack")
    target = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    subprocess.run([*pip, target, source], check=True)
    return target


def run(
    *arguments: str | Path, cwd: Path, packages: Path | None
) -> subprocess.CompletedProcess[str]:
    path = {} if packages is None else {"PYTHONPATH": str(packages)}
    return subprocess.run(
        [sys.executable, "-m", *map(str, arguments)],
        cwd=cwd,
        env=os.environ | path,
        capture_output=True,
        text=True,
        check=False,
    )


def codes(folder: Path, packages: Path | None) -> list[tuple[str, int]]:
    done = run("cuda2npu", "check", "--format", "json", "train.py", cwd=folder, packages=packages)
    assert done.returncode == 1, done.stderr
    return [(item["code"], item["line"]) for item in json.loads(done.stdout)["findings"]]


def test_its_rules_stand_beside_those_of_the_tool(tmp_path: Path, installed: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    assert codes(tmp_path, None) == [("NPU101", 5)]
    assert codes(tmp_path, installed) == [("ACME002", 3), ("NPU101", 5), ("ACME001", 5)]


def test_it_edits_together_with_the_tool(tmp_path: Path, installed: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    done = run("cuda2npu", "rewrite", "train.py", cwd=tmp_path, packages=installed)
    assert done.returncode == 0
    assert (tmp_path / "train.py").read_text() == TRAIN.replace(
        "import torch\n", "import torch\nimport torch_npu  # noqa: F401\n"
    ).replace('.cuda(), accelerator="gpu"', '.npu(), accelerator="npu"')


def test_its_rules_are_explained_and_selected(tmp_path: Path, installed: Path) -> None:
    done = run("cuda2npu", "rules", "acme001", cwd=tmp_path, packages=installed)
    assert "acme-trainer-gpu" in done.stdout
    (tmp_path / "pyproject.toml").write_text('[tool.cuda2npu]\nselect = ["ACME"]\n')
    (tmp_path / "train.py").write_text(TRAIN)
    assert codes(tmp_path, installed) == [("ACME002", 3), ("ACME001", 5)]


def test_its_own_tests_pass_and_can_fail(tmp_path: Path, installed: Path) -> None:
    pack = shutil.copytree(PACK, tmp_path / "rule-pack")
    done = run("pytest", "-q", "tests", cwd=pack, packages=installed)
    assert (done.returncode, done.stdout.count("1 passed")) == (0, 1), done.stdout
    broken = shutil.copytree(installed, tmp_path / "broken")
    module = broken / "acme_npu_rules" / "trainer.py"
    module.write_text(module.read_text().replace('replace("gpu", "npu")', 'replace("gpu", "xpu")'))
    done = run("pytest", "-q", "tests", cwd=pack, packages=broken)
    assert done.returncode == 1
    assert "ACME001, rewrite 'from acme_train import AcmeTrainer" in done.stdout

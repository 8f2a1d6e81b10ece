"""Whatever way a script takes to its own files, the rewritten ones run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cuda2npu.model import Options
from cuda2npu.running.process import SPEC
from cuda2npu.smoke.files_read import files_read
from cuda2npu.smoke.overlay import rewritten
from cuda2npu.smoke.process import environment
from cuda2npu.smoke.spec import Spec
from cuda2npu.smoke.stage import Report, Request, capture, smoke
from smoke.support import TIMEOUT
from smoke.test_end_to_end import explain

PROJECT = {
    "pkg/__init__.py": "",
    "pkg/__main__.py": "from .train import main\nmain()\n",
    "pkg/train.py": """
import importlib, sys, torch
from .data import batch

def main():
    net = importlib.import_module("pkg.nets." + sys.argv[1]).Net().cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        net(batch()).square().mean().backward()
        optimizer.step()

if __name__ == "__main__":
    assert (__package__, __spec__.name) == ("pkg", "pkg.train")
    main()
""",
    "pkg/data.py": "import torch\n\ndef batch():\n    return torch.randn(4, 8).cuda()\n",
    "pkg/nets/small.py": """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)

    def forward(self, x):
        return self.layer(x) + torch.ones(2, device="cuda")
""",
    "pkg/nets/unused.py": "def (\n",
    "tools/worker.py": """
import sys
sys.path.append("extra")
import torch, plugin
net = torch.nn.Linear(8, 2).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net(plugin.batch(int(sys.argv[1]))).sum().backward()
optimizer.step()
""",
    "extra/plugin.py": """
import torch

def batch(size):
    return torch.ones(size, 8).cuda()
""",
    "launch.py": """
import os, subprocess, sys
try:
    import nowhere
except ImportError:
    pass
subprocess.run([sys.executable, "tools/worker.py", "3"], check=True)
os.system(f"{sys.executable} -m pkg small")
""",
    "src/nowhere/__init__.py": "import torch\ntorch.ones(1).cuda()\nraise RuntimeError\n",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "project"
    for name, text in PROJECT.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    monkeypatch.chdir(root)
    return root


def run(script: str, *arguments: str, **options: object) -> Report:
    written_for = Options(torch_npu="2.13.0")
    request = Request(Path(script), arguments, timeout=TIMEOUT, options=written_for,
                      **options)  # type: ignore[arg-type]  # fmt: skip
    report = smoke(request)
    assert report.code == 0, explain(report)
    assert report.not_rewritten == []
    return report


def edited(report: Report, project: Path) -> set[str]:
    return {str(Path(edit.path).relative_to(project)) for edit in report.edits}


def test_a_module_of_a_package(project: Path, torch_npu: str) -> None:
    report = run("pkg.train", "small", module=True)
    assert edited(report, project) == {"pkg/train.py", "pkg/data.py", "pkg/nets/small.py"}
    assert report.comparison is not None
    assert {"Net", "Net.layer"} <= {row.name for row in report.comparison.rows}


def test_scripts_that_a_script_starts(project: Path, torch_npu: str) -> None:
    """By their path in the working folder and as modules; each trains, so each is compared."""
    report = run("launch.py")
    assert sorted(report.ranks) == [0, 1]
    assert edited(report, project) == {
        "tools/worker.py", "extra/plugin.py", "pkg/train.py", "pkg/data.py", "pkg/nets/small.py",
    }  # fmt: skip


def test_a_package_is_captured_and_compared(project: Path, torch_npu: str, tmp_path: Path) -> None:
    request = Request(Path("pkg"), ("small",), timeout=TIMEOUT, module=True)
    capture(request, tmp_path / "kept")
    manifest = json.loads((tmp_path / "kept" / "manifest.json").read_text())
    assert set(manifest["project"]) == {
        "__main__.py", "__init__.py", "train.py", "data.py", "nets/small.py"
    }  # fmt: skip
    report = run("pkg", "small", module=True, reference=tmp_path / "kept")
    assert "pkg/nets/small.py" in edited(report, project)


def test_each_process_is_led_to_the_copies(project: Path, tmp_path: Path) -> None:
    """No torch: what is read is noted, copies run, and the user's own customization too."""
    given = tmp_path / "given"
    given.mkdir()
    (given / "sitecustomize.py").write_text("import sys\nsys.customized = True\n")
    (project / "shown.py").write_text(
        "import sys, extra.plugin\n"
        "print(sys.customized, sys.argv[1:], __file__, extra.plugin.__file__)\n"
    )
    (project / "extra" / "plugin.py").write_text("import torch\nx = torch.device\n")
    (tmp_path / "torch.py").write_text("device = None\n")
    files = [project / "shown.py", project / "extra" / "plugin.py"]
    copy = tmp_path / "copy"
    rewritten(files, project, copy, Options())
    folder = tmp_path / "run"
    folder.mkdir()
    spec = Spec("", (), str(folder), "npu", root=str(project), copy=str(copy))
    spec.write(folder / SPEC)
    path = f"{given}:{tmp_path}"
    done = subprocess.run(
        [sys.executable, "-X", "dev", "shown.py", "a b", "c"],
        env=environment({"PYTHONPATH": path}, folder, hidden=False),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shown = [str(copy / "shown.py"), str(copy / "extra" / "plugin.py")]
    assert done.stdout.split("] ")[1].split() == shown
    assert done.stdout.startswith("True ['a b', 'c']")
    assert set(map(str, files_read(folder))) == {*shown, str(tmp_path / "torch.py")}

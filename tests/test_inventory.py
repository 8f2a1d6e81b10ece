"""The inventory of a project: counts, kernels and their callers, libraries; text and JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cuda2npu.model import Finding, FixLevel, Options
from cuda2npu.packs import libraries
from cuda2npu.project import Mode, Outcome, process_bytes
from cuda2npu.report.inventory import Inventory, as_data
from cuda2npu.report.overview import overview
from cuda2npu.survey import Import, Survey, imports, survey

PROJECT = {
    "setup.py": """
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension
setup(ext_modules=[CUDAExtension("net.ops.scan_cuda", ["net/ops/csrc/scan.cu"])])
""",
    "net/__init__.py": "from .model import Net\n",
    "net/ops/__init__.py": "from .scan import Scan as Scan\nfrom . import plain\n",
    "net/ops/scan.py": "import torch\nimport scan_cuda\n\nclass Scan:\n    run = scan_cuda.fwd\n",
    "net/ops/plain.py": "import torch\n",
    "net/model.py": "from net.ops import (  # the scan\n    plain,\n    Scan,\n)\n",
    "net/other.py": "import torch\nfrom .ops.plain import x\n",
    "net/ops/csrc/scan.cu": "__global__ void scan() {}\n",
    "train.py": """
import torch, deepspeed
from net.ops.scan import Scan
try:
    import flash_attn
except ImportError:
    flash_attn = None
model = torch.nn.Linear(2, 2).cuda()
w = torch.load("w.pt")
""",
    "tools/notes.py": """
'''
import xformers
'''
# import vllm, other_scan.cu, scan.cuh
x = "\\nimport apex"
""",
    "tools/cli.py": "import deepspeed.comm as dist; from mmcv.ops import nms\n",
    "vllm/__init__.py": "",
    "serve.py": "import vllm\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in PROJECT.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def check(
    folder: Path, *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cuda2npu", "check", *arguments]
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "Traceback" not in done.stderr
    return done


class TestImports:
    @pytest.mark.parametrize(
        ("source", "found"),
        [
            ("import a", [Import("a", ())]),
            ("import a.b as c, d", [Import("a.b", ()), Import("d", ())]),
            ("from a import b", [Import("a", ("b",))]),
            ("from a import (b as x,  # c\n  d,\n)", [Import("a", ("b", "d"))]),
            ("from a import b, \\\n  c", [Import("a", ("b", "c"))]),
            ("from . import b", [Import(".", ("b",))]),
            ("from ..a.b import *", [Import("..a.b", ("*",))]),
            ("if x: import a; import b", [Import("a", ()), Import("b", ())]),
            ("try:\n\timport a\nexcept: pass", [Import("a", ())]),
            ("import a\r\nimport b\r\n", [Import("a", ()), Import("b", ())]),
            ("x = '''\nimport a\n'''\nimport b", [Import("b", ())]),
            ('"""it\'s\nimport a\n"""', []),
            ("s = 'it\\'s'; import a", [Import("a", ())]),
            ("# import a\n#: import b", []),
            ("print 'python 2'\nimport a", [Import("a", ())]),
            ("yield from a\nraise X from b", []),
            ("from_x = 1\nimportant = 2", []),
            ("import a\n# important\nx = 'import b'\n", [Import("a", ())]),
            ("import a\nx = [\n'import b; import c']\n", [Import("a", ())]),
            ("import 包", [Import("包", ())]),
        ],
    )
    def test_statements(self, source: str, found: list[Import]) -> None:
        assert list(imports(source.encode())) == found

    def test_bytes_that_are_no_text(self) -> None:
        assert list(imports(b"import \xff\xfe, a\n"))[1] == Import("a", ())
        assert list(imports(b"")) == []


class TestSurvey:
    @pytest.fixture
    def found(self, project: Path) -> Survey:
        paths = sorted(str(path) for path in project.rglob("*.py"))
        findings: list[Finding] = []
        for path in paths:
            data = Path(path).read_bytes()
            findings += process_bytes(path, data, Options(), Mode.CHECK).findings
        sources = [str(project / "net/ops/csrc/scan.cu")]
        return survey(paths, sources, [finding for finding in findings if finding.kernels])

    def test_a_kernel_and_who_uses_it(self, found: Survey, project: Path) -> None:
        (kernel,) = found.kernels
        assert kernel.name == "scan_cuda"
        assert {finding.name for finding in kernel.places} == {
            "cuda-extension",
            "compiled-kernel-import",
        }
        # train.py by its module, model.py through the package; other.py uses another module.
        names = [Path(path).relative_to(project).as_posix() for path in kernel.callers]
        assert sorted(names) == ["net/model.py", "train.py"]

    def test_a_source_and_who_names_it(self, found: Survey, project: Path) -> None:
        (source,) = found.sources
        assert source.named_by == (str(project / "setup.py"),)

    def test_libraries(self, found: Survey) -> None:
        known = {use.library.name: len(use.files) for use in found.libraries}
        # Not xformers and apex of strings, nor the project's own vllm.
        assert known == {"flash_attn": 1, "mmcv": 1, "deepspeed": 2}
        assert [use.library.support for use in found.libraries] == ["none", "ported", "works"]

    def test_it_stops(self, project: Path) -> None:
        paths = [str(project / "train.py")]
        assert survey(paths, [], [], stopped=lambda: True).libraries == ()

    def test_scripts_of_the_same_name_are_told_apart(self, tmp_path: Path) -> None:
        for folder in ("a", "b"):
            (tmp_path / folder).mkdir()
            (tmp_path / folder / "ops.py").write_text("import torch\n")
            (tmp_path / folder / "main.py").write_text("import ops\n")
        place = (str(tmp_path / "a/ops.py"), 1, 1, 1, 1, "NPU523", "name", "", FixLevel.NONE, False)
        paths = sorted(map(str, tmp_path.rglob("*.py")))
        (kernel,) = survey(paths, [], [Finding(*place, kernels=("k",))]).kernels
        assert kernel.callers == (str(tmp_path / "a/main.py"),)

    def test_a_kernel_without_a_name_is_known_by_its_file(self, tmp_path: Path) -> None:
        build = (
            "from torch.utils.cpp_extension import load\n"
            "class Builder:\n"
            "    def load(self):\n"
            "        kernel = load(name=self.name, sources=self.files(), extra_cuda_cflags=[])\n"
            "        return kernel\n"
        )
        files = {
            "builder.py": build,
            "scan_cuda.py": "import builder\n",
            "cpu_adam.py": "import builder\n",
        }
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        paths = sorted(map(str, tmp_path.iterdir()))
        findings = process_bytes(
            str(tmp_path / "builder.py"), build.encode(), Options(), Mode.CHECK
        ).findings
        (kernel,) = survey(paths, [], [finding for finding in findings if finding.kernels]).kernels
        assert kernel.name == "builder.py"
        assert kernel.callers == (str(tmp_path / "scan_cuda.py"),)


def test_every_library_has_an_answer() -> None:
    assert len(libraries()) > 50
    for name, library in libraries().items():
        assert name == library.name
        assert len(library.advice.split()) > 1 or "-" in library.advice
        assert not library.advice.endswith(".")


@pytest.mark.parametrize("module", ["nothing.like.that", "a_pack"])
def test_a_pack_whose_libraries_cannot_be_loaded(project: Path, module: str) -> None:
    site = project / "site"
    (site / "their_rules-1.dist-info").mkdir(parents=True)
    pack = f"from cuda2npu.pack import Pack\npack = Pack('a', (), (), libraries={module!r})\n"
    (site / "a_pack.py").write_text(pack)
    info = site / "their_rules-1.dist-info"
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-rules\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[cuda2npu.packs]\nabc = a_pack:pack\n")
    done = check(project, ".", environment={"PYTHONPATH": str(site)})
    assert done.returncode == 2
    assert "error: the rule pack a of the package their-rules cannot be loaded" in done.stderr


def finding(path: str, level: FixLevel, *, applied: bool = False, quiet: bool = False) -> Finding:
    return Finding(path, 1, 1, 1, 2, "NPU101", "name", "why", level, quiet, applied=applied)


@pytest.fixture
def inventory() -> Inventory:
    counted = Inventory()
    safe = [finding("a.py", FixLevel.SAFE, applied=True, quiet=quiet) for quiet in (True, False)]
    counted.add(Outcome("a.py", findings=tuple(safe)))
    hand = finding("b.py", FixLevel.NONE)
    counted.add(Outcome("b.py", findings=(hand, hand, safe[0])))
    counted.add(Outcome("c.py", findings=(hand,)))
    counted.add(Outcome("d.py"))
    return counted


class TestInventory:
    def test_counts(self, inventory: Inventory) -> None:
        assert (inventory.files, len(inventory.found)) == (4, 3)
        assert (inventory.total.findings, inventory.total.automatic, inventory.share) == (6, 3, 50)
        assert inventory.by_level()[FixLevel.SAFE].findings == 3
        assert inventory.by_quiet()[True].findings == 2
        assert [path for path, _ in inventory.open_files()] == ["b.py", "c.py"]
        assert [kind.quiet for kind, _ in inventory.in_order()] == [True, False, False]

    def test_all_is_only_said_of_all(self) -> None:
        counted = Inventory()
        applied = (finding("a.py", FixLevel.SAFE, applied=True),) * 999
        counted.add(Outcome("a.py", findings=(*applied, finding("a.py", FixLevel.NONE))))
        assert counted.share == 99

    def test_text(self, inventory: Inventory) -> None:
        lines = "\n".join(overview(inventory))
        assert "3 of 6 findings (50 %) are automatic, and 1 of 3 files needs nothing else." in lines
        assert "    2 of 3    b.py" in lines
        assert "Custom kernels" not in lines

    def test_data(self, inventory: Inventory) -> None:
        data = json.loads(json.dumps(as_data(inventory)))
        assert data["fix"] == {"safe": 3, "numerics": 0, "unsafe": 0, "none": 3}
        assert data["open_files"][0] == {"path": "b.py", "findings": 3, "left": 2}
        assert sum(rule["findings"] for rule in data["rules"]) == data["findings"] == 6


class TestCommand:
    def test_a_folder_ends_with_a_plan(self, project: Path) -> None:
        text = check(project, ".").stderr
        assert "scan_cuda: net/ops/scan.py:2 (compiled-kernel-import), setup.py:4" in text
        assert "used by train.py, net/model.py" in text
        assert "net/ops/csrc/scan.cu, named in setup.py" in text
        assert text.index("no NPU version\n    flash_attn") < text.index("working as they are")
        assert "Files by findings left after rewrite:" in text

    def test_named_files_do_not(self, project: Path) -> None:
        text = check(project, "train.py", "setup.py", "net/ops/scan.py").stderr
        assert "findings in 3 files" in text
        assert "Custom kernels" not in text
        assert len(text.splitlines()) < 9

    def test_a_folder_without_findings_is_one_line(self, project: Path) -> None:
        done = check(project, "vllm")
        assert (done.returncode, done.stderr) == (0, "No findings, 1 file looked at.\n")

    def test_cuda_sources_alone_are_told(self, project: Path) -> None:
        (project / "net/ops/csrc/__init__.py").write_text("")
        done = check(project, "net/ops/csrc")
        assert done.returncode == 0
        assert "CUDA sources: 1 file\n  net/ops/csrc/scan.cu\n" in done.stderr
        assert "CUDA sources" not in check(project, "net/ops/csrc", "--exclude", "*.cu").stderr

    def test_json(self, project: Path) -> None:
        parsed = json.loads(check(project, ".", "--format", "json").stdout)
        summary = parsed["summary"]
        assert summary["findings"] == len(parsed["findings"])
        assert summary["kernels"][0]["callers"] == ["train.py", "net/model.py"]
        assert summary["cuda_sources"] == [
            {"path": "net/ops/csrc/scan.cu", "named_by": ["setup.py"]}
        ]
        assert {"name", "support", "advice", "files"} == set(summary["libraries"][0])

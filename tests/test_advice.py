"""Advice on performance, from the command line: found when it is asked for, and silent else."""

from __future__ import annotations

import ast
import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cuda2npu_codemods.advice_optimizers import _TAKEN
from needs import needs

from cuda2npu.engine import rewrite_source
from cuda2npu.model import Options
from cuda2npu.packs import load_rules

FIXTURE = Path(__file__).parent.parent / "fixtures" / "advice"
EXPECTED = [tuple(row.split("\t")) for row in (FIXTURE / "findings.txt").read_text().splitlines()]


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cuda2npu", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def found(folder: Path, *options: str) -> list[tuple[str, ...]]:
    done = run(folder, "check", ".", "--format", "json", *options)
    assert done.returncode in (0, 1), done.stderr
    findings = json.loads(done.stdout)["findings"]
    return [(f["path"], str(f["line"]), f["code"], f["name"]) for f in findings]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fixture with one line that the rules which are on by default speak of."""
    folder = tmp_path_factory.mktemp("advice") / "project"
    shutil.copytree(FIXTURE, folder)
    (folder / "cuda.py").write_text("import torch\nx = torch.ones(2).cuda()\n")
    return folder


CUDA = ("cuda.py", "2", "NPU101", "tensor-cuda-call")


def test_found_where_it_is_due_and_nowhere_else(project: Path) -> None:
    assert found(project, "--select", "NPU7") == EXPECTED


def test_off_by_default_and_for_the_letters_of_the_pack(project: Path) -> None:
    assert found(project) == [CUDA]
    assert found(project, "--select", "NPU") == [CUDA]


def test_beside_the_rules_that_are_on(project: Path) -> None:
    both = [CUDA, *EXPECTED]
    assert found(project, "--extend-select", "NPU7") == both
    assert found(project, "--select", "NPU,NPU7") == both
    assert found(project, "--extend-select", "NPU7", "--ignore", "NPU7") == [CUDA]


def test_in_the_settings_of_a_project(project: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(project, tmp_path / "project")
    (folder / "pyproject.toml").write_text('[tool.cuda2npu]\nextend-select = ["NPU741"]\n')
    expected = [row for row in EXPECTED if row[2] == "NPU741"]
    assert found(folder) == [CUDA, *expected]
    assert found(folder, "--select", "NPU1") == [CUDA]


def test_a_comment_on_one_place_hides_no_other(tmp_path: Path) -> None:
    ignored = "# cuda2npu: ignore"
    (tmp_path / "gan.py").write_text(
        "import torch\nfor x in loader:\n    loss.backward()\n"
        f"    a = loss.item()  {ignored}[NPU743]\n    b = fake.item()\n    c = real.item()\n"
    )
    (tmp_path / "rotary.py").write_text(
        "import torch\nfrom .llama import rotate_half\ndef apply(q, k, cos, sin):\n"
        f"    q = q * cos + rotate_half(q) * sin  {ignored}[NPU751]\n"
        "    k = k * cos + rotate_half(k) * sin\n    return q, k\n"
    )
    places = [row[:3] for row in found(tmp_path, "--select", "NPU7")]
    assert places == [
        ("gan.py", "5", "NPU743"), ("gan.py", "6", "NPU743"), ("rotary.py", "5", "NPU751")
    ]  # fmt: skip


def test_a_chip_hears_only_what_holds_for_it(project: Path, tmp_path: Path) -> None:
    assert "NPU731" not in {row[2] for row in found(project, "--select", "NPU7", "--chip", "A2")}
    (tmp_path / "mlp.py").write_text(
        "import torch\nimport torch.nn.functional as F\ndef f(x):\n"
        "    gate, up = x.chunk(2, dim=-1)\n    return F.silu(gate) * up\n"
    )
    for chip, expected in (("A3", ["NPU753"]), ("950", [])):
        codes = [row[2] for row in found(tmp_path, "--select", "NPU7", "--chip", chip)]
        assert codes == expected


FUSED = [rule for rule in load_rules() if "NPU750" <= rule.code <= "NPU757"]


@pytest.mark.parametrize(
    ("rule", "source"),
    [(r.code, e.before) for r in FUSED for e in r.examples if e.kind == "report"],
)
def test_a_call_that_is_advised_has_only_names_of_the_code(rule: str, source: str) -> None:
    findings = rewrite_source(source, Options(select=(rule,))).findings
    assert findings
    for finding in findings:
        text = "torch_npu." + finding.message.partition("torch_npu.")[2].replace("…", "...")
        ends = (end for end, letter in enumerate(text, 1) if letter == ")")
        call = next(text[:end] for end in ends if text[:end].count("(") == text[:end].count(")"))
        own = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
        own |= {node.arg for node in ast.walk(ast.parse(source)) if isinstance(node, ast.arg)}
        used = {node.id for node in ast.walk(ast.parse(call)) if isinstance(node, ast.Name)}
        assert used <= {*own, "torch", "torch_npu"}


def test_what_is_too_long_is_no_variable() -> None:
    x = f"project({', '.join(f'argument_{number}' for number in range(12))})"
    root = f"torch.rsqrt({x}.pow(2).mean(-1, keepdim=True) + 1e-6)"
    source = f"import torch\ndef norm(weight):\n    return weight * ({x} * {root})\n"
    (finding,) = rewrite_source(source, Options(select=("NPU750",))).findings
    assert "npu_rms_norm(…, weight, epsilon=1e-06)[0]" in finding.message


@needs("torch_npu")
def test_the_options_of_the_vendor_s_optimizers() -> None:
    package = Path(importlib.util.find_spec("torch_npu").origin).parent  # type: ignore[union-attr, arg-type]
    for name, taken in _TAKEN.items():
        tree = ast.parse((package / "optim" / f"npu_fused_{name.lower()}.py").read_text("utf-8"))
        makers = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef))
        maker = next(node for node in makers if node.name == "__init__")
        assert [each.arg for each in maker.args.args] == ["self", "params", *taken.split()], name


def test_nothing_is_edited(project: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(FIXTURE, tmp_path / "project")
    done = run(folder, "rewrite", ".", "--select", "NPU7")
    assert done.returncode == 0, done.stderr
    for path in FIXTURE.iterdir():
        assert (folder / path.name).read_bytes() == path.read_bytes()


def test_a_baseline_holds_it(tmp_path: Path) -> None:
    folder = shutil.copytree(FIXTURE, tmp_path / "project")
    options = ("--select", "NPU7", "--baseline", "known.json")
    assert run(folder, "check", ".", *options, "--write-baseline").returncode == 0
    assert run(folder, "check", ".", *options).returncode == 0


def test_sarif_describes_its_rules(project: Path) -> None:
    done = run(project, "check", "train.py", "--select", "NPU701", "--format", "sarif")
    (rule,) = json.loads(done.stdout)["runs"][0]["tool"]["driver"]["rules"]
    assert rule["id"] == "NPU701"


def test_rules_tells_that_it_is_off_and_where_the_fact_was_read(tmp_path: Path) -> None:
    rows = [row.split() for row in run(tmp_path, "rules").stdout.splitlines()]
    off = {row[0] for row in rows if row[-1] == "off"}
    assert {row[2] for row in EXPECTED} <= off
    assert {code for code in off if not code.startswith("NPU7")} == {"NPU573", "NPU903"}
    family = run(tmp_path, "rules", "npu7").stdout.split()
    assert {word for word in family if word.startswith("NPU")} == {c for c in off if "NPU7" in c}
    told = run(tmp_path, "rules", "NPU701").stdout
    assert "off by default: --extend-select NPU701 adds it" in told
    assert "source: " in told

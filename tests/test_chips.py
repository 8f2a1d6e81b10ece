"""What a chip does not support: the data, the names of chips, the rule, and the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from cuda2npu_codemods.chip_support import WORDS
from needs import needs

from cuda2npu.config import CHIP_RULE
from cuda2npu.engine import rewrite_source
from cuda2npu.model import Options
from cuda2npu.packs import rule_words, trigger_pattern
from cuda2npu.releases import RELEASES
from cuda2npu.releases.chips import FAMILIES, SOC_NAMES, family
from cuda2npu.releases.support import (
    DATA,
    ever_unsupported,
    page_release,
    page_releases,
    table,
    unsupported,
)

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tools"))

SOURCE = """\
import torch
from torch.nn import LSTMCell

cell = LSTMCell(80, 256)
labels, _ = torch.mode(votes, dim=1)
y = torch.matmul(x.cuda(), cell.weight_ih)
"""


def options(chip: str, **given: str) -> Options:
    return replace(Options(chip=chip, extend_select=(CHIP_RULE,)), **given)  # type: ignore[arg-type]


def found(source: str, chip: str, **given: str) -> list[str]:
    """The APIs that are reported."""
    result = rewrite_source(source, options(chip, **given))
    return [f.message.split(" ")[0] for f in result.findings if f.code == CHIP_RULE]


class TestData:
    def test_source_and_licence_stand_in_it(self) -> None:
        head = [line for line in DATA.read_text("utf-8").splitlines() if line.startswith("#")]
        for words in ("Ascend/pytorch", "CC-BY 4.0", "https://creativecommons.org", "changed:"):
            assert any(words in line for line in head), words

    def test_every_mark_has_its_reason(self) -> None:
        for name, api in table().items():
            marks = "".join(api.marks.values())
            assert set(marks) <= set("ync?-."), name
            assert ("n" in marks) == bool(api.operators), name
            against = [entry for entry in api.seen if " aten::" not in entry]
            assert ("c" in marks or "?" in marks) <= bool(against), name

    def test_what_every_network_needs_is_not_reported(self) -> None:
        for name in ("torch.matmul", "torch.nn.Linear", "torch.nn.functional.interpolate"):
            assert table()[name].mark("2.13.0", "950") == "c"
            assert table()[name].mark("2.13.0", "A2") == "y"

    def test_a_mark_is_one_of_a_family_and_a_release(self) -> None:
        assert "torch.nn.LSTMCell" in unsupported("2.13.0", "950")
        assert "torch.nn.LSTMCell" not in unsupported("2.13.0", "A2")
        assert table()["torch.nn.GRU"].marks["2.10.0"] == "ccc"
        assert table()["torch.nn.functional.scaled_mm"].mark("2.7.1", "A2") == ""

    def test_the_page_of_a_release(self) -> None:
        assert set(page_releases()) < set(RELEASES)
        pages = [page_release(each) for each in ("2.6.0", "2.7.1", "2.9.1", "2.10.0", "2.14.0")]
        assert pages == [None, "2.7.1", "2.7.1", "2.10.0", "2.13.0"]


class TestNames:
    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("A2", "A2"), ("a3", "A3"), ("950", "950"), ("Atlas A2", "A2"), ("910b", "A2"),
            ("Ascend910B4-1", "A2"), ("ascend910b2c", "A2"), ("Ascend910_9391", "A3"),
            ("910_93", "A3"), ("910C", "A3"), ("Ascend950DT", "950"), ("ascend950dt_9591", "950"),
        ],
    )  # fmt: skip
    def test_known(self, name: str, expected: str) -> None:
        assert family(name) == expected

    @pytest.mark.parametrize(
        ("name", "fault"),
        [
            ("Ascend310P3", "do not cover Ascend310P3, only A2, A3, 950"),
            ("A4", "unknown chip 'A4': the nearest is A3"),
            ("Ascend910B9", "the nearest is Ascend910B4"),
            ("Ascend950PR_9589", "the nearest is 950"),
            ("", "the nearest is A3"),
        ],
    )
    def test_unknown(self, name: str, fault: str) -> None:
        with pytest.raises(ValueError, match=fault):
            family(name)

    def test_every_soc_name_is_known(self) -> None:
        for soc in SOC_NAMES:
            if soc.startswith(("Ascend910B", "Ascend910_93")) and soc != "Ascend910B":
                assert family(soc.lower()) in ("A2", "A3")
            elif soc != "Ascend910B":  # what people call A2
                with pytest.raises(ValueError, match=f"do not cover {soc}"):
                    family(soc)


class TestRule:
    def test_every_api_has_a_word(self) -> None:
        for name in ever_unsupported():
            last = name.rpartition(".")[2]
            for text in (f".{last}(", f" {last}(", f" {last} as "):
                assert any(word in text for word in WORDS), name
        lasts = [name.rpartition(".")[2] for name in ever_unsupported()]
        for word in WORDS:
            assert any(word in f"{last}( {last} as " for last in lasts), word

    def test_every_function_is_found_on_its_chips_alone(self) -> None:
        for chip in FAMILIES:
            for name in ever_unsupported():
                expected = [name] if name in unsupported("2.13.0", chip) else []
                assert found(f"import torch\nx = {name}(y)\n", chip) == expected

    @pytest.mark.parametrize(
        "source",
        [
            "from diffusers import Encoded\nx = encoded.latent_dist.mode()",
            "import torch\nx = torch.ones(3).mode()",
            "import numpy as np\nx = np.random.poisson(3)",
            "import torch\ndef LSTMCell(n): ...\nx = LSTMCell(3)",
            "import torch\nx = y.to_sparse_csr()",
            "import torch\nx = torch.linalg.lstsq(a.cpu(), b)",
            "import torch\nx = torch.eye(3).cpu().to_sparse_csr()",
            "import torch\nisinstance(x, torch.nn.LSTMCell)",
            "import torch\nx = torch.mode(torch.zeros(3))",
            "import torch\nz = torch.zeros(3)\nx = torch.mode(z)",
            "import torch\nwith torch.device('cpu'):\n    x = torch.mode(torch.zeros(3))",
            "import torch\nx = torch.eye(3)\ny = x.to_sparse_csr()",
            "from torch.nn import LSTMCell\nfrom .nn import LSTMCell as Cell",
        ],
    )
    def test_left_alone(self, source: str) -> None:
        assert found(source, "950") == []

    @pytest.mark.parametrize(
        ("source", "name"),
        [
            ("from torch import mode\nx = mode(y)", "torch.mode"),
            ("from torch import ones, mode as tm\nx = tm(y)", "torch.mode"),
            ("from torch.nn import LSTMCell as Cell\nx = Cell(3, 3)", "torch.nn.LSTMCell"),
            ("from torch import nn\nclass Cell(nn.LSTMCell): ...", "torch.nn.LSTMCell"),
            ("import torch\nx = torch.mode(torch.zeros(3, device=d))", "torch.mode"),
            ("import torch\nx = torch.mode(torch.zeros(3).cuda())", "torch.mode"),
            (
                "import torch\ntorch.set_default_device(d)\nx = torch.mode(torch.zeros(3))",
                "torch.mode",
            ),
            (
                "import torch\nwith torch.device('cuda'):\n    x = torch.mode(torch.zeros(3))",
                "torch.mode",
            ),
        ],
    )
    def test_found_by_any_road(self, source: str, name: str) -> None:
        assert found(source, "950") == [name]

    def test_what_happens_is_said(self) -> None:
        calls = (
            "import torch\nx = torch.smm(a, b)\ny = torch.mode(a)\nz = torch.nn.LSTMCell(3, 3)\n"
        )
        calls += "d = torch.pdist(a)"
        raises, falls_back, no_aclnn, gradient = rewrite_source(calls, options("950")).findings
        assert "aten::sspaddmm.out raises there" in raises.message
        assert "runs on the CPU" in falls_back.message
        assert "has no aclnn kernel" in no_aclnn.message
        assert "its gradient, aten::_pdist_backward, has no kernel" in gradient.message
        assert [f.quiet for f in (raises, falls_back, no_aclnn)] == [False, True, False]

    def test_the_page_is_named(self) -> None:
        (finding,) = rewrite_source(
            "import torch\nx = torch.mode(a)", options("A3", torch_npu="2.9.1")
        ).findings
        assert "not supported on Atlas A3 (support page of torch_npu 2.7.1)" in finding.message

    def test_nothing_else_changes(self) -> None:
        for path in sorted((ROOT / "fixtures" / "projects").rglob("*.py"))[:40]:
            text = path.read_text("utf-8")
            plain, asked = rewrite_source(text, Options()), rewrite_source(text, options("950"))
            assert asked.text == plain.text
            assert [f for f in asked.findings if f.code != CHIP_RULE] == list(plain.findings)

    def test_no_file_is_opened_for_it_without_a_chip(self) -> None:
        assert trigger_pattern(Options()).search(b"torch.linalg.lstsq(a, b)") is None
        assert trigger_pattern(options("A2")).search(b"torch.linalg.lstsq(a, b)")
        assert "lstsq" not in rule_words(Options())


class TestCommandLine:
    def run(
        self, folder: Path, *arguments: str, source: str = SOURCE
    ) -> subprocess.CompletedProcess[str]:
        (folder / "train.py").write_text(source)
        return subprocess.run(
            [sys.executable, "-m", "cuda2npu", *arguments, "train.py"],
            cwd=folder, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"},
        )  # fmt: skip

    def test_check(self, tmp_path: Path) -> None:
        done = self.run(tmp_path, "check", "--format", "concise", "--chip", "ascend910b1")
        assert done.returncode == 1
        lines = [line for line in done.stdout.splitlines() if CHIP_RULE in line]
        assert len(lines) == 1
        assert lines[0].startswith("train.py:5:13: NPU903 torch.mode is not supported on Atlas A2")
        assert "NPU101" in done.stdout

    def test_settings_and_json(self, tmp_path: Path) -> None:
        (tmp_path / "pyproject.toml").write_text('[tool.cuda2npu]\nchip = "950"\n')
        done = self.run(tmp_path, "check", "--format", "json", "--select", "NPU9")
        findings = json.loads(done.stdout)["findings"]
        assert [(f["line"], f["code"], f["fix"]) for f in findings] == [
            (4, CHIP_RULE, "none"),
            (5, CHIP_RULE, "none"),
        ]

    def test_only_the_selected_rules_are_asked(self, tmp_path: Path) -> None:
        for select, wanted in (
            ("NPU7", False),
            ("NPU1", False),
            ("NPU90", True),
            ("NPU1,npu9", True),
        ):
            done = self.run(tmp_path, "check", "--chip", "A2", "--select", select)
            assert (CHIP_RULE in done.stdout) is wanted
        (tmp_path / "pyproject.toml").write_text(
            '[tool.cuda2npu]\nchip = "A2"\nselect = ["NPU1"]\n'
        )
        assert CHIP_RULE not in self.run(tmp_path, "check").stdout

    def test_rewrite_names_what_is_left(self, tmp_path: Path) -> None:
        done = self.run(tmp_path, "rewrite", "--chip", "A3")
        assert done.returncode == 0
        assert "torch.mode is not supported on Atlas A3" in done.stdout
        assert "x.npu()" in (tmp_path / "train.py").read_text()

    @pytest.mark.parametrize(
        ("arguments", "fault"),
        [
            (("--chip", "Ascend910B9"), "--chip: unknown chip 'Ascend910B9': the nearest is"),
            (
                ("--chip", "310P3"),
                "the support pages of torch_npu do not cover Ascend310P3",
            ),
            (("--chip", "A2", "--torch-npu", "2.6"), "torch_npu 2.6.0 has no support page"),
            (("--select", "NPU903"), "NPU903 needs --chip NAME"),
        ],
    )
    def test_bad_input(self, tmp_path: Path, arguments: tuple[str, ...], fault: str) -> None:
        done = self.run(tmp_path, "check", *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert fault in done.stderr

    def test_a_bad_setting_is_named_with_its_file(self, tmp_path: Path) -> None:
        (tmp_path / "pyproject.toml").write_text('[tool.cuda2npu]\nchip = "B2"\n')
        done = self.run(tmp_path, "check")
        assert done.returncode == 2
        assert "pyproject.toml: [tool.cuda2npu] chip: unknown chip 'B2'" in done.stderr


def test_the_page_lists_all() -> None:
    from chip_page import lacking_section

    section = lacking_section()
    for name in ever_unsupported():
        assert f"`{name}`" in section
    assert "| Ascend 950DT, 2.13.0 | 21 |" in section


@needs("torch")
def test_what_is_advised_gives_the_same() -> None:
    """In a process of its own, without the NPU's extension."""
    program = """
import torch
torch.manual_seed(0)
x, a, b = torch.randn(6, 3), torch.randn(6, 3), torch.randn(6, 2)
i, j = torch.triu_indices(6, 6, 1)
torch.testing.assert_close(torch.cdist(x, x)[i, j], torch.pdist(x))
q, r = torch.linalg.qr(a)
solution = torch.linalg.solve_triangular(r, q.mT @ b, upper=True)
torch.testing.assert_close(solution, torch.linalg.lstsq(a, b).solution)
cell, lstm = torch.nn.LSTMCell(3, 4), torch.nn.LSTM(3, 4)
lstm.load_state_dict({f"{name}_l0": value for name, value in cell.state_dict().items()})
torch.testing.assert_close(lstm(x[None])[0][0], cell(x)[0])
drawn = torch.empty(200_000).uniform_().log_().div_(torch.log1p(torch.tensor(-0.3))).ceil_()
assert abs(drawn.mean() - 1 / 0.3) < 0.05 and drawn.min() == 1
"""
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.slow
@needs("torch", "torch_npu")
def test_the_simulated_npu_lacks_them_too() -> None:
    program = """
import warnings, torch
def goes_to_the_cpu(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return any("fall back to run on the CPU" in str(each.message) for each in caught)
x = torch.rand(4, 4, device="npu")
assert goes_to_the_cpu(lambda: torch.mode(x))
assert goes_to_the_cpu(lambda: torch.poisson(x))
assert goes_to_the_cpu(lambda: torch.linalg.lstsq(x, x))
assert goes_to_the_cpu(lambda: x.to_sparse_csr())
assert not goes_to_the_cpu(lambda: torch.matmul(x, x))
assert not goes_to_the_cpu(lambda: torch.cdist(x, x))
try:
    torch.smm(x.to_sparse(), x)
except RuntimeError as error:
    assert "aten::sspaddmm.out" in str(error), error
else:
    raise AssertionError("smm")
"""
    command = [sys.executable, "-m", "cuda2npu", "simulate", "--", sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

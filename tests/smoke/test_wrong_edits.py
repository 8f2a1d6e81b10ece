"""Wrong edits of a rewritten program are found, and the layer that they are in is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from cuda2npu.engine import rewrite_source
from cuda2npu.model import Options
from cuda2npu.smoke.spec import SmokeError
from cuda2npu.smoke.stage import Report, Request, capture, smoke
from smoke.support import PROGRAMS, TIMEOUT
from smoke.test_end_to_end import explain

Captured = Callable[[str], Path]


class Wrong(NamedTuple):
    """An edit of the rewritten program, and where it has to be found."""

    name: str
    old: str
    new: str
    layer: str
    reason: str
    suspected: bool = True


ON_CPU, LOST, BILINEAR = "a layer left on the CPU", "float64 lost", "bilinear changed"
REDUCTION = "wrong reduction"
NEAREST = ('mode="bilinear", align_corners=False', 'mode="nearest"')
DOUBLE = (", dtype=torch.float64", ", dtype=torch.float32")
SUM = ("nn.CrossEntropyLoss(", 'nn.CrossEntropyLoss(reduction="sum", ')

WRONG = {
    "segment.py": (
        Wrong(ON_CPU, "return self.head(x)", "return self.head.cpu()(x.cpu()).npu()",
              "Net.head", "on cpu, expected npu"),
        Wrong(LOST, "x.double()", "x.float()", "Net.calibrate", "float64 → float32"),
        Wrong(BILINEAR, *NEAREST, "Net.up", "max abs"),
        Wrong(REDUCTION, "(net(x), y)", '(net(x), y, reduction="sum")', "", "loss 1", False),
        Wrong("code between two layers", "torch.relu(", "torch.sigmoid(", "Net", "max abs"),
    ),
    "segformer.py": (
        Wrong(ON_CPU, "self.out(found.transpose(1, 2).flatten(2))",
              "self.out.cpu()(found.transpose(1, 2).flatten(2).cpu()).npu()",
              "SegFormer.blocks.0.attention.out", "on cpu, expected npu"),
        Wrong(LOST, *DOUBLE, "SegFormer.places", "float64 → float32"),
        Wrong(BILINEAR, *NEAREST, "SegFormer.decoder", "max abs"),
        Wrong(REDUCTION, *SUM, "CrossEntropyLoss", "max abs", False),
        Wrong("attention without its scale", "(query, key, value))",
              "(query, key, value)), scale=1.0", "SegFormer.blocks.0.attention", "max abs"),
    ),
    "resnet.py": (
        Wrong(ON_CPU, "return self.fc(torch.flatten(x, 1))",
              "return self.fc.cpu()(torch.flatten(x, 1).cpu()).npu()",
              "ResNet.fc", "on cpu, expected npu"),
        Wrong(REDUCTION, *SUM, "CrossEntropyLoss", "max abs", False),
        Wrong("a residual halved", "out += identity", "out += identity / 2",
              "ResNet.layers.0.0", "max abs"),
        Wrong("gradients cut", "out += identity", "out += identity.detach()",
              "ResNet.conv1", "gradient norm", False),
    ),
}  # fmt: skip
CASES = [(program, wrong) for program, all_wrong in WRONG.items() for wrong in all_wrong]


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory, torch_npu: str) -> Captured:
    """The original's run, kept once for all wrong edits of a program."""
    folder = tmp_path_factory.mktemp("captured")

    def kept(program: str) -> Path:
        target = folder / program
        if not target.exists():
            report = capture(Request(PROGRAMS / program, steps=1, timeout=TIMEOUT), target)
            assert not report.failures
        return target

    return kept


def smoked(folder: Path, program: str, old: str, new: str, reference: Path) -> Report:
    options = Options(torch_npu="2.13.0", preserve_numerics=True)
    right = rewrite_source((folder / program).read_text(), options).text
    assert old in right
    wrong = folder.parent / "wrong.py"
    wrong.write_text(right.replace(old, new))
    return smoke(
        Request(folder / program, steps=1, timeout=TIMEOUT, reference=reference, rewritten=wrong)
    )


@pytest.mark.parametrize(
    ("program", "wrong"), CASES, ids=[f"{program}: {wrong.name}" for program, wrong in CASES]
)
def test_wrong_edits_are_found(
    folder: Path, captured: Captured, program: str, wrong: Wrong
) -> None:
    report = smoked(folder, program, wrong.old, wrong.new, captured(program))
    assert report.code == 1, explain(report)
    assert report.comparison is not None
    first = report.comparison.first
    assert first is not None
    assert first.layer == wrong.layer
    assert any(wrong.reason in text for text in first.reasons)
    if wrong.suspected:
        assert any(wrong.new.strip('()", ') in edit.after for edit in report.suspects)


def test_a_layer_whose_output_stays_on_the_cpu(folder: Path, captured: Captured) -> None:
    reference = captured("resnet.py")
    report = smoked(folder, "resnet.py", "self.layers(x)", "self.layers(x).cpu()", reference)
    assert report.code == 2
    cause = report.failures[-1].cause
    assert cause is not None
    assert cause.name == "device mismatch"


def test_a_capture_of_another_script_is_refused(folder: Path, captured: Captured) -> None:
    with pytest.raises(SmokeError, match="another script"):
        smoke(Request(folder / "cnn.py", reference=captured("segment.py")))

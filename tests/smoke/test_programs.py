"""More programs as users have them: ResNet, ViT, transformers; and torch_npu's own patch."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from needs import needs

from cuda2npu.engine import rewrite_source
from cuda2npu.model import Options, Target
from cuda2npu.smoke.outcome import Row
from cuda2npu.smoke.stage import Report
from smoke.support import PROGRAMS, Smoke

EXACT = 1e-5
HALF = 1e-2


def rows(report: Report) -> dict[str, Row]:
    assert report.code == 0, [*report.failures, report.comparison]
    assert report.comparison is not None
    return {row.name: row for row in report.comparison.rows}


def assert_equal_losses(report: Report, count: int, tolerance: float = EXACT) -> None:
    rows(report)
    assert report.comparison is not None
    assert len(report.comparison.losses) == count
    for old, new in report.comparison.losses:
        assert old is not None
        assert new == pytest.approx(old, abs=tolerance)


def test_resnet(run: Smoke) -> None:
    report = run("resnet.py", steps=3)
    assert_equal_losses(report, 3)
    seen = rows(report)
    assert {"ResNet.layers.2.1.bn2", "ResNet.fc", "SGD: gradients"} <= set(seen)
    assert seen["ResNet.layers.0.0.relu"].calls == 6


def test_resnet_to_its_end_with_validation(run: Smoke) -> None:
    report = run("resnet.py", steps=0, arguments=("--steps", "2"))
    assert_equal_losses(report, 2)
    assert rows(report)["ResNet"].calls == 4, "two batches of training, two of validation"


def test_gradients_are_those_before_the_step(run: Smoke, folder: Path) -> None:
    """On a GPU and on the NPU, SGD with nesterov and no decay changes them in place."""
    text = (folder / "resnet.py").read_text()
    changed = text.replace("weight_decay=1e-4, ", "")
    assert changed != text
    (folder / "plain.py").write_text(changed)
    assert_equal_losses(run("plain.py", steps=2), 2)


def test_vision_transformer_in_float32(run: Smoke) -> None:
    report = run("vit.py", steps=3, arguments=("--no-amp",))
    assert_equal_losses(report, 3)


def test_vision_transformer_in_mixed_precision(run: Smoke) -> None:
    report = run("vit.py", steps=3)
    assert_equal_losses(report, 3, HALF)
    assert rows(report)["AdamW: gradients"].calls == 3


@pytest.mark.parametrize("name", ["resnet.py", "gan.py", "vit.py"])
def test_the_patch_of_torch_npu_computes_the_same(run: Smoke, folder: Path, name: str) -> None:
    """The script as it is, under transfer_to_npu, beside what we make of it."""
    arguments = ("--no-amp",) if name == "vit.py" else ()
    options = Options(torch_npu="2.13.0", target=Target.SHIM)
    text = rewrite_source((folder / name).read_text(), options).text
    assert "from torch_npu.contrib import transfer_to_npu" in text
    patched = folder.parent / "patched.py"
    patched.write_text(text)
    theirs = run(name, steps=2, arguments=arguments, rewritten=patched)
    ours = run(name, steps=2, arguments=arguments)
    old, new = rows(theirs), rows(ours)
    assert list(old) == list(new)
    losses = (theirs.comparison.losses, ours.comparison.losses)  # type: ignore[union-attr]
    for (_, patch), (_, edit) in zip(*losses, strict=True):
        assert patch == pytest.approx(edit, abs=EXACT)


needs_transformers = needs("torch_npu", "transformers", "accelerate")


@needs_transformers
def test_gpt2_of_transformers(run: Smoke) -> None:
    report = run("gpt2_transformers.py", steps=0)
    assert_equal_losses(report, 3)
    assert rows(report)["GPT2LMHeadModel"].calls == 9, "three steps, six tokens"


@needs_transformers
def test_llama_of_transformers_in_bfloat16(run: Smoke) -> None:
    report = run("llama_transformers.py", steps=0)
    assert_equal_losses(report, 2, HALF)
    assert rows(report)["LlamaForCausalLM"].calls == 8


@needs_transformers
def test_trainer_of_transformers_goes_on_from_a_checkpoint(run: Smoke) -> None:
    report = run("trainer_transformers.py", steps=0)
    assert_equal_losses(report, 4)


def test_every_program_is_an_original() -> None:
    for path in PROGRAMS.glob("*.py"):
        text = path.read_text()
        assert re.search(r"\bnpu\b|torch_npu|hccl", text) is None
        assert "cuda" in text or path.name == "lstm_model.py"

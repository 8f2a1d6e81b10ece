"""Edits that are suspected when the user rewrote the program by hand. No torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuda2npu.engine import rewrite_source
from cuda2npu.model import Options
from cuda2npu.smoke.overlay import Overlay, rewritten
from cuda2npu.smoke.suspects import edits, suspects
from cuda2npu.smoke.table import edit_text
from smoke.support import run_of

PROGRAM = """\
import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def forward(self, x):
        return F.relu(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        x = F.interpolate(x, scale_factor=2, mode="bilinear")
        return self.block(x) * 2


net = Net().cuda()
net.eval()
print(net(torch.ones(1, 1, 4, 4).cuda()))
"""
OWN = rewrite_source(PROGRAM, Options()).text


def overlay_of(folder: Path, given: str) -> Overlay:
    script, patched = folder / "net.py", folder / "patched.py"
    script.write_text(PROGRAM)
    patched.write_text(given)
    return rewritten([script], folder, folder / "copy", Options(), given=patched)


def texts(folder: Path, given: str) -> list[str]:
    """What is said of the edits that were made by hand."""
    made = edits(overlay_of(folder, given))
    return [f"{e.line} {e.message}: {e.before} → {e.after}" for e in made if not e.code]


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("* 2\n", "* 3\n", "18 changed by hand: return self.block(x) * 2 → "
         "return self.block(x) * 3"),
        ("net.eval()\n", "", "22 removed by hand: net.eval() → "),
        ("net.eval()\n", "net.eval()\nnet.half()\n", "22 added by hand:  → net.half()"),
        (".npu())", ".npu() + 1)", "23 changed by hand: print(net(torch.ones(1, 1, 4, 4).npu())) "
         "→ print(net(torch.ones(1, 1, 4, 4).npu() + 1))"),
    ],
)  # fmt: skip
def test_what_was_done_by_hand_is_told_and_what_rewriting_does_is_not(
    tmp_path: Path, old: str, new: str, text: str
) -> None:
    assert OWN.count(old) == 1
    assert texts(tmp_path, OWN.replace(old, new)) == [text]


def test_comments_and_what_is_as_in_the_original_are_no_edits_by_hand(tmp_path: Path) -> None:
    given = OWN.replace("  # noqa: F401", "").replace("net.eval()", "net.eval()  # no dropout")
    given = given.replace('mode="nearest"', 'mode="bilinear"')
    assert given != OWN
    assert texts(tmp_path, given) == []


def test_what_rewriting_did_stays_suspected_where_it_still_stands(tmp_path: Path) -> None:
    made = edits(overlay_of(tmp_path, OWN.replace("* 2", "* 3")))
    assert "NPU401" in {edit.code for edit in made if edit.numerics}
    other = edits(overlay_of(tmp_path, OWN.replace('mode="nearest"', 'mode="area"')))
    assert "NPU401" not in {edit.code for edit in other}


def test_the_original_is_compared_where_it_is_nearer(tmp_path: Path) -> None:
    """As for the shim, or for a program that was not rewritten but edited."""
    given = PROGRAM.replace("import torch\n", "import torch\nimport torch_npu\n", 1)
    assert texts(tmp_path, given) == ["1 added by hand:  → import torch_npu"]


def test_suspects_are_looked_for_around_the_layer(tmp_path: Path) -> None:
    overlay = overlay_of(tmp_path, OWN.replace("* 2", "* 3"))
    place = str(tmp_path / "copy" / "net.py")
    run = run_of([], {})
    run.modules.update(
        {"Net": {"class": "Net", "file": place}, "Net.block": {"class": "Block", "file": place}}
    )
    found = suspects("Net.block", edits(overlay), run, overlay)
    assert [(edit.line, edit.code) for edit in found] == [(18, ""), (17, "NPU401")]
    assert "changed by hand" in edit_text(found[0])

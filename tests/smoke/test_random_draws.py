"""What a script seeds, saves and restores on the device draws the same in both runs."""

from __future__ import annotations

from pathlib import Path

from needs import needs

from smoke.support import Smoke

pytestmark = needs("torch")

SCRIPT = """
import torch
from torch import nn

class Draw(nn.Module):
    def forward(self, draw):
        return draw().float()

layer = nn.Linear(1, 1).cuda()

def drawn(name):
    kind = type(name, (Draw,), {})
    kind()(lambda: torch.randn(8, device="cuda"))
    kind()(lambda: torch.rand(8))
    layer(torch.empty(2, 1, device="cuda").uniform_())

torch.cuda.manual_seed(42)
drawn("Seeded")
torch.cuda.manual_seed_all(43)
drawn("AllSeeded")
state, states = torch.cuda.get_rng_state(), torch.cuda.get_rng_state_all()
drawn("Before")
torch.cuda.set_rng_state(state)
drawn("Restored")
torch.cuda.set_rng_state_all(states)
drawn("AllRestored")
torch.cuda.random.set_rng_state(torch.arange(16, dtype=torch.uint8))
drawn("FromAGpu")
with torch.random.fork_rng(devices=[0]):
    torch.cuda.manual_seed(1)
    drawn("Forked")
drawn("AfterTheFork")
torch.seed()
drawn("ByChance")
torch.cuda.seed(), torch.cuda.seed_all()
drawn("ByChanceThere")
torch.manual_seed(torch.cuda.initial_seed())
drawn("SeededAgain")
generator = torch.Generator(device="cuda").manual_seed(5)
saved = generator.get_state()
for turn in range(3):
    Draw()(lambda: torch.randn(8, device="cuda", generator=generator))
    Draw()(lambda: torch.empty(8, device="cuda").normal_(generator=generator))
    if turn == 1:
        generator.set_state(saved)
"""


def test_seeds_and_states_of_the_device(run: Smoke, folder: Path) -> None:
    (folder / "draws.py").write_text(SCRIPT)
    report = run("draws.py")
    assert report.code == 0, [*report.failures, report.comparison]
    assert report.comparison is not None
    assert report.comparison.total.max_abs == 0
    assert len(report.comparison.rows) >= 14

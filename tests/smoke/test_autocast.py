"""Under autocast the reference on the CPU has the types that CUDA has."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from needs import needs

from smoke.support import Smoke

pytestmark = needs("torch")

SCRIPT = """
import torch
import torch.nn.functional as F
from torch import nn

class Op(nn.Module):
    def forward(self, compute, *tensors):
        return compute(*tensors)

def run(name, compute, *tensors):
    type(name, (Op,), {})()(compute, *tensors)


for kind in (torch.float16, torch.bfloat16):
    low = torch.rand(4, 4, device="cuda").to(kind)
    wide = torch.rand(4, 4, device="cuda")
    target = torch.arange(4, device="cuda")
    with torch.autocast("cuda", dtype=kind):
        assert torch.is_autocast_enabled() and torch.get_autocast_dtype("cuda") is kind
        for name in "exp log rsqrt tan sum prod".split():
            run(name, getattr(torch, name), low)
        for name in "softmax log_softmax cumsum logsumexp norm".split():
            run(name, lambda x: getattr(torch, name)(x, dim=1), low)
        for name in "mse_loss l1_loss kl_div binary_cross_entropy_with_logits".split():
            run(name, getattr(F, name), low, low.flip(0).round())
        run("Norms", lambda x: (x.norm(), x.norm(p=1), torch.linalg.vector_norm(x)), low)
        run("Power", lambda x: (x**2, 2**x, x**x), low)
        run("Normal", lambda x: (F.layer_norm(x, (4,)), F.group_norm(x[None], 2)), low)
        run("Entropy", lambda x: F.cross_entropy(x, target, label_smoothing=0.1), low)
        run("Likely", lambda x: F.nll_loss(F.log_softmax(x, 1), target), low)
        run("Left", lambda x: (x.sigmoid(), F.gelu(x), x.mean(), x.std()), low)
        run("Pooled", lambda x: F.avg_pool3d(x.view(1, 1, 1, 4, 4), (1, 2, 2)), low)
        run("Larger", lambda x: F.interpolate(x[None, None], scale_factor=2), low)
        run("Lower", lambda x: (x @ x, x.mv(x[0]), F.prelu(x, x[0, :1]), F.linear(x, x)), wide)
        run("Widest", lambda x, y: (torch.atan2(x, y), torch.addcmul(x, y, x)), low, wide)
        for layer in (nn.LSTM(4, 4), nn.GRU(4, 4), nn.RNN(4, 4), nn.LSTMCell(4, 4)):
            layer.cuda()(wide if isinstance(layer, nn.LSTMCell) else wide[None])
assert not torch.is_autocast_enabled()
"""


def test_types_and_values_agree(run: Smoke, folder: Path) -> None:
    (folder / "half.py").write_text(SCRIPT)
    report = run("half.py")
    assert report.code == 0, [*report.failures, report.comparison]
    assert report.comparison is not None
    assert {"Entropy", "softmax", "LSTM", "GRU#2"} <= {row.name for row in report.comparison.rows}
    left = [note for note in report.notes if note.kind == "autocast"]
    assert [note.name for note in left] == ["aten::upsample_nearest2d"], "told, and no difference"


FUSED = """
import torch
net = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
scaler = torch.cuda.amp.GradScaler()
for _ in range(4):
    optimizer.zero_grad()
    with torch.cuda.amp.autocast():
        loss = net(torch.ones(3, 4, device="cuda")).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""


def test_a_fused_optimizer_and_its_scaler(run: Smoke, folder: Path) -> None:
    """The first steps overflow: the scaler does not call a plain optimizer, but a fused one."""
    (folder / "fused.py").write_text(FUSED)
    report = run("fused.py", steps=2)
    assert report.code == 0, [*report.failures, report.comparison]


TABLES = """
import json
from cuda2npu.simulator.autocast import LEFT_IN_HALF
from cuda2npu.smoke import cuda_autocast as tables
print(json.dumps({
    "LOWER_PRECISION_FP": tables.LOWER_PRECISION, "FP32": tables.FLOAT32 + LEFT_IN_HALF,
    "FP32_SET_OPT_DTYPE": tables.FLOAT32_RESULT, "PROMOTE": tables.WIDEST,
}))
"""


def test_the_tables_are_those_of_torch() -> None:
    """Those of the header of this release, which torch's package brings."""
    spec = find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    text = Path(spec.origin).with_name("include").joinpath("ATen/autocast_mode.h").read_text()
    done = subprocess.run(
        [sys.executable, "-c", TABLES],
        env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    for name, ours in json.loads(done.stdout).items():
        listed = re.search(rf"#define AT_FORALL_{name}\(_\)((?:.*\\\n)*.*\n)", text)
        assert listed is not None
        found = re.findall(r"\b_\((\w+)(?:, (\w+))?\)", listed[1])
        assert sorted(ours) == sorted(".".join(filter(None, pair)) for pair in found)


def test_large_values_known_by_their_figures_alone() -> None:
    """Of later calls only norms are kept; in half precision a last place is allowed there too."""
    from cuda2npu.smoke.metrics import Leaves
    from cuda2npu.smoke.spec import Tolerance

    old = {"shape": [4], "dtype": "float32", "norm": 8.0, "mean": 4.0, "nan": 0, "inf": 0}
    new = {**old, "norm": 8.04, "mean": 4.02}
    found = Leaves().one(old, new)
    assert found.failures(Tolerance()), "in float32 it is a difference"
    assert not found.failures(Tolerance(), 2.0**-7)

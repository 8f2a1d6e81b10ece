"""Two small models, trained on the device that is named: median seconds of a step, as JSON."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from importlib import import_module

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

WARM, STEPS = 3, 15


class Residual(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(inplace=True),
            nn.Conv2d(outside, outside, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outside),
        )
        self.side = nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.side(x))


def resnet() -> nn.Module:
    blocks = [Residual(16, 16, 1), Residual(16, 32, 2), Residual(32, 64, 2), Residual(64, 64, 1)]
    stem = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        shape = (*x.shape[:2], self.heads, -1)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.qkv(self.first(x)).chunk(3, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(x.shape))
        more: Tensor = self.mlp(self.second(x))
        return x + more


def gpt() -> nn.Module:
    blocks = [Block(128, 4) for _ in range(4)]
    return nn.Sequential(nn.Embedding(256, 128), *blocks, nn.LayerNorm(128), nn.Linear(128, 256))


def step_seconds(model: nn.Module, batch: Callable[[], tuple[Tensor, Tensor]], on: str) -> float:
    model.to(on)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    times = []
    for _ in range(WARM + STEPS):
        start = time.perf_counter()
        x, y = (part.to(on) for part in batch())
        loss = F.cross_entropy(model(x).flatten(0, -2), y.flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        loss.item()
        times.append(time.perf_counter() - start)
    return statistics.median(times[WARM:])


def main(on: str) -> None:
    if on == "npu":
        import_module("torch_npu")
    found = {
        "ResNet": step_seconds(
            resnet(), lambda: (torch.randn(16, 3, 32, 32), torch.randint(10, (16,))), on
        ),
        "GPT": step_seconds(
            gpt(), lambda: (torch.randint(256, (8, 64)), torch.randint(256, (8, 64))), on
        ),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])

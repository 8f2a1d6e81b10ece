# torch_npu gives torch and its tensors names at run time that no stub knows.
# mypy: disable-error-code="attr-defined,operator,no-untyped-call,union-attr,arg-type"
# mypy: disable-error-code="import-untyped,index,no-any-return"
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
import torch_npu
from support import Tensor, raises, run_cases, same_on_both
from torch import nn
from torch.utils.checkpoint import checkpoint


def trained(
    make: Callable[[], nn.Module],
    data: Callable[[], Tensor],
    optimizer: Callable[[Any], Any] = lambda p: torch.optim.SGD(p, 0.01),
    steps: int = 3,
) -> None:
    def program(device: str) -> list[Any]:
        model = make().to(device)
        chosen = optimizer(model.parameters())
        losses = []
        for _ in range(steps):
            out = model(data().to(device))
            while isinstance(out, tuple):
                out = out[0]
            loss = out.float().pow(2).mean()
            chosen.zero_grad()
            loss.backward()
            chosen.step()
            losses.append(loss)
        return [losses, list(model.parameters())]

    same_on_both(program)


class Residual(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(),
            nn.Conv2d(outside, outside, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outside),
        )
        self.short = nn.Conv2d(inside, outside, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.short(x))


def case_resnet() -> None:
    def make() -> nn.Module:
        blocks = (Residual(3, 8, 1), Residual(8, 16, 2), nn.MaxPool2d(2))
        return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4))

    momentum = lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, nesterov=True)  # noqa: E731
    trained(make, lambda: torch.randn(4, 3, 16, 16), momentum, steps=5)


class Attention(nn.Module):
    def __init__(self, dropout: float = 0.1) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.before, self.after = nn.LayerNorm(16), nn.LayerNorm(16)
        self.body = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, 4, width // 4).transpose(1, 2)
            for part in self.qkv(self.before(x)).split(width, 2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(y.transpose(1, 2).contiguous().view(batch, length, width)))
        return x + self.body(self.after(x))


def case_gpt() -> None:
    make = lambda: nn.Sequential(nn.Embedding(32, 16), Attention(), Attention(), nn.Linear(16, 32))  # noqa: E731
    tokens = lambda: torch.randint(0, 32, (4, 12))  # noqa: E731
    trained(make, tokens, lambda p: torch.optim.AdamW(p, 1e-2), steps=5)


def case_recurrent_layers() -> None:
    for make in (
        lambda: nn.LSTM(8, 16, 2, batch_first=True),
        lambda: nn.LSTM(8, 16, 2, bidirectional=True, bias=False),
        lambda: nn.GRU(8, 16, 2),
        lambda: nn.RNN(8, 16, 2),
    ):
        trained(make, lambda: torch.randn(3, 5, 8))
    trained(lambda: nn.LSTMCell(8, 16), lambda: torch.randn(5, 8))
    trained(lambda: nn.GRUCell(8, 16), lambda: torch.randn(5, 8))


def case_packed_sequences() -> None:
    def program(d: str) -> list[Any]:
        layer = nn.LSTM(3, 4, batch_first=True).to(d)
        lengths = torch.tensor([4, 2])
        packed = nn.utils.rnn.pack_padded_sequence(
            torch.randn(2, 4, 3).to(d), lengths, batch_first=True
        )
        out, _ = nn.utils.rnn.pad_packed_sequence(layer(packed)[0], batch_first=True)
        out.sum().backward()
        return [out, [p.grad for p in layer.parameters()]]

    same_on_both(program)


def case_language_model_with_lstm() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.lstm = nn.Embedding(20, 8), nn.LSTM(8, 16, 2, dropout=0.2)
            self.out = nn.Linear(16, 20)

        def forward(self, x: Tensor) -> Any:
            return self.out(self.lstm(self.embed(x))[0])

    trained(Model, lambda: torch.randint(0, 20, (6, 3)), lambda p: torch.optim.Adam(p, 0.01))


def case_gan_with_two_optimizers() -> None:
    def program(d: str) -> list[Any]:
        maker = nn.Sequential(nn.ConvTranspose2d(8, 4, 4), nn.BatchNorm2d(4), nn.Tanh()).to(d)
        judge = nn.Sequential(nn.Conv2d(4, 4, 3), nn.LeakyReLU(0.2), nn.Flatten()).to(d)
        judge = judge.append(nn.Linear(16, 1).to(d))
        steps = [torch.optim.Adam(m.parameters(), 2e-3, (0.5, 0.999)) for m in (maker, judge)]
        losses = []
        for _ in range(3):
            real, noise = torch.randn(2, 4, 4, 4).to(d), torch.randn(2, 8, 1, 1, device=d)
            ones, zeros = torch.ones(2, 1, device=d), torch.zeros(2, 1, device=d)
            made = maker(noise)
            loss = F.binary_cross_entropy_with_logits(judge(real), ones)
            loss = loss + F.binary_cross_entropy_with_logits(judge(made.detach()), zeros)
            steps[1].zero_grad()
            loss.backward()
            steps[1].step()
            fooled = F.binary_cross_entropy_with_logits(judge(made), ones)
            steps[0].zero_grad()
            fooled.backward()
            steps[0].step()
            losses += [loss, fooled]
        return [losses, list(maker.parameters()), list(judge.parameters())]

    same_on_both(program)


def case_vit_with_amp_and_scaler() -> None:
    def program(d: str) -> list[Any]:
        model = nn.Sequential(nn.Conv2d(3, 16, 4, 4), nn.Flatten(2)).to(d)
        block, head = Attention(0.0).to(d), nn.Linear(16, 4).to(d)
        parameters = [*model.parameters(), *block.parameters(), *head.parameters()]
        optimizer = torch.optim.AdamW(parameters, 1e-3)
        scaler = torch.amp.GradScaler(d)
        losses = []
        for _ in range(3):
            x = torch.randn(2, 3, 16, 16).to(d)
            with torch.autocast(d, dtype=torch.bfloat16):
                out = head(block(model(x).transpose(1, 2)).mean(1))
            assert out.dtype is torch.bfloat16
            loss = F.cross_entropy(out.float(), torch.zeros(2, dtype=torch.long, device=d))
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(parameters, 1.0)
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss)
        return losses

    same_on_both(program, 2e-2)


def case_both_scalers_skip_an_overflow() -> None:
    for make in (lambda: torch.amp.GradScaler("npu"), lambda: torch.npu.amp.GradScaler()):
        layer, scaler = nn.Linear(4, 4).npu(), make()
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)
        for step in range(3):
            before = layer.weight.detach().cpu().clone()
            with torch.autocast("npu", dtype=torch.float16):
                loss = layer(torch.randn(2, 4).npu()).float().mean() * 1e-2
            loss = loss * float("inf") if step == 1 else loss
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            assert torch.equal(before, layer.weight.detach().cpu()) == (step == 1)
        assert scaler.get_scale() == 2.0**15


def case_attention_of_every_kind() -> None:
    def attend(dtype: torch.dtype, kind: str, dropout: float = 0.0) -> Callable[[str], Any]:
        def program(d: str) -> list[Any]:
            q, k, v = (torch.randn(2, 4, 7, 8).to(d, dtype).requires_grad_() for _ in range(3))
            mask: Any = None
            if kind == "bool":
                mask = (torch.rand(7, 7) > 0.3).to(d) | torch.eye(7, dtype=torch.bool, device=d)
            elif kind != "causal":
                mask = torch.randn(2, 1, 7, 7).to(d, dtype).requires_grad_(kind == "learnt")
            out = F.scaled_dot_product_attention(q, k, v, mask, dropout, kind == "causal")
            out.float().pow(2).sum().backward()
            return [out, q.grad, k.grad, v.grad]

        return program

    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 5e-2), (torch.float16, 5e-2)):
        for kind in ("bool", "float", "causal"):
            same_on_both(attend(dtype, kind), tolerance)
    same_on_both(attend(torch.float32, "learnt"))
    same_on_both(attend(torch.float32, "causal", 0.2))


def case_layers() -> None:
    trained(
        lambda: nn.Sequential(
            nn.ConvTranspose2d(3, 8, 3, 2),
            nn.GroupNorm(2, 8),
            nn.Upsample(scale_factor=2, mode="bilinear"),
            nn.AvgPool2d(2),
            nn.InstanceNorm2d(8),
        ),
        lambda: torch.randn(2, 3, 8, 8),
    )
    trained(lambda: nn.TransformerEncoderLayer(16, 4, 32), lambda: torch.randn(5, 2, 16))
    trained(lambda: nn.EmbeddingBag(10, 4), lambda: torch.randint(0, 10, (3, 5)))
    trained(
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)), lambda: torch.randn(2, 3)
    )


def case_optimizers() -> None:
    for make in (
        lambda p: torch.optim.AdamW(p, 1e-2, foreach=True),
        lambda p: torch.optim.AdamW(p, 1e-2, fused=True),
        lambda p: torch.optim.SGD(p, 1e-2, momentum=0.9),
        lambda p: torch.optim.RMSprop(p),
        lambda p: torch.optim.Adagrad(p),
    ):
        trained(lambda: nn.Linear(4, 4), lambda: torch.randn(3, 4), make)


def case_fused_optimizers_of_torch_npu() -> None:
    for fused, plain in (("NpuFusedAdamW", "AdamW"), ("NpuFusedSGD", "SGD")):
        weights = []
        for device, make in (
            ("npu", getattr(torch_npu.optim, fused)),
            ("cpu", getattr(torch.optim, plain)),
        ):
            torch.manual_seed(0)
            layer = nn.Linear(4, 4).to(device)
            optimizer = make(layer.parameters(), lr=0.01)
            for _ in range(3):
                optimizer.zero_grad()
                layer(torch.randn(3, 4).to(device)).pow(2).sum().backward()
                optimizer.step()
            weights.append(layer.weight.detach().cpu())
        assert torch.allclose(weights[0], weights[1], atol=1e-5)
    for name in ("NpuFusedAdam", "NpuFusedRMSprop", "NpuFusedLamb", "NpuFusedAdadelta"):
        layer = nn.Linear(4, 4).npu()
        optimizer = getattr(torch_npu.optim, name)(layer.parameters(), lr=0.01)
        layer(torch.randn(3, 4).npu()).sum().backward()
        optimizer.step()


def case_checkpointing() -> None:
    def program(d: str) -> list[Any]:
        body = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 4)).to(d)
        x = torch.randn(3, 4).to(d).requires_grad_()
        loss = checkpoint(body, x, use_reentrant=False).sum()
        loss = loss + checkpoint(body, x, use_reentrant=True).sum()
        loss.backward()
        return [x.grad, loss]

    same_on_both(program)


def fused(function: Any, plain: Any, *shapes: tuple[int, ...]) -> None:
    inputs = [torch.randn(shape).requires_grad_() for shape in shapes]
    expected = plain(*inputs)
    expected.pow(2).sum().backward()
    device = [x.detach().npu().requires_grad_() for x in inputs]
    found = function(*device)
    found = found[0] if isinstance(found, tuple | list) else found
    found.pow(2).sum().backward()
    assert torch.allclose(found.cpu(), expected, atol=1e-4)
    for one, other in zip(device, inputs, strict=True):
        assert one.grad is not None
        assert torch.allclose(one.grad.cpu(), other.grad, atol=1e-4, rtol=1e-3)


def rms(x: Tensor, gamma: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * gamma


def turn(x: Tensor) -> Tensor:
    return torch.cat((-x.chunk(2, -1)[1], x.chunk(2, -1)[0]), -1)


def case_fused_operators_of_torch_npu() -> None:
    x = (2, 3, 8)
    fused(torch_npu.npu_rms_norm, rms, x, (8,))
    fused(
        torch_npu.npu_add_layer_norm,
        lambda a, b, g, c: F.layer_norm(a + b, (8,), g, c),
        x, x, (8,), (8,),
    )  # fmt: skip
    fused(
        torch_npu.npu_rotary_mul, lambda x, c, s: x * c + turn(x) * s,
        (2, 4, 3, 8), (1, 4, 1, 8), (1, 4, 1, 8),
    )  # fmt: skip
    fused(torch_npu.npu_swiglu, lambda x: F.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1], x)
    fused(torch_npu.npu_gelu, F.gelu, x)
    fused(torch_npu.fast_gelu, lambda x: x * torch.sigmoid(1.702 * x), x)
    fused(torch_npu.npu_silu, F.silu, x)
    fused(torch_npu.npu_mish, F.mish, x)
    fused(torch_npu.npu_linear, F.linear, (3, 8), (4, 8), (4,))
    fused(lambda x: torch_npu.npu_max(x, 1), lambda x: x.max(1)[0], x)
    fused(
        lambda x: torch_npu.npu_confusion_transpose(x, [0, 2, 1], [2, 24], True),
        lambda x: x.permute(0, 2, 1).reshape(2, 24),
        x,
    )
    sum_of_two = torch_npu.npu_add_rms_norm(*(torch.ones(2, 8).npu(),) * 2, torch.ones(8).npu())
    assert torch.allclose(sum_of_two[0].cpu(), torch.ones(2, 8))
    assert torch_npu.npu_dtype_cast(torch.ones(2).npu(), torch.float16).dtype is torch.float16
    assert torch_npu.npu_format_cast(torch.ones(2).npu(), 29).tolist() == [1, 1]
    assert torch_npu.one_(torch.zeros(2).npu()).tolist() == [1, 1]
    learnt = torch.ones(2, 8).npu().requires_grad_()
    out = torch_npu.npu_add_rms_norm(learnt, learnt, torch.ones(8).npu())[0]
    raises(lambda: out.sum().backward(), "npu_add_rms_norm is not implemented")


def case_fusion_attention() -> None:
    apart = {
        "BNSD": ((2, 2, 5, 4), lambda t: t, lambda t: t),
        "BSND": ((2, 5, 2, 4), lambda t: t.transpose(1, 2), lambda t: t.transpose(1, 2)),
        "BSH": (
            (2, 5, 8),
            lambda t: t.view(2, 5, 2, 4).transpose(1, 2),
            lambda t: t.transpose(1, 2).flatten(2),
        ),
        "SBH": (
            (5, 2, 8),
            lambda t: t.view(5, 2, 2, 4).permute(1, 2, 0, 3),
            lambda t: t.permute(2, 0, 1, 3).flatten(2),
        ),
    }
    mask = torch.ones(5, 5, dtype=torch.bool).triu(1).npu()
    for layout, (shape, split, join) in apart.items():
        fused(
            lambda q, k, v, layout=layout: torch_npu.npu_fusion_attention(
                q, k, v, 2, layout, scale=0.5, atten_mask=mask
            ),
            lambda q, k, v, split=split, join=join: join(
                F.scaled_dot_product_attention(
                    split(q), split(k), split(v), is_causal=True, scale=0.5
                )
            ),
            shape, shape, shape,
        )  # fmt: skip


if __name__ == "__main__":
    run_cases(globals())

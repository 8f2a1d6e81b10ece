# torch_npu gives torch and its tensors names at run time that no stub knows.
# mypy: disable-error-code="attr-defined,operator,no-untyped-call,union-attr,arg-type"
# mypy: disable-error-code="import-untyped,index,no-any-return"
from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
import torch_npu
from support import SAME_DEVICE, raises, run_cases, same_on_both
from torch import nn

Tensor = torch.Tensor


def case_mixed_devices_are_refused_in_torchs_words() -> None:
    cpu, npu = torch.ones(2, 2), torch.ones(2, 2, device="npu")
    raises(lambda: npu @ cpu, SAME_DEVICE + "npu:0 and cpu!")
    raises(lambda: cpu + npu, SAME_DEVICE)
    raises(lambda: torch.cat([npu, cpu]), SAME_DEVICE)
    raises(lambda: npu.add_(cpu), SAME_DEVICE)
    raises(lambda: nn.Linear(2, 2).npu()(cpu), SAME_DEVICE)
    raises(lambda: nn.Conv2d(1, 1, 1).npu()(torch.ones(1, 1, 2, 2)), SAME_DEVICE)
    index = torch.zeros(2, dtype=torch.long)
    raises(lambda: nn.Embedding(2, 2).npu()(index), SAME_DEVICE)
    raises(lambda: F.cross_entropy(npu, index), SAME_DEVICE)
    raises(lambda: npu + torch.ones(2, 2, device="npu:1"), SAME_DEVICE + "npu:0 and npu:1!")
    raises(lambda: cpu * torch.tensor(2.0, device="npu"), SAME_DEVICE)


def case_what_torch_lets_pass_passes() -> None:
    npu = torch.ones(3, device="npu")
    assert (npu * torch.tensor(2.0)).tolist() == [2, 2, 2]
    assert npu[torch.tensor([0, 1])].tolist() == [1, 1]
    assert npu[torch.tensor([True, False, True])].tolist() == [1, 1]
    npu.copy_(torch.zeros(3))
    torch._foreach_mul_([npu], torch.tensor(2.0))
    assert npu.to("npu:1").device == torch.device("npu:1")


def case_numpy_is_refused() -> None:
    raises(lambda: torch.ones(2, device="npu").numpy(), "convert npu:0 device type tensor to numpy")


def case_views_share_memory() -> None:
    def program(device: str) -> list[Tensor]:
        x = torch.arange(12.0, device=device).reshape(3, 4)
        y = x.clone()
        y[1:, ::2] = 7
        y[y > 9] = -1
        y.view(-1)[3] = 100
        y.t()[0].add_(5)
        y.unfold(1, 2, 2)[0].mul_(2)
        row = x[1]
        row.zero_()
        return [x, y, x.expand(2, 3, 4).clone(), x.unsqueeze(0).squeeze(0).permute(1, 0)]

    same_on_both(program)


def case_outputs_are_grown() -> None:
    def program(device: str) -> list[Tensor]:
        x = torch.arange(12.0, device=device).reshape(3, 4)
        fresh, fitting = torch.empty(0, device=device), torch.empty(3, 4, device=device)
        torch.add(x, x, out=fresh)
        torch.mul(x, x, out=fitting)
        small = torch.empty(2, device=device)
        torch.mul(x, 3, out=small)
        values, indices = torch.empty(0, device=device), torch.empty(0, device=device).long()
        torch.max(x, 1, out=(values, indices))
        return [fresh, fitting, small, values, indices, torch.arange(6.0, device=device).resize_(2)]

    same_on_both(program)


def case_large_results_are_written_in_place() -> None:
    def program(device: str) -> list[Tensor]:
        a, b = torch.randn(128, 96).to(device), torch.randn(96, 128).to(device)
        found = []
        for _ in range(3):  # the second and third call know the result's shape
            found += [a @ b, a + a, a.t() + 1, a * 2.5, a.sum(1), a.sum(0, keepdim=True)]
            found += [torch.cat([a, a], 1), a.gelu() if hasattr(a, "gelu") else F.gelu(a)]
            found += [a.half() + 1, a + 1, a.int() + 1, a.int() / 2, torch.softmax(a, -1)]
        return found

    same_on_both(program)


def case_many_operators() -> None:
    def program(d: str) -> list[Any]:
        x = torch.arange(12.0, device=d).reshape(3, 4)
        y = torch.randn(3, 4).to(d)
        picked = torch.tensor([[0], [1], [2]], device=d)
        counts = torch.tensor([0, 2, 2], device=d)
        x.index_put_((counts, counts), torch.ones(3, device=d), accumulate=True)
        return [
            x.max(1), y.sort(1, descending=True), y.topk(2), (x > 4).nonzero(), torch.unique(x % 3),
            torch.stack([x, y]), torch.einsum("ij,kj->ik", x, y), x.cumsum(1), x.gather(1, picked),
            torch.where(x > 3, x, y), torch.zeros(3, 4, device=d).scatter_(1, picked, 1.0),
            x.masked_select(x > 4), torch.tril(x), x.repeat(2, 1), F.one_hot(counts), x.roll(1, 0),
            torch.repeat_interleave(x, 2, 0), torch.bincount(counts), y.std(1), y.var(), y.norm(),
            torch.linspace(0, 1, 5, device=d), torch.eye(3, device=d), torch.cdist(x, y),
            torch.linalg.inv(torch.eye(3, device=d) * 2), torch.linalg.svdvals(y), y.median(),
            torch.quantile(y, 0.3), torch.histc(y), F.interpolate(y[None, None], scale_factor=2),
            F.binary_cross_entropy_with_logits(x, y.sigmoid()), F.smooth_l1_loss(x, y),
            F.cross_entropy(y, counts, label_smoothing=0.1), torch.view_as_real(torch.fft.rfft(y)),
        ]  # fmt: skip

    same_on_both(program, 1e-4)


def case_random_draws_are_the_cpus() -> None:
    def program(d: str) -> list[Tensor]:
        x = torch.empty(50, device=d)
        ones = torch.ones(10, device=d)
        return [
            torch.randn(5, device=d), torch.rand(5, device=d), torch.randint(0, 9, (5,), device=d),
            torch.randperm(9, device=d), x.normal_().clone(), x.uniform_().clone(),
            x.bernoulli_(0.3).clone(), torch.bernoulli(ones * 0.4), torch.multinomial(ones, 4),
            x.exponential_().clone(), torch.normal(ones, 1.0), torch.randn_like(x),
            torch.rand_like(x), x.random_(0, 10).clone(), torch.poisson(ones), F.dropout(x, 0.3),
            F.dropout2d(torch.ones(4, 5, 6, 6, device=d), 0.3), F.gumbel_softmax(ones),
            torch.nn.init.trunc_normal_(x).clone(), F.rrelu(-x, training=True),
            torch.distributions.Categorical(ones).sample((3,)),
            torch.distributions.Gamma(ones, 1.0).sample(),
        ]  # fmt: skip

    same_on_both(program)


def case_generators_have_their_own_streams() -> None:
    def program(d: str) -> list[Tensor]:
        generator = torch.Generator(d).manual_seed(5)
        first = torch.randn(4, generator=generator, device=d)
        state = generator.get_state()
        second = torch.rand(4, generator=generator, device=d)
        generator.set_state(state)
        assert torch.equal(torch.rand(4, generator=generator, device=d), second)
        generator.manual_seed(5)
        assert torch.equal(torch.randn(4, generator=generator, device=d), first)
        third = torch.randperm(5, generator=generator, device=d)
        return [first, second, third, torch.empty(3, device=d).normal_(generator=generator)]

    same_on_both(program)


def case_seeds_and_states_of_the_device() -> None:
    torch.npu.manual_seed(3)
    first = torch.randn(3, device="npu").cpu()
    torch.npu.manual_seed_all(3)
    assert torch.equal(torch.randn(3, device="npu").cpu(), first)
    state = torch.npu.get_rng_state()
    second = torch.randn(3, device="npu").cpu()
    torch.npu.set_rng_state(state)
    assert torch.equal(torch.randn(3, device="npu").cpu(), second)


def case_complex_numbers() -> None:
    def program(d: str) -> list[Tensor]:
        a = torch.randn(4, dtype=torch.complex64).to(d)
        turned = torch.fft.ifft(torch.fft.fft(a))
        polar = torch.polar(torch.ones(3, device=d), torch.ones(3, device=d))
        return [a.conj() * a, turned, a.conj().clone(), polar, a.abs(), a.conj().imag.clone()]

    same_on_both(program)


def case_sparse_tensors() -> None:
    def program(d: str) -> list[Tensor]:
        places = torch.tensor([[0, 1, 1], [2, 0, 0]])
        sparse = torch.sparse_coo_tensor(places, torch.tensor([3.0, 4.0, 5.0]), (2, 3)).to(d)
        layer = nn.Embedding(5, 3, sparse=True).to(d)
        optimizer = torch.optim.SparseAdam(layer.parameters())
        layer(torch.tensor([1, 2], device=d)).sum().backward()
        optimizer.step()
        return [sparse.to_dense(), sparse.coalesce().values(), layer.weight]

    same_on_both(program)
    sparse = torch.eye(3).to_sparse().npu()
    raises(lambda: torch.sparse.mm(sparse, torch.ones(3, 2).npu()), "not currently supported")


def case_functional_transforms() -> None:
    from torch.func import grad, hessian, jacrev, vmap

    def program(d: str) -> list[Tensor]:
        w, x = torch.randn(3, 3).to(d), torch.randn(5, 3).to(d)
        per_sample = vmap(grad(lambda w, x: (x @ w).tanh().sum()), (None, 0))(w, x)
        return [per_sample, jacrev(lambda w: x @ w)(w), hessian(lambda x: (x**3).sum())(x[0])]

    same_on_both(program)


def case_second_derivatives() -> None:
    def program(d: str) -> Any:
        x = torch.arange(4.0).to(d).requires_grad_()
        loss = x.pow(3).sum() + F.conv1d(x.view(1, 1, -1), x.view(1, 1, -1)[:, :, :2]).sum()
        (first,) = torch.autograd.grad(loss, x, create_graph=True)
        return torch.autograd.grad(first.pow(2).sum(), x)

    same_on_both(program)


def case_copies_and_files() -> None:
    layer = nn.Linear(2, 2).npu()
    assert copy.deepcopy(layer).weight.device.type == "npu"
    assert pickle.loads(pickle.dumps(torch.ones(2, device="npu"))).device.type == "npu"
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    for place in ("cpu", "npu", "npu:1", None):
        file.seek(0)
        loaded = torch.load(file, map_location=place)["weight"]
        assert loaded.device.type == ("cpu" if place == "cpu" else "npu")
        assert torch.equal(loaded.cpu(), layer.weight.cpu())


def case_tensors_like_another() -> None:
    host, there = torch.ones(2, 3).t(), torch.ones(2, 3, device="npu").t()
    for make in (torch.empty_like, torch.zeros_like, torch.ones_like, torch.rand_like):
        assert make(there).device.type == make(host, device="npu").device.type == "npu"
        made = make(there, device="cpu", dtype=torch.float64)
        assert (made.device.type, made.dtype) == ("cpu", torch.float64)
        assert make(there).stride() == make(host).stride()
    assert torch.empty_like(there, device="cpu", pin_memory=True).is_pinned()
    assert torch.ones_like(there, device="meta").device.type == "meta"


def case_types_and_printing() -> None:
    assert str(torch.ones(2, device="npu")) == "tensor([1., 1.], device='npu:0')"
    assert torch.npu.FloatTensor([1, 2]).device.type == "npu"
    assert torch.ones(2).npu().type(torch.npu.HalfTensor).dtype is torch.float16
    assert torch.ones(2, device="npu").half().float().int().tolist() == [1, 1]
    assert torch.tensor(3.0, device="npu").item() == 3
    assert "npu" in repr(torch.arange(3000, device="npu"))


def case_low_precision_that_the_cpu_lacks() -> None:
    half = torch.eye(3, device="npu").half()
    assert (half @ half).dtype is torch.float16
    assert torch.linalg.vector_norm(half).dtype is torch.float16


def case_what_has_no_cpu_kernel_is_named() -> None:
    names = torch._C._dispatch_get_all_op_names()
    assert "aten::_cslt_compress" in names
    x = torch.ones(4, 4, device="npu")
    raises(lambda: torch.ops.aten._cslt_compress(x), "aten::_cslt_compress")


def case_compile_runs_eagerly() -> None:
    layer = torch.compile(nn.Linear(2, 2).npu())
    assert layer(torch.ones(1, 2).npu()).shape == (1, 2)
    assert "_orig_mod.weight" in layer.state_dict()

    @torch.compile
    def double(x: Tensor) -> Tensor:
        return x * 2

    assert double(torch.ones(1, device="npu")).item() == 2
    eager = torch.compile(lambda x: x + 1, backend="eager")
    assert eager(torch.ones(1, device="npu")).item() == 2


def case_unknown_fused_operators_are_refused_by_name() -> None:
    boxes = torch.ones(2, 4, device="npu")
    raises(lambda: torch_npu.npu_iou(boxes, boxes), "not simulated: npu::npu_iou")


def case_data_parallel() -> None:
    plain = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)).npu()
    model = nn.DataParallel(plain)
    x = torch.randn(6, 4)
    model(x.npu()).pow(2).sum().backward()
    assert plain[0].weight.grad is not None
    assert plain[0].weight.grad.device == torch.device("npu:0")
    model.eval()
    seen = [str(r[0].weight.device) for r in model.replicate(plain, model.device_ids)]
    assert seen == ["npu:0", "npu:1"]
    assert torch.equal(model(x.npu()).cpu(), plain(x.npu()).cpu())


if __name__ == "__main__":
    run_cases(globals())

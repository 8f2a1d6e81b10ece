"""Calls of native PyTorch APIs on tensors of a device, from torch's own test samples.

torch ships samples for its operators, modules and optimizers (``torch.testing._internal``, which
needs the package ``expecttest``); ``OWN`` holds those that it has none for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.utils._pytree import tree_map

Call = Callable[[], Any]
Make = Callable[..., Any]

DTYPES = (torch.float32, torch.complex64, torch.int64, torch.bool)
"""In this order: the first that an operator knows."""
MOST = 6
"""Samples tried per API."""


def _db() -> dict[str, tuple[Any, Make]]:
    """The operators and their callables by their names below ``torch`` and as methods."""
    found: dict[str, tuple[Any, Make]] = {}
    for op in op_db:
        for variant in (op, *op.aliases):
            found.setdefault(f"torch.{variant.name}", (op, variant.op))
            for method in (variant.method_variant, variant.inplace_variant):
                if hasattr(method, "__name__"):
                    found.setdefault(f"torch.Tensor.{method.__name__}", (op, method))
    return found


OPERATORS = _db()
MODULES = {f"torch.nn.{info.module_cls.__name__}": info for info in module_db}


def calls(api: str, device: str) -> Iterator[Call]:
    """Ready calls of an API: their inputs lie on the device, and each may be made once."""
    if api in OWN:
        yield from (partial(make, device) for make in OWN[api])
    elif api in OPERATORS:
        yield from islice(_operator(api, device), MOST)
    elif api in MODULES:
        yield from islice(_module(api, device), MOST)
    elif api.startswith("torch.optim."):
        optimizer = resolve(api)
        if isinstance(optimizer, type) and issubclass(optimizer, torch.optim.Optimizer):
            yield partial(_steps, optimizer, device)


def resolve(api: str) -> Any:
    """The object that a dotted name means; None when torch has no such name."""
    found: Any = torch
    for part in api.split(".")[1:]:
        found = getattr(found, part, None)
    return found


def _moved(value: Any, device: str) -> Any:
    def move(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return leaf.detach().to(device).requires_grad_(leaf.requires_grad)

    return tree_map(move, value)


def _operator(api: str, device: str) -> Iterator[Call]:
    op, function = OPERATORS[api]
    dtype = next((dtype for dtype in DTYPES if dtype in op.dtypes), torch.float64)
    grad = op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    for sample in _spread(op.sample_inputs("cpu", dtype, requires_grad=grad)):
        first, args, kwargs = _moved((sample.input, sample.args, dict(sample.kwargs)), device)
        if api.endswith("_"):
            first = first.clone()  # what requires a gradient is not written in place
        yield partial(function, first, *args, **kwargs)


def _spread(samples: Iterable[Any]) -> list[Any]:
    """A few of all samples: the first ones alone are often scalars or empty."""
    every = list(islice(samples, 60))
    return every[:: max(1, len(every) // MOST)]


def _module(api: str, device: str) -> Iterator[Call]:
    info = MODULES[api]
    for sample in info.module_inputs_func(
        info, device="cpu", dtype=torch.float32, requires_grad=True, training=True
    ):
        made, given = sample.constructor_input, sample.forward_input
        if given is None:
            continue
        module = info.module_cls(*made.args, **made.kwargs).to(device)
        args, kwargs = _moved((given.args, given.kwargs), device)
        yield partial(module, *args, **kwargs)


def _steps(optimizer: Any, device: str) -> None:
    weight = torch.nn.Parameter(torch.randn(4, 4, device=device))
    made = optimizer([weight])
    for _ in range(2):
        made.step(lambda: _loss(weight))


def _loss(weight: torch.Tensor) -> torch.Tensor:
    weight.grad = torch.ones_like(weight)
    return torch.zeros((), device=weight.device)


def _x(device: str, *shape: int) -> torch.Tensor:
    return torch.randn(*(shape or (4, 4)), device=device)


def _packed(device: str) -> Any:
    lengths = torch.tensor([3, 2])
    return torch.nn.utils.rnn.pack_padded_sequence(_x(device, 3, 2, 4), lengths)


def _sequences(device: str) -> list[torch.Tensor]:
    return [_x(device, 3, 4), _x(device, 2, 4)]


def _csr(layout: str) -> Make:
    def make(device: str) -> Any:
        index = torch.tensor([0, 1, 2], device=device), torch.tensor([0, 1], device=device)
        block = layout in ("bsr", "bsc")
        values = _x(device, 2, 2, 2) if block else _x(device, 2)
        size = (4, 4) if block else (2, 2)
        return getattr(torch, f"sparse_{layout}_tensor")(*index, values, size=size)

    return make


def _square(x: torch.Tensor) -> torch.Tensor:
    return (x * x).sum()


def _sparse(device: str) -> torch.Tensor:
    return torch.eye(4, device=device).to_sparse()


def _per_tensor(device: str) -> torch.Tensor:
    return torch.quantize_per_tensor(_x(device), 0.1, 0, torch.qint8)


def _nested(device: str) -> torch.Tensor:
    return torch.nested.nested_tensor(_sequences(device), layout=torch.jagged)


_nn = torch.nn
_rnn = torch.nn.utils.rnn
OWN: dict[str, tuple[Make, ...]] = {
    "torch.nn.utils.rnn.pack_padded_sequence": (_packed,),
    "torch.nn.utils.rnn.pad_packed_sequence": (lambda d: _rnn.pad_packed_sequence(_packed(d)),),
    "torch.nn.utils.rnn.unpack_sequence": (lambda d: _rnn.unpack_sequence(_packed(d)),),
    "torch.nn.utils.rnn.pack_sequence": (lambda d: _rnn.pack_sequence(_sequences(d)),),
    "torch.nn.utils.rnn.unpad_sequence": (
        lambda d: _rnn.unpad_sequence(_x(d, 3, 2, 4), torch.tensor([3, 2])),
    ),
    "torch.nn.utils.clip_grad_norm": (lambda d: _clip(d),),
    **{f"torch.sparse_{layout}_tensor": (_csr(layout),) for layout in ("csr", "csc", "bsr", "bsc")},
    "torch.sparse_compressed_tensor": (
        lambda d: torch.sparse_compressed_tensor(
            torch.tensor([0, 1, 2], device=d),
            torch.tensor([0, 1], device=d),
            _x(d, 2),
            size=(2, 2),
            layout=torch.sparse_csr,
        ),
    ),
    "torch.quantize_per_tensor": (_per_tensor,),
    "torch.quantize_per_channel": (
        lambda d: torch.quantize_per_channel(
            _x(d), torch.ones(4, device=d), torch.zeros(4, device=d), 0, torch.qint8
        ),
    ),
    "torch.dequantize": (lambda d: torch.dequantize(_per_tensor(d)),),
    "torch.Tensor.dequantize": (lambda d: _per_tensor(d).dequantize(),),
    "torch.Tensor.int_repr": (lambda d: _per_tensor(d).int_repr(),),
    "torch.Tensor.qscheme": (lambda d: _per_tensor(d).qscheme(),),
    "torch.Tensor.to_sparse": (lambda d: torch.eye(4, device=d).to_sparse(),),
    "torch.Tensor.to_sparse_csr": (lambda d: torch.eye(4, device=d).to_sparse_csr(),),
    "torch.Tensor.to_sparse_csc": (lambda d: torch.eye(4, device=d).to_sparse_csc(),),
    "torch.Tensor.to_sparse_bsr": (lambda d: torch.eye(4, device=d).to_sparse_bsr((2, 2)),),
    "torch.Tensor.to_sparse_bsc": (lambda d: torch.eye(4, device=d).to_sparse_bsc((2, 2)),),
    "torch.Tensor.to_dense": (lambda d: _sparse(d).to_dense(),),
    "torch.Tensor.to_mkldnn": (lambda d: _x(d).to_mkldnn(),),
    "torch.Tensor.smm": (lambda d: _sparse(d).smm(_x(d)),),
    "torch.Tensor.sspaddmm": (lambda d: _sparse(d).sspaddmm(_sparse(d), _x(d)),),
    "torch.Tensor.sparse_mask": (lambda d: _x(d).sparse_mask(_sparse(d).coalesce()),),
    "torch.Tensor.indices": (lambda d: _sparse(d).coalesce().indices(),),
    "torch.Tensor.values": (lambda d: _sparse(d).coalesce().values(),),
    "torch.Tensor.sparse_dim": (lambda d: _sparse(d).sparse_dim(),),
    "torch.Tensor.dense_dim": (lambda d: _sparse(d).dense_dim(),),
    "torch.Tensor.map_": (lambda d: _x(d).map_(_x(d), lambda a, b: a + b),),
    "torch.nested.nested_tensor_from_jagged": (
        lambda d: torch.nested.nested_tensor_from_jagged(
            _x(d, 5, 4), torch.tensor([0, 3, 5], device=d)
        ),
    ),
    "torch.nested.to_padded_tensor": (lambda d: torch.nested.to_padded_tensor(_nested(d), 0.0),),
    "torch.nested.masked_select": (lambda d: torch.nested.masked_select(_x(d), _x(d) > 0),),
    "torch.nested.narrow": (
        lambda d: torch.nested.narrow(
            _x(d), 1, 0, torch.tensor([2, 3, 1, 4], device=d), layout=torch.jagged
        ),
    ),
    "torch.func.hessian": (lambda d: torch.func.hessian(_square)(_x(d)),),
    "torch.func.jacfwd": (lambda d: torch.func.jacfwd(_square)(_x(d)),),
    "torch.func.jacrev": (lambda d: torch.func.jacrev(_square)(_x(d)),),
    "torch.func.jvp": (lambda d: torch.func.jvp(_square, (_x(d),), (_x(d),)),),
    "torch.func.vjp": (lambda d: torch.func.vjp(_square, _x(d))[1](torch.ones((), device=d)),),
    "torch.func.vmap": (lambda d: torch.func.vmap(_square)(_x(d)),),
    "torch.vmap": (lambda d: torch.vmap(_square)(_x(d)),),
    "torch.func.functionalize": (lambda d: torch.func.functionalize(_square)(_x(d)),),
    "torch.from_dlpack": (lambda d: resolve("torch.from_dlpack")(_x(d)),),
    "torch.asarray": (lambda d: torch.asarray([1.0, 2.0], device=d),),
    "torch.tensor": (lambda d: torch.tensor([1.0, 2.0], device=d),),
    "torch.tril_indices": (lambda d: torch.tril_indices(3, 3, device=d),),
    "torch.fft.fftfreq": (lambda d: torch.fft.fftfreq(8, device=d),),
    "torch.fft.rfftfreq": (lambda d: torch.fft.rfftfreq(8, device=d),),
    "torch.nn.functional.gumbel_softmax": (
        lambda d: _nn.functional.gumbel_softmax(_x(d).requires_grad_()),
    ),
    "torch.nn.AdaptiveLogSoftmaxWithLoss": (
        lambda d: _nn.AdaptiveLogSoftmaxWithLoss(8, 12, [4, 8]).to(d)(
            _x(d, 5, 8), torch.tensor([0, 3, 5, 9, 11], device=d)
        ),
    ),
    "torch.nn.TransformerEncoder": (
        lambda d: _nn.TransformerEncoder(
            _nn.TransformerEncoderLayer(8, 2, 16), 2, enable_nested_tensor=False
        ).to(d)(_x(d, 3, 2, 8)),
    ),
    "torch.nn.TransformerDecoder": (
        lambda d: _nn.TransformerDecoder(_nn.TransformerDecoderLayer(8, 2, 16), 2).to(d)(
            _x(d, 3, 2, 8), _x(d, 3, 2, 8)
        ),
    ),
    "torch.nn.DataParallel": (lambda d: _nn.DataParallel(_nn.Linear(4, 4).to(d))(_x(d)),),
    "torch.nn.RNNBase": (lambda d: _nn.RNN(4, 8).to(d)(_x(d, 3, 2, 4)),),
    "torch.nn.RNN": (lambda d: _nn.RNN(4, 8).to(d)(_x(d, 3, 2, 4)),),
    "torch.nn.LSTM": (lambda d: _nn.LSTM(4, 8).to(d)(_x(d, 3, 2, 4)),),
    "torch.nn.GRU": (lambda d: _nn.GRU(4, 8).to(d)(_x(d, 3, 2, 4)),),
    "torch.nn.LazyConv1d": (lambda d: _nn.LazyConv1d(4, 2).to(d)(_x(d, 2, 3, 8)),),
    "torch.nn.LazyConvTranspose1d": (
        lambda d: _nn.LazyConvTranspose1d(4, 2).to(d)(_x(d, 2, 3, 8)),
    ),
    "torch.nn.MaxUnpool1d": (lambda d: _nn.MaxUnpool1d(2)(*_pooled(d, 1)),),
    "torch.nn.MaxUnpool3d": (lambda d: _nn.MaxUnpool3d(2)(*_pooled(d, 3)),),
    "torch.poisson": (lambda d: torch.poisson(_x(d).abs()),),
    "torch.nn.RReLU": (lambda d: _nn.RReLU()(_x(d).requires_grad_()),),
    "torch.nn.Hardsigmoid": (lambda d: _nn.Hardsigmoid()(_x(d).requires_grad_()),),
    "torch.nn.functional.lp_pool1d": (
        lambda d: _nn.functional.lp_pool1d(_x(d, 2, 4, 8).requires_grad_(), 2.0, 2),
    ),
    "torch.nn.functional.lp_pool2d": (
        lambda d: _nn.functional.lp_pool2d(_x(d, 2, 4, 8).requires_grad_(), 2.0, 2),
    ),
    "torch.Tensor.slogdet": (lambda d: _x(d).slogdet(),),
    "torch.Tensor.atanh_": (lambda d: _x(d).tanh().atanh_(),),
    "torch.Tensor.float_power_": (lambda d: _x(d).double().float_power_(2),),
    "torch.Tensor.real": (lambda d: _complex(d).real,),
    "torch.Tensor.imag": (lambda d: _complex(d).imag,),
    "torch.Tensor.set_": (lambda d: _x(d).set_(_x(d).untyped_storage()),),
    "torch.nn.Unflatten": (lambda d: _nn.Unflatten(1, (2, 2))(_x(d)),),
    "torch.nn.functional.upsample": (
        lambda d: _nn.functional.upsample(_x(d, 1, 2, 4, 4), scale_factor=2),
    ),
}
"""Samples for what torch has none for."""


def _pooled(device: str, dimensions: int) -> tuple[torch.Tensor, torch.Tensor]:
    pool = getattr(_nn, f"MaxPool{dimensions}d")(2, return_indices=True)
    values, places = pool(torch.randn(1, 2, *[4] * dimensions))
    return values.to(device), places.to(device)


def _complex(device: str) -> torch.Tensor:
    return torch.randn(4, 4, dtype=torch.complex64, device=device)


def _clip(device: str) -> None:
    layer = _nn.Linear(4, 4).to(device)
    layer(_x(device)).sum().backward()
    _nn.utils.clip_grad_norm_(layer.parameters(), 1.0)

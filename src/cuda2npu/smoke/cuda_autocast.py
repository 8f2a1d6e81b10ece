"""Autocast on the CPU by the lists of CUDA. Child side, in the reference run alone.

The lists of the two differ: on the CPU ``layer_norm`` of a float16 tensor stays float16, on CUDA
and on NPUs it becomes float32. The tables are those of torch's ``autocast_mode.h``. They take the
place of the CPU's own below the Python level, so that an operation within another has them too.
The few operations that CUDA's autocast knows and torch_npu's does not are left alone here as there:
a note of the simulator tells of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.library import fallthrough_kernel

from cuda2npu.simulator.libraries import library, split

LOWER_PRECISION = (
    "_convolution.deprecated _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d "
    "conv_transpose2d.input conv_transpose3d.input convolution prelu addmm addmv addr matmul "
    "einsum mm mv linalg_vecdot linear addbmm baddbmm bmm chain_matmul linalg_multi_dot "
    "_thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell "
    "_scaled_dot_product_flash_attention scaled_dot_product_attention"
).split()
FLOAT32 = (
    "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan "
    "pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm "
    "group_norm frobenius_norm.dim nuclear_norm nuclear_norm.dim cosine_similarity "
    "poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss kl_div "
    "l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss "
    "soft_margin_loss triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist "
    "pdist cdist renorm logsumexp"
).split()
FLOAT32_RESULT = (
    "prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm "
    "linalg_matrix_norm linalg_matrix_norm.str_ord sum sum.dim_IntList"
).split()
RECURRENT = "gru.input gru.data rnn_tanh.input rnn_tanh.data rnn_relu.input rnn_relu.data".split()
"""Parts of cuDNN on CUDA, which have a rule of their own there: all in the lower precision."""
WITH_DTYPE = {
    "norm.Scalar": "norm.ScalarOpt_dtype",
    "norm.ScalarOpt_dim": "norm.ScalarOpt_dim_dtype",
}
WIDEST = (
    "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add"
).split()

_KEY = "AutocastCPU"
_COMPOSITE = "CompositeImplicitAutograd"
_LSTM = "mkldnn_rnn_layer"
_OF_THE_CPU_ALONE = ("_native_multi_head_attention", "_addmm_activation", _LSTM)
"""What the CPU computes parts of a model with that are other operations on CUDA."""
_LOW = (torch.float16, torch.bfloat16)

Kernel = Callable[..., Any]
Cast = Callable[[Any], Any]


def follow_cuda() -> None:
    """Turn it on for the rest of the process."""
    put = library("aten")
    has: Any = torch._C._dispatch_has_kernel_for_dispatch_key
    kernels: dict[str, Kernel] = {}
    for name in (*LOWER_PRECISION, *RECURRENT):
        if not has(f"aten::{name}", _KEY):  # its own caches what it made of a weight
            kernels[name] = _in(lambda: torch.get_autocast_dtype("cpu"), _overload(name))
    for name in FLOAT32:
        kernels[name] = _in(lambda: torch.float32, _overload(name))
    for name in FLOAT32_RESULT:
        kernels[name] = _with_result(_overload(name))
    for name, other in WITH_DTYPE.items():
        kernels[name] = _with_other(_overload(name), _overload(other))
    for name in WIDEST:
        kernels[name] = _in_widest(_overload(name))
    kernels[_LSTM] = _lstm(_overload(_LSTM))
    known = {*kernels, *LOWER_PRECISION, *_OF_THE_CPU_ALONE}
    for full in torch._C._dispatch_get_all_op_names():
        name = full.removeprefix("aten::")
        if name != full and name not in known and has(full, _KEY):
            composite = has(full, _COMPOSITE)
            kernels[name] = fallthrough_kernel if composite else _as_it_is(_overload(name))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch tells of kernels that are replaced
        for name, kernel in kernels.items():
            put(name, _KEY, kernel)


def _overload(name: str) -> Kernel:
    found: Any = torch._C._get_operation_overload(*split(f"aten::{name}"))
    call: Kernel = found[0]
    return call


def _without_autocast() -> Any:
    keys: Any = torch._C.DispatchKeySet
    return torch._C._ExcludeDispatchKeyGuard(keys(getattr(torch._C.DispatchKey, _KEY)))


def _eligible(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.is_floating_point()
        and value.dtype is not torch.float64
    )


def _mapped(change: Cast, value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(change, each) for each in value)
    return change(value) if _eligible(value) else value


def _in(dtype: Callable[[], torch.dtype], call: Kernel) -> Kernel:
    def kernel(*args: Any, **options: Any) -> Any:
        wanted = dtype()
        with _without_autocast():
            args = _mapped(lambda tensor: tensor.to(wanted), args)
            options = {k: _mapped(lambda t: t.to(wanted), v) for k, v in options.items()}
            return call(*args, **options)

    return kernel


def _with_result(call: Kernel) -> Kernel:
    """``dtype=torch.float32`` is added for a floating tensor, unless a type was asked for."""

    def kernel(tensor: Any, *args: Any, **options: Any) -> Any:
        if _eligible(tensor) and options.get("dtype") is None and not _has_dtype(args):
            options["dtype"] = torch.float32
        with _without_autocast():
            return call(tensor, *args, **options)

    return kernel


def _with_other(call: Kernel, with_dtype: Kernel) -> Kernel:
    """The same by another overload: that of the first one without a ``dtype``."""

    def kernel(tensor: Any, p: Any = 2, *args: Any, **options: Any) -> Any:
        with _without_autocast():
            if _eligible(tensor):
                return with_dtype(tensor, p, *args, **options, dtype=torch.float32)
            return call(tensor, p, *args, **options)

    return kernel


def _has_dtype(args: tuple[Any, ...]) -> bool:
    """``softmax`` takes it by its place."""
    return any(isinstance(value, torch.dtype) for value in args)


def _in_widest(call: Kernel) -> Kernel:
    """In float32 where one of the tensors is, else in the type of the autocast."""

    def kernel(*args: Any, **options: Any) -> Any:
        kinds: list[torch.dtype] = []
        _mapped(lambda tensor: kinds.append(tensor.dtype), (*args, *options.values()))
        wide = torch.float32 in kinds
        return _in(lambda: torch.float32 if wide else torch.get_autocast_dtype("cpu"), call)(
            *args, **options
        )

    return kernel


def _lstm(call: Kernel) -> Kernel:
    """In the type of the autocast; the CPU knows no float16 there, and computes in float32."""

    def kernel(*args: Any, **options: Any) -> Any:
        dtype = torch.get_autocast_dtype("cpu")
        if dtype is not torch.float16:
            return _in(lambda: dtype, call)(*args, **options)
        output, hidden, cell, workspace = _in(lambda: torch.float32, call)(*args, **options)
        return output.to(dtype), hidden.to(dtype), cell.to(dtype), workspace

    return kernel


def _as_it_is(call: Kernel) -> Kernel:
    """What the CPU's lists name and CUDA's do not; in float32 where the CPU lacks the type."""

    def kernel(*args: Any, **options: Any) -> Any:
        with _without_autocast():
            try:
                return call(*args, **options)
            except RuntimeError as error:
                if "not implemented for" not in str(error):
                    raise
            low: list[torch.dtype] = []
            _mapped(lambda tensor: low.append(tensor.dtype), (*args, *options.values()))
            wide = call(
                *_mapped(lambda tensor: tensor.float(), args),
                **{k: _mapped(lambda t: t.float(), v) for k, v in options.items()},
            )
            return _mapped(lambda tensor: tensor.to(low[0]), wide) if low[0] in _LOW else wide

    return kernel

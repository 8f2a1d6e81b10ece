"""The same random draws on every device. Child side, where tensors are not on the CPU."""

from __future__ import annotations

import random
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch.nn.modules import module as hooks
from torch.overrides import TorchFunctionMode

from cuda2npu.simulator import generators
from cuda2npu.smoke import modes

_MAKERS = {torch.rand, torch.randn, torch.randint, torch.randperm, torch.normal}
_LIKE = {torch.rand_like, torch.randn_like, torch.randint_like}
_IN_PLACE = {
    torch.Tensor.normal_, torch.Tensor.uniform_, torch.Tensor.random_, torch.Tensor.exponential_,
    torch.Tensor.bernoulli_, torch.Tensor.log_normal_, torch.Tensor.cauchy_,
    torch.Tensor.geometric_,
}  # fmt: skip
_OF_TENSOR = {
    torch.bernoulli, torch.Tensor.bernoulli, torch.multinomial, torch.Tensor.multinomial,
    torch.poisson,
}  # fmt: skip
_DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout",
             "feature_alpha_dropout")  # fmt: skip


def seed(value: int) -> None:
    """Seed all streams, and what the script is yet to seed by chance."""
    _by_chance(random.Random(value))
    random.seed(value)
    try:
        import numpy as np
    except ImportError:
        pass
    else:
        np.random.seed(value % 2**32)
    torch.manual_seed(value)


def _by_chance(source: random.Random) -> None:
    """``torch.seed()`` and its like ask for any seed at all: they get the same in both runs."""

    def seed() -> int:
        value = source.getrandbits(63)
        torch.manual_seed(value)
        return value

    root: Any = torch
    root.seed = root.random.seed = seed
    for module in (root.cuda, getattr(root, "npu", root.cuda)):
        for owner in (module, module.random):
            owner.seed = owner.seed_all = seed


def draw_on_host(device: str) -> None:
    """All draws of this process are the CPU's, those on ``device`` too."""
    module = getattr(torch, device)
    own = module.manual_seed_all
    generators.lead(module)
    led = module.manual_seed_all

    def manual_seed(seed: int) -> None:
        own(seed)  # for what native code draws unseen
        led(seed)

    for owner in (module, module.random):
        owner.manual_seed = owner.manual_seed_all = manual_seed
    modes.enter(DrawOnHost())


class DrawOnHost(TorchFunctionMode):
    """Draws with the generator of the CPU and moves what was drawn to the device."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.dropout:
            return _dropout(*args, **kwargs)
        try:
            known = func in _ALL
        except TypeError:
            known = False
        if not known:
            return func(*args, **kwargs)
        own = kwargs.get("generator")
        if own is None or own.device.type == "cpu":
            return self._drawn(func, args, kwargs)
        host, _ = generators.host_generator(own)
        made = self._drawn(func, args, {**kwargs, "generator": host})
        generators.finish(own, host)
        return made

    def _drawn(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func in _MAKERS:
            return _make(func, args, kwargs)
        if func in _LIKE:
            device = kwargs.get("device") or args[0].device
            made = func(args[0].detach().cpu(), *args[1:], **{**kwargs, "device": "cpu"})
            return made.to(device)
        tensor = args[0]
        if tensor.device.type in ("cpu", "meta"):
            return func(*args, **kwargs)
        arguments = [a.cpu() if isinstance(a, torch.Tensor) else a for a in args[1:]]
        if func in _IN_PLACE:
            drawn = func(torch.empty_like(tensor, device="cpu"), *arguments, **kwargs)
            with torch.no_grad():
                tensor.copy_(drawn)
            return tensor
        return func(tensor.cpu(), *arguments, **kwargs).to(tensor.device)


_ALL = _MAKERS | _LIKE | _IN_PLACE | _OF_TENSOR


def _make(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    device = kwargs.get("device")
    if device is None and func is torch.normal:
        device = next((a.device for a in args if isinstance(a, torch.Tensor)), None)
    if device is None:
        device = torch.get_default_device()
    if torch.device(device).type in ("cpu", "meta"):
        return func(*args, **kwargs)
    gradient = kwargs.get("requires_grad", False)
    arguments = [a.cpu() if isinstance(a, torch.Tensor) else a for a in args]
    options = {k: v for k, v in kwargs.items() if k not in ("requires_grad", "pin_memory")}
    if func is not torch.normal or "device" in options:
        options["device"] = "cpu"
    return func(*arguments, **options).to(device).requires_grad_(gradient)


def _dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    if not training or input.device.type == "cpu" or not 0 < p < 1:
        return F.dropout(input, p, training, inplace)
    kept = torch.empty(input.shape, dtype=input.dtype, device="cpu").bernoulli_(1 - p).div_(1 - p)
    kept = kept.to(input.device)
    return input.mul_(kept) if inplace else input * kept


def without_dropout() -> None:
    """Turn every dropout off, those inside of attention and recurrent layers too."""
    for name in _DROPOUTS:
        setattr(F, name, lambda input, *_, **__: input)
    attention = F.scaled_dot_product_attention

    def plain(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
              *rest: Any, **options: Any) -> Any:  # fmt: skip
        return attention(query, key, value, attn_mask, 0.0, *rest, **options)

    F.scaled_dot_product_attention = plain

    def before(module: Any, _: Any) -> None:
        if isinstance(module, (torch.nn.RNNBase, torch.nn.MultiheadAttention)):
            module.dropout = 0.0

    hooks.register_module_forward_pre_hook(before)

"""The tensors that a module is called with: their names, other sizes, other values. Child side."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from cuda2npu.export.shapes import Axis
from cuda2npu.model import UsageError
from cuda2npu.running.inputs import Drawn
from cuda2npu.running.tensors import draw, flatten


class Call(NamedTuple):
    """A module and what it is called with."""

    module: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def with_tensors(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Call:
        """The same call with other tensors in the same places; all of them are copies."""

        def leaf(value: Any) -> Any:
            return change(value).clone() if isinstance(value, torch.Tensor) else value

        args, kwargs = pytree.tree_map(leaf, (self.args, self.kwargs))
        return Call(self.module, args, kwargs)

    def copy(self) -> Call:
        return self.with_tensors(lambda tensor: tensor)

    def parameters(self) -> dict[str, Any]:
        """The arguments by the names of the parameters, in the order of the signature.

        A module that torch.jit.trace made has no names: the arguments are numbered.
        """
        try:
            signature = inspect.signature(self.module.forward)
        except ValueError:
            return {**{f"input_{n}": each for n, each in enumerate(self.args)}, **self.kwargs}
        try:
            bound = signature.bind(*self.args, **self.kwargs)
        except TypeError as error:
            kind = type(self.module).__name__
            raise UsageError(f"{kind}.forward does not take these inputs: {error}") from None
        return dict(bound.arguments)

    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors by name: that of the parameter, with the place in it where it is nested."""
        found: dict[str, torch.Tensor] = {}
        for name, value in self.parameters().items():
            for place, tensor in flatten(value):
                parts = re.findall(r"\w+", place)
                found["_".join([name, *parts])] = tensor
        return found


def drawn_call(module: Any, given: Sequence[Drawn], seed: int) -> Call:
    """A call with inputs that are drawn at random."""
    generator = torch.Generator().manual_seed(seed)
    args: list[torch.Tensor] = []
    kwargs: dict[str, torch.Tensor] = {}
    for each in given:
        tensor = draw(each, generator)
        if each.name in kwargs:
            raise UsageError(f"--inputs {each.name}: is given twice")
        if each.name:
            kwargs[each.name] = tensor
        else:
            args.append(tensor)
    return Call(module, tuple(args), kwargs)


Axes = dict[str, dict[int, str]]
"""By input: the symbol of each axis whose size is not fixed."""


def dynamic_axes(tensors: Mapping[str, torch.Tensor], asked: Sequence[Axis]) -> Axes:
    """The axes that were asked for, by the names of the inputs."""
    names = list(tensors)
    found: Axes = {}
    for each in asked:
        chosen = names if not each.input else [_input(each.input, names)]
        for name in chosen:
            rank = tensors[name].dim()
            if each.axis < rank:
                found.setdefault(name, {})[each.axis] = each.symbol
            elif each.input:
                raise UsageError(f"--dynamic {each.input}:{each.axis}: {name} has {rank} axes")
    return found


def _input(text: str, names: Sequence[str]) -> str:
    if text in names:
        return text
    if text.isdecimal() and int(text) < len(names):
        return names[int(text)]
    raise UsageError(f"--dynamic {text}: is no input; there are {', '.join(names)}")


def dynamic_shapes(call: Call, axes: Axes) -> dict[str, Any] | None:
    """What ``dynamic_shapes`` of the exporter takes: a tree like that of the arguments."""
    if not axes:
        return None
    by_tensor = {id(tensor): axes.get(name) for name, tensor in call.tensors().items()}
    tree: dict[str, Any] = pytree.tree_map(lambda leaf: by_tensor.get(id(leaf)), call.parameters())
    return tree


def resized(tensor: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    """The tensor with another size of an axis, its values repeated as far as it takes."""
    places = torch.arange(size, device=tensor.device) % tensor.shape[axis]
    return tensor.index_select(axis, places)


def other_values(tensor: torch.Tensor) -> torch.Tensor:
    """The values of the tensor in another order, those of floating point with the other sign."""
    order = torch.randperm(tensor.numel(), generator=torch.Generator().manual_seed(1))
    mixed = tensor.reshape(-1)[order.to(tensor.device)].reshape(tensor.shape)
    return -mixed if tensor.is_floating_point() else mixed


def drawn_values(tensor: torch.Tensor, scale: float) -> torch.Tensor:
    """New values: whole numbers within the range of the tensor's, as they may be indices.

    Those of floating point spread ``scale`` times as far as the tensor's reach; a tensor that
    holds infinite values, as a mask does, keeps its own.
    """
    if not tensor.numel() or tensor.is_complex():
        return tensor
    generator = torch.Generator().manual_seed(2)
    if tensor.is_floating_point():
        reach = float(tensor.abs().max()) or 1.0
        if not math.isfinite(reach):
            return tensor
        values = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
        return (values * reach * scale).to(tensor)
    lowest, highest = int(tensor.min()), int(tensor.max())
    if highest == torch.iinfo(torch.int64).max:  # the end of a range is not in it
        return tensor
    return torch.randint(lowest, highest + 1, tensor.shape, generator=generator).to(tensor)

"""Random draws on a device come from generators of the CPU.

The device's default generator is the CPU's default generator: after ``torch.manual_seed(s)`` a
script draws the same numbers on the NPU as on the CPU, which is what lets two runs be compared.
The same holds of ``torch.cuda.manual_seed(s)`` and its like: they act on that one stream, so that
it never matters on which device a run holds the tensor that is drawn into.
A ``torch.Generator("npu")`` has a stream of its own, that of a CPU generator with its seed. Its
state holds a seed and an offset; the stream's position is kept by that state, so that seeding,
saving and restoring it work as they do on the real device.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import torch

_KEPT_POSITIONS = 4096
_DEVICE_STATE = 16
"""Bytes of the state of a generator of CUDA or of an NPU."""
_positions: OrderedDict[bytes, torch.Tensor] = OrderedDict()
_installed = False


def _key(generator: torch.Generator) -> bytes:
    return bytes(generator.get_state().tolist())


def host_generator(generator: torch.Generator) -> tuple[torch.Generator | None, bytes]:
    """The CPU generator to draw from, and the key under which ``finish`` keeps its position."""
    index = generator.device.index or 0
    defaults = getattr(torch, generator.device.type).default_generators
    if index < len(defaults) and defaults[index] is generator:
        return None, b""
    key = _key(generator)
    host = torch.Generator()
    state = _positions.get(key)
    if state is None:
        host.manual_seed(generator.initial_seed())
    else:
        host.set_state(state)
    return host, key


def finish(generator: torch.Generator, host: torch.Generator | None) -> None:
    """Moves the device generator on, after a draw from ``host``."""
    if host is None:
        return
    state = generator.get_state()
    offset = int.from_bytes(bytes(state[8:16].tolist()), "little") + 4
    state[8:16] = torch.tensor(list(offset.to_bytes(8, "little")), dtype=torch.uint8)
    generator.set_state(state)
    _positions[bytes(state.tolist())] = host.get_state()
    while len(_positions) > _KEPT_POSITIONS:
        _positions.popitem(last=False)


def install() -> None:
    """Lets ``torch.npu``'s own functions for the default generator act on the CPU's."""
    global _installed
    if _installed:
        return
    _installed = True
    root: Any = torch
    lead(root.npu)


def lead(module: Any) -> None:
    """Lets the functions of ``torch.cuda`` or ``torch.npu`` for it act on the CPU's generator."""
    for name, function in _functions(torch.default_generator, module).items():
        for owner in (module, module.random):
            if hasattr(owner, name):
                setattr(owner, name, function)


def _functions(host: torch.Generator, module: Any) -> dict[str, Callable[..., Any]]:
    def manual_seed(seed: int) -> None:
        host.manual_seed(int(seed))

    def seed() -> None:
        host.seed()

    def initial_seed() -> int:
        return host.initial_seed()

    def get_rng_state(device: Any = "") -> torch.Tensor:
        return host.get_state()

    def get_rng_state_all() -> list[torch.Tensor]:
        return [host.get_state() for _ in range(module.device_count())]

    def set_rng_state(new_state: torch.Tensor, device: Any = "") -> None:
        _restore(host, new_state.cpu())

    def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
        for state in new_states:
            _restore(host, state.cpu())

    return {
        "manual_seed": manual_seed,
        "manual_seed_all": manual_seed,
        "seed": seed,
        "seed_all": seed,
        "initial_seed": initial_seed,
        "get_rng_state": get_rng_state,
        "get_rng_state_all": get_rng_state_all,
        "set_rng_state": set_rng_state,
        "set_rng_state_all": set_rng_state_all,
    }


def _restore(host: torch.Generator, state: torch.Tensor) -> None:
    """Also a state that a real device saved in a checkpoint: a seed and an offset."""
    if state.numel() == _DEVICE_STATE:
        seed, offset = state.view(torch.int64).tolist()
        host.manual_seed((seed + offset) % 2**63)
    else:
        host.set_state(state)

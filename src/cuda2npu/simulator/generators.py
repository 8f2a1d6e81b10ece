"""Random draws on the simulated device come from generators of the CPU.

The device's default generator is the CPU's default generator: after ``torch.manual_seed(s)`` a
script draws the same numbers on the NPU as on the CPU, which is what lets two runs be compared.
A ``torch.Generator("npu")`` has a stream of its own, that of a CPU generator with its seed. Its
state holds a seed and an offset; the stream's position is kept by that state, so that seeding,
saving and restoring it work as they do on the real device.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import torch

from cuda2npu.simulator.aliases import torch_npu_module

_KEPT_POSITIONS = 4096
_positions: OrderedDict[bytes, torch.Tensor] = OrderedDict()
_installed = False


def _key(generator: torch.Generator) -> bytes:
    return bytes(generator.get_state().tolist())


def host_generator(generator: torch.Generator) -> tuple[torch.Generator | None, bytes]:
    """The CPU generator to draw from, and the key under which ``finish`` keeps its position."""
    index = generator.device.index or 0
    defaults = torch_npu_module().default_generators
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
    npu = torch_npu_module()
    for name, function in _functions(torch.default_generator, npu.device_count).items():
        for module in (npu, npu.random):
            if hasattr(module, name):
                setattr(module, name, function)


def _functions(
    host: torch.Generator, device_count: Callable[[], int]
) -> dict[str, Callable[..., Any]]:

    def manual_seed(seed: int) -> None:
        host.manual_seed(int(seed))

    def seed() -> None:
        host.seed()

    def initial_seed() -> int:
        return host.initial_seed()

    def get_rng_state(device: Any = "npu") -> torch.Tensor:
        return host.get_state()

    def get_rng_state_all() -> list[torch.Tensor]:
        return [host.get_state() for _ in range(device_count())]

    def set_rng_state(new_state: torch.Tensor, device: Any = "npu") -> None:
        host.set_state(new_state.cpu())

    def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
        for state in new_states:
            host.set_state(state.cpu())

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

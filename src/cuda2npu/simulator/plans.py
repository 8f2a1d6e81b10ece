"""What a schema says about an operator, read once: which arguments are written, which come back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from cuda2npu.simulator.libraries import split
from cuda2npu.simulator.outputs import Outputs, outputs_of

# These copy between devices or read a CPU argument on purpose; index tensors may lie on the CPU.
_MIXED_DEVICES = {
    "aten::copy_", "aten::_copy_from", "aten::_copy_from_and_resize", "aten::_to_copy",
    "aten::set_.source_Tensor", "aten::is_same_size", "aten::is_set_to",
    "aten::_pack_padded_sequence", "aten::_ctc_loss.Tensor", "aten::resize_as_",
}  # fmt: skip
_INDEX_LISTS = {
    "aten::index.Tensor", "aten::index.Tensor_out", "aten::index_put", "aten::index_put_",
    "aten::index_put.out", "aten::_index_put_impl_", "aten::_index_put_impl",
    "aten::_unsafe_index.Tensor", "aten::_unsafe_index_put",
}  # fmt: skip
_CPU_KEYS = (
    "CPU",
    "CompositeExplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
    "CompositeImplicitAutograd",
)


@dataclass(frozen=True)
class Plan:
    name: str  # "aten::add.Tensor"
    call: Any  # the operator's kernel for a given dispatch key
    key: Any  # the dispatch key of its CPU kernel, None if it has none
    dispatch: Any  # the operator itself
    written: tuple[tuple[int, str], ...]  # position and name of each argument that is written
    returned: tuple[tuple[int, str] | None, ...]  # which argument each result is, if it is one
    is_view: bool
    checks_devices: bool
    checks_lists: bool
    argument_names: tuple[str, ...]
    outputs: Outputs | None  # how to write the result without a copy

    @property
    def returns_argument(self) -> bool:
        return any(place is not None for place in self.returned)


def _cpu_key(name: str) -> Any:
    """The key of the CPU's kernel; a kernel that the table merely computed cannot be called."""
    for key in _CPU_KEYS:
        if torch._C._dispatch_has_kernel_for_dispatch_key(name, key):
            return getattr(torch._C.DispatchKey, key)
    return None


def plan_of(name: str) -> Plan:
    base, overload = split(name)
    schema = torch._C._get_schema(base, overload)
    found: Any = torch._C._get_operation_overload(base, overload)
    written: list[tuple[int, str]] = []
    by_alias: dict[str, tuple[int, str]] = {}
    names: list[str] = []
    for position, argument in enumerate(schema.arguments):
        place = (-1 if argument.kwarg_only else position, argument.name)
        names.append(argument.name)
        info = argument.alias_info
        if info is None:
            continue
        if info.is_write:
            written.append(place)
            for alias in info.before_set:
                by_alias[alias] = place
    returned: list[tuple[int, str] | None] = []
    is_view = False
    for result in schema.returns:
        info = result.alias_info
        found_place = None
        if info is not None and info.is_write:
            found_place = next((by_alias[a] for a in info.before_set if a in by_alias), None)
        elif info is not None:
            is_view = True
        returned.append(found_place)
    return Plan(
        name=name,
        call=found[1],
        key=_cpu_key(name),
        dispatch=found[0],
        written=tuple(written),
        returned=tuple(returned),
        is_view=is_view,
        checks_devices=name not in _MIXED_DEVICES,
        checks_lists=name not in _MIXED_DEVICES and name not in _INDEX_LISTS,
        argument_names=tuple(names),
        outputs=outputs_of(name),
    )

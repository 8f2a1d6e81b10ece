"""Writes the support of native APIs by chip, ``src/cuda2npu/releases/support.tsv``.

    PYTHONPATH=tools python -m cuda2npu simulate -- \\
        python tools/chip_support.py native-api-support.tsv --wheels DIR

The table given says what the support pages of Ascend/pytorch (CC-BY 4.0) say of each API: a column
per release, ``y``, ``n`` or ``-`` for Atlas A2, Atlas A3 and Ascend 950DT. Much of what is marked
unsupported there is only untested: ``torch.matmul`` is. So each mark gets a second look:

* the API is called with samples, forward and backward, on the simulated NPU, and the operators
  that it reaches are held to the kernels that the release's wheel lists (``npu_native_functions``;
  ``op_api`` is aclnn, the only kind that Ascend 950 takes);
* the page of its twin (``torch.x``, ``Tensor.x``, ``nn.functional.x``, ``nn.X``) and the pages of
  other releases are asked about the same chip.

A mark stays when every sample lacks a kernel and no page says otherwise. ``pip`` fetches each wheel
that DIR does not hold. Needs the extra ``smoke``, PyYAML and expecttest (for torch's own samples).
"""

from __future__ import annotations

import argparse
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
import yaml
from api_samples import Call, calls, resolve
from extract_names import WHEELS, fetch
from torch.utils._pytree import tree_leaves

from cuda2npu.releases.chips import FAMILIES
from cuda2npu.releases.support import DATA
from cuda2npu.simulator import record

SIMULATED = "2.13.0"
"""The release whose operators run here."""
TAKES_TENSORS = re.compile(
    r"torch\.(?:[a-z]\w*|Tensor\.\w+|nn\.[A-Z]\w+|nn\.functional\.\w+|optim\.[A-Z]\w+"
    r"|nn\.utils\.(?:rnn\.)?[a-z]\w*|(?:fft|linalg|special|nested|func|sparse)\.\w+)"
)
"""The APIs whose marks are read; storages, flags, tools and test residue are not."""
HARNESS = frozenset(
    f"aten::{name}"
    for name in "empty.memory_format empty_strided normal_ ones_like fill_.Scalar sum "
    "sum.dim_IntList stack new_empty_strided as_strided view _to_copy copy_ clone".split()
)
"""What making samples and their gradients reaches in any case."""
TWINS = (
    "torch",
    "torch.Tensor",
    "torch.nn.functional",
    "torch.nn",
    "torch.linalg",
    "torch.special",
)

Marks = dict[str, str]
"""By release, the mark of each family of chips: ``yyn``; empty where the page lists nothing."""


class Tried(NamedTuple):
    """What one sample did on the simulated NPU."""

    events: list[Any]
    """The operators that were called, as trees of profiler events."""
    missing: set[str]
    """Operators that the runtime led to the CPU, or refused."""
    refused: bool
    """Whether it raised for want of an operator."""


def read(path: Path) -> dict[str, Marks]:
    """The marks of every API of the table."""
    lines = [line for line in path.read_text("utf-8").splitlines() if not line.startswith("#")]
    _, *releases = lines[0].split("\t")
    rows = (line.split("\t") for line in lines[1:])
    return {
        api: {r: cell.split(" ")[0] for r, cell in zip(releases, cells, strict=True)}
        for api, *cells in rows
    }


def kernels(release: str, folder: Path) -> dict[str, str]:
    """The operators that a wheel has kernels for, with their kinds: ``acl_op, op_api``."""
    found: dict[str, str] = {}
    with zipfile.ZipFile(fetch(WHEELS[release], folder)) as wheel:
        for name in ("npu_native_functions.yaml", "npu_native_functions_by_codegen.yaml"):
            text = wheel.read(f"torch_npu/csrc/aten/{name}")
            document = yaml.load(text, Loader=yaml.CSafeLoader)
            for section in ("supported", "custom", "autograd", "quant"):
                for entry in document.get(section) or ():
                    given = {"func": entry} if isinstance(entry, str) else entry
                    operator = "aten::" + given["func"].partition("(")[0]
                    found[operator] = given.get(
                        "impl_ns", "op_api"
                    )  # torch_npu's own need no CANN kernel
    return found


def tried(call: Call) -> Tried | None:
    """Call an API under the profiler, and its backward. None when the sample is of no use."""
    record.clear()
    config = torch._C._profiler._ExperimentalConfig(capture_overload_names=True)
    refused = None
    with torch.autograd.profiler.profile(use_cpu=True, experimental_config=config) as profile:
        try:
            results = [t for t in tree_leaves(call()) if isinstance(t, torch.Tensor)]
            sums = [torch.real(t).sum() for t in results if t.grad_fn is not None]
            if sums:
                torch.autograd.backward(sums)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            refused = re.search(
                r"(?:operator|Could not run) '(aten::[\w.]+)'(?: is not currently supported| with)",
                str(error),
            )
            if refused is None:
                return None
    missing = {event.name for event in record.events() if event.kind == "cpu-fallback"}
    missing |= {refused[1]} if refused else set()
    events = [event for event in profile.function_events if event.cpu_parent is None]
    return Tried(events, missing, refused is not None)


def _reached(event: Any, known: Mapping[str, str]) -> Iterator[str]:
    """The operators at which a call ends: those with a kernel, and those that have none."""
    name = f"{event.name}.{event.overload_name}" if event.overload_name else event.name
    if name in known or (name.startswith("aten::") and not _is_composite(name)):
        yield name
    else:
        for child in event.cpu_children:
            yield from _reached(child, known)


def _is_composite(operator: str) -> bool:
    """Whether torch has it in terms of other operators, for every device."""
    keys = ("ImplicitAutograd", "ExplicitAutograd", "ExplicitAutogradNonFunctional")
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return any(has(operator, f"Composite{key}") for key in keys)


class Judge:
    """Holds what the samples of one API reached to the kernels of the wheels."""

    def __init__(self, api: str, wheels: Mapping[str, Mapping[str, str]]) -> None:
        self._wheels = wheels
        self.samples = [done for done in map(tried, calls(api, "npu")) if done is not None]

    def lacks(self, release: str, family: str) -> set[str] | None:
        """The operators that every sample lacks; empty when one of them has all it reaches."""
        if not self.samples:
            return None
        each = [self._lacks(sample, release, family) for sample in self.samples]
        return set.union(*each) if all(each) else set()

    def _lacks(self, sample: Tried, release: str, family: str) -> set[str]:
        known = self._wheels[release]
        here = self._wheels[SIMULATED]
        reached = {name for event in sample.events for name in _reached(event, known)}
        # An operator on the CPU's tensors lacks nothing: the runtime must have missed it, too.
        absent = {n for n in reached - known.keys() if n in sample.missing or n in here}
        absent |= sample.missing if sample.refused else set()
        if family == "950":
            absent |= {n for n in reached & known.keys() if "op_api" not in known[n]}
        return absent

    def has(self, release: str) -> list[str]:
        """The kernels that the samples reach in a release, in the order of calls."""
        known = self._wheels[release]
        events = (event for sample in self.samples for event in sample.events)
        reached = (name for event in events for name in _reached(event, known))
        return list(dict.fromkeys(n for n in reached if n in known and n not in HARNESS))


def _twins(api: str, table: Mapping[str, Marks]) -> list[str]:
    """The rows about the same function under another name."""
    place, _, last = api.rpartition(".")
    if place not in TWINS:
        return []
    plain = last.replace("_", "").lower()
    return [
        other
        for other in table
        if other != api
        and other.rpartition(".")[0] in TWINS
        and other.rpartition(".")[2].replace("_", "").lower() == plain
    ]


class Row(NamedTuple):
    """A line of the data."""

    api: str
    marks: tuple[str, ...]
    seen: tuple[str, ...]

    def __str__(self) -> str:
        return "\t".join([self.api, *self.marks, "; ".join(self.seen)])


def row(api: str, table: Mapping[str, Marks], wheels: Mapping[str, Mapping[str, str]]) -> Row:
    """An API with its marks after the second look, and what was seen."""
    judge, marks = Judge(api, wheels), table[api]
    lacking: set[str] = set()
    against: dict[str, None] = {}
    cells = []
    for release, cell in marks.items():
        new = ""
        for index, mark in enumerate(cell):
            if mark == "n":
                mark, why = _second_look(api, release, index, table, judge)
                if mark == "n":
                    lacking.update(why)
                else:
                    against.update(dict.fromkeys(why))
            new += mark
        cells.append(new or ".")
    refused = judge.samples and all(sample.refused for sample in judge.samples)
    kind = "raises" if refused else "cpu"
    seen = [f"{kind if n not in wheels[SIMULATED] else 'acl_op'} {n}" for n in sorted(lacking)]
    return Row(api, tuple(cells), (*seen, *against))


def _second_look(
    api: str, release: str, index: int, table: Mapping[str, Marks], judge: Judge
) -> tuple[str, list[str]]:
    """``n``, ``c`` (contradicted) or ``?`` (nothing to hold it to), and why."""
    lacks = judge.lacks(release, list(FAMILIES)[index])
    if lacks == set():
        operators = [name.removeprefix("aten::") for name in judge.has(release)]
        more = ", …" if len(operators) > 3 else ""
        return "c", [f"kernels {', '.join(operators[:3])}{more}" if operators else "no operator"]
    for twin in _twins(api, table):
        if table[twin].get(release, "")[index : index + 1] == "y":
            return "c", [f"page of {twin}"]
    if any(cell[index : index + 1] == "y" for cell in table[api].values()):
        return "c", ["page of another release"]
    return ("?", ["not run"]) if lacks is None else ("n", sorted(lacks))


def _unlisted(rows: list[Row], table: Mapping[str, Marks]) -> Iterator[Row]:
    """Other names of the APIs that some chip lacks, where the pages list only one of them."""
    for found in rows:
        place, _, last = found.api.rpartition(".")
        if place in TWINS[:4] and any("n" in marks for marks in found.marks):
            plain = last.replace("_", "").lower()
            classes = {name.lower(): name for name in vars(torch.nn) if name[:1].isupper()}
            others = [f"{other}.{last}" for other in TWINS[:3] if last.islower()]
            others += [f"torch.nn.{classes[plain]}"] if plain in classes else []
            for other in others:
                if other not in table and callable(resolve(other)):
                    yield Row(other, found.marks, (*found.seen, f"listed as {found.api}"))


_HEADER = """\
# Native PyTorch APIs that a support page of torch_npu marks as unsupported on some chip.
# The marks are facts extracted from the support pages of Ascend/pytorch, licensed CC-BY 4.0
# (https://creativecommons.org/licenses/by/4.0/), August 2026; changed: given a second look.
# Written by tools/chip_support.py. A column per release with a mark each for Atlas A2, Atlas A3 and
# Ascend 950DT: y supported, n unsupported and lacking a kernel, c unsupported but contradicted,
# ? marked unsupported without a second look, - unknown; a dot where the page has no such API.
# The last column is what was seen: operators without a kernel (cpu: computed there; raises;
# acl_op: a kind of kernel that Ascend 950 does not take), and what contradicts a mark.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the support of native APIs by chip.")
    parser.add_argument("table", type=Path, help="the table of the support pages")
    parser.add_argument("--wheels", type=Path, required=True, help="the folder of the wheels")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    table = read(given.table)
    releases = list(next(iter(table.values())))
    wheels = {release: kernels(release, given.wheels) for release in releases}
    rows = [
        row(api, table, wheels)
        for api, marks in table.items()
        if TAKES_TENSORS.fullmatch(api) and any("n" in cell for cell in marks.values())
    ]
    rows = sorted({found.api: found for found in (*rows, *_unlisted(rows, table))}.values())
    lines = ["\t".join(["api", *releases, "seen"]), *map(str, rows)]
    DATA.write_text(_HEADER + "\n".join(lines) + "\n", "utf-8")
    for index, family in enumerate(FAMILIES):
        for release in releases:
            every = sum(cell[release][index : index + 1] == "n" for cell in table.values())
            left = sum(
                found.marks[releases.index(release)][index : index + 1] == "n" for found in rows
            )
            print(f"{family} {release}: {every} marks, {left} left")


if __name__ == "__main__":
    main()

"""The command lines of CANN's compiler (``atc``) and tuner (``aoe``) for an exported model.

Options and values are those of the ATC pages of CANN 9.0 and of the AOE pages beside them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import PurePath

from cuda2npu.export.shapes import Sizes
from cuda2npu.export.spec import Exported, Input
from cuda2npu.model import UsageError

FEWEST, MOST = 2, 100
"""How many combinations of sizes a model may be compiled for."""
JOBS = {1: "subgraphs", 2: "operators"}
"""What ``aoe`` tunes."""

_V2 = {
    "fp16": "force_fp16",
    "origin": "must_keep_origin_dtype",
    "cube_fp16in_fp32out": "cube_fp16in_fp32out",
    "mixed_float16": "allow_mix_precision_fp16",
    "mixed_bfloat16": "allow_mix_precision_bf16",
}
"""The values of ``--precision_mode_v2``, with what the older ``--precision_mode`` calls them."""
_V1 = (
    "force_fp16 force_fp32 cube_fp16in_fp32out allow_fp32_to_fp16 must_keep_origin_dtype "
    "allow_mix_precision allow_mix_precision_fp16 allow_mix_precision_bf16 allow_fp32_to_bf16"
).split()
_WITHOUT_BFLOAT = re.compile("Ascend(310P.*|910(A|B|ProA|ProB|PremiumA))")
"""Chips before Atlas A2, whose names go on behind Ascend910B."""
_WITHOUT_RANGES = "Ascend310B"


@dataclass(frozen=True, slots=True)
class Build:
    """How a model is to be compiled."""

    soc: str = ""
    """Empty: the script asks for it."""
    precision: str = ""
    sizes: Mapping[str, Sizes] | None = None
    job: int = 2

    def __post_init__(self) -> None:
        if self.precision and self.precision not in (*_V2, *_V1):
            known = ", ".join(dict.fromkeys([*_V2, *_V1]))
            raise UsageError(f"--precision-mode {self.precision}: is none of {known}")
        if re.search("bf(loat)?16", self.precision) and _WITHOUT_BFLOAT.fullmatch(self.soc):
            raise UsageError(f"--precision-mode {self.precision}: {self.soc} has no bfloat16")
        if self.job not in JOBS:
            raise UsageError(f"--job-type {self.job}: is neither 1 (subgraphs) nor 2 (operators)")


def atc(exported: Exported, build: Build) -> list[str]:
    """The words of the command, but for ``--soc_version`` where the chip is not known."""
    soc = [f"--soc_version={build.soc}"] if build.soc else []
    return ["atc", *_common(exported, build, ""), *soc, *_precision(build, tuner=False)]


def aoe(exported: Exported, build: Build) -> list[str]:
    """The words of the command. It tunes for the chip that it runs on."""
    job = f"--job_type={build.job}"
    return ["aoe", *_common(exported, build, "_tuned"), job, *_precision(build, tuner=True)]


def om_name(file: str, suffix: str = "") -> str:
    """The name of the compiled model without ``.om``, of the characters that atc allows."""
    return re.sub(r"[^\w.-]", "_", PurePath(file).stem) + suffix


def _common(exported: Exported, build: Build, suffix: str) -> list[str]:
    words = ["--framework=5", f"--model=./{PurePath(exported.file).name}"]
    words.append(f"--output=./{om_name(exported.file, suffix)}")
    return words + _shapes(exported, build)


def _precision(build: Build, *, tuner: bool) -> list[str]:
    if not build.precision:
        return []
    if build.precision not in _V2:
        return [f"--precision_mode={build.precision}"]
    if tuner:  # it is only documented to know the older option
        return [f"--precision_mode={_V2[build.precision]}"]
    return [f"--precision_mode_v2={build.precision}"]


def _shapes(exported: Exported, build: Build) -> list[str]:
    """The shapes of the inputs, and the sizes of what is not fixed in them."""
    inputs, sizes = exported.inputs, build.sizes or {}
    layout = _layout(inputs)
    chosen = {symbol: sizes[symbol] for symbol in exported.symbols if symbol in sizes}
    tiers = [symbol for symbol in chosen if chosen[symbol].values]
    if not tiers:
        _check_ranges(exported, build)
        return [f"--input_format={layout}", f"--input_shape={_text(inputs, chosen)}"]
    missing = [symbol for symbol in exported.symbols if symbol not in tiers]
    if missing:
        raise UsageError(
            f"--sizes: {', '.join(missing)} has no list of sizes, {', '.join(tiers)} has one; atc "
            "takes lists for all or for none"
        )
    if layout != "ND" and _is_batch_alone(inputs):
        values = chosen[tiers[0]].values
        _check_number(len(values))
        tier = f"--dynamic_batch_size={','.join(map(str, values))}"
    else:
        layout, tier = "ND", f"--dynamic_dims={_dims(inputs, chosen)}"
    return [f"--input_format={layout}", f"--input_shape={_text(inputs, {})}", tier]


def _layout(inputs: Sequence[Input]) -> str:
    ranks = {len(each.shape) for each in inputs}
    return {frozenset({4}): "NCHW", frozenset({5}): "NCDHW"}.get(frozenset(ranks), "ND")


def _text(inputs: Sequence[Input], chosen: Mapping[str, Sizes]) -> str:
    return ";".join(
        f"{each.name}:{','.join(_size(size, chosen) for size in each.shape)}" for each in inputs
    )


def _size(size: int | str, chosen: Mapping[str, Sizes]) -> str:
    if isinstance(size, int):
        return str(size)
    if size in chosen:
        return f"{chosen[size].lowest}~{chosen[size].highest}"
    return "-1"


def _is_batch_alone(inputs: Sequence[Input]) -> bool:
    """Whether the first axes alone are not fixed, and all by the same symbol."""
    symbols = {size for each in inputs for size in each.shape if isinstance(size, str)}
    inner = {size for each in inputs for size in each.shape[1:] if isinstance(size, str)}
    return len(symbols) == 1 and not inner


def _dims(inputs: Sequence[Input], chosen: Mapping[str, Sizes]) -> str:
    """One group for each combination of sizes: a number for each -1, in their order."""
    places = [size for each in inputs for size in each.shape if isinstance(size, str)]
    combinations = list(product(*(sizes.values for sizes in chosen.values())))
    _check_number(len(combinations))
    tables = [dict(zip(chosen, values, strict=True)) for values in combinations]
    return ";".join(",".join(str(table[symbol]) for symbol in places) for table in tables)


def _check_number(number: int) -> None:
    if not FEWEST <= number <= MOST:
        raise UsageError(f"--sizes: {number} combinations; atc takes {FEWEST} to {MOST}")


def _check_ranges(exported: Exported, build: Build) -> None:
    if exported.symbols and build.soc.startswith(_WITHOUT_RANGES):
        example = f"--sizes {exported.symbols[0]}=1,2,4"
        raise UsageError(
            f"{build.soc} takes no ranges of sizes: say which there are, such as {example}"
        )


_SCRIPT = """\
#!/bin/bash
# Compiles the model beside it for an Ascend NPU; with the argument aoe, run on that NPU, tunes it
# there, which can take hours.
{faults}set -eu
cd "$(dirname "${{BASH_SOURCE[0]}}")"

tool=${{1:-atc}}
if ! command -v "$tool" > /dev/null; then
  for set_env in "${{ASCEND_TOOLKIT_HOME:-}}/set_env.sh" \\
      "${{HOME:-}}/Ascend/cann/set_env.sh" /usr/local/Ascend/cann/set_env.sh \\
      "${{HOME:-}}/Ascend/ascend-toolkit/set_env.sh" /usr/local/Ascend/ascend-toolkit/set_env.sh
  do
    if [ -f "$set_env" ]; then
      set +eu
      . "$set_env"
      set -eu
      break
    fi
  done
fi

case $tool in
  atc)
    {atc}
    ;;
  aoe)
    {aoe}
    ;;
  *)
    echo "usage: bash $0 [atc|aoe]" >&2
    exit 2
    ;;
esac
"""
_ASKS = '"--soc_version=${SOC_VERSION:?is not set: such as Ascend910B1, see npu-smi info}"'


def script(exported: Exported, build: Build) -> str:
    """A shell script that runs either command beside the model."""
    asked = [] if build.soc else [_ASKS]
    return _SCRIPT.format(
        faults="".join(f"# {' '.join(text.split())}\n" for text in _faults(exported)),
        atc=_lines([*map(_quoted, atc(exported, build)), *asked]),
        aoe=_lines(list(map(_quoted, aoe(exported, build)))),
    )


def _faults(exported: Exported) -> Iterator[str]:
    """What whoever finds the script beside the model has to know of it."""
    for row in exported.rows:
        if row.reasons:
            reasons = "; ".join(row.reasons)
            yield f"DIFFERS from its module: {row.case}, {row.output}: {reasons}"
    for each in exported.findings:
        yield f"FINDING {each.name}: {each.message}"


def _quoted(word: str) -> str:
    """The word for a shell, with the option's name in front of the quotes."""
    option, sign, value = word.partition("=")
    return option + sign + shlex.quote(value) if sign else shlex.quote(word)


def _lines(words: Sequence[str]) -> str:
    return " \\\n      ".join(words)

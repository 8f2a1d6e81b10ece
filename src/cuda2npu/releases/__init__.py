"""Which names each torch_npu release offers, from tables extracted from the published wheels.

``tools/extract_names.py`` writes the tables and says what they leave out. Each release stands
for its newest wheel; an older post-release may lack names that were added later.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

RELEASES: tuple[str, ...] = (
    "2.1.0",
    "2.3.1",
    "2.4.0",
    "2.5.1",
    "2.6.0",
    "2.7.1",
    "2.8.0",
    "2.9.0",
    "2.9.1",
    "2.10.0",
    "2.11.0",
    "2.12.0",
    "2.13.0",
    "2.14.0",
)
"""The known releases, oldest first."""

NEWEST: str = RELEASES[-1]


def resolve_release(text: str) -> str:
    """The known release that a version names: ``2.7`` and ``2.7.1.post4`` are 2.7.1.

    Two numbers mean the newest patch of that minor version.

    Raises:
        ValueError: for any other version; it names the nearest release and all of them.
    """
    match = re.fullmatch(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:[.+-]?[a-z].*|\+.*)?", text.strip())
    if match:
        wanted = ".".join(part for part in match.groups() if part is not None)
        for release in reversed(RELEASES):
            if release == wanted or (match[3] is None and release.startswith(wanted + ".")):
                return release
    nearest = f": the nearest known is {_nearest(text)}" if re.search(r"\d", text) else ""
    raise ValueError(f"unknown torch_npu release {text!r}{nearest} (known: {', '.join(RELEASES)})")


def _nearest(text: str) -> str:
    """The release nearest to a version that holds a number."""
    numbers = [int(number) for number in re.findall(r"\d+", text)[:3]]
    wanted = _weight([*numbers, 0, 0][:3])
    return min(RELEASES, key=lambda release: abs(wanted - _weight(_numbers(release))))


def _numbers(release: str) -> list[int]:
    return [int(number) for number in release.split(".")]


def _weight(numbers: list[int]) -> int:
    return numbers[0] * 1_000_000 + numbers[1] * 1_000 + numbers[2]


@cache
def _read(file: str) -> Mapping[str, Any]:
    data: dict[str, Any] = json.loads(Path(__file__).with_name(file).read_bytes())
    return data


def names() -> Mapping[str, str]:
    """Every recorded name, spelt from ``torch_npu`` or ``torch``, with its releases as spans."""
    table: Mapping[str, str] = _read("names.json")["names"]
    return table


def environment() -> Mapping[str, str]:
    """Every environment variable that some release reads, with its releases as spans."""
    table: Mapping[str, str] = _read("names.json")["env"]
    return table


@cache
def _covered(spans: str) -> tuple[str, ...]:
    """The releases of ``2.7.1,2.9.0-``, oldest first."""
    found: set[str] = set()
    for span in filter(None, spans.split(",")):
        first, dash, last = span.partition("-")
        start = RELEASES.index(first)
        end = RELEASES.index(last or (NEWEST if dash else first))
        found.update(RELEASES[start : end + 1])
    return tuple(release for release in RELEASES if release in found)


def _known(release: str) -> str:
    if release not in RELEASES:
        raise ValueError(f"unknown release {release!r}; resolve_release() finds the known one")
    return release


def _canonical(dotted: str) -> str:
    """``torch.npu`` is the module ``torch_npu.npu``."""
    if dotted.startswith("torch.npu."):
        return "torch_npu.npu." + dotted[len("torch.npu.") :]
    return dotted


def releases_with(dotted: str) -> tuple[str, ...]:
    """The releases that offer a name, oldest first.

    Knows ``torch.npu.…``, ``torch_npu.…`` and the names that torch_npu adds to or replaces in
    torch (``torch.distributed.is_hccl_available``). Every other name of torch is unknown here
    and so in no release. A submodule counts, although it may have to be imported first.
    """
    return _covered(names().get(_canonical(dotted), ""))


def exists(dotted: str, release: str) -> bool:
    """Whether a name exists in a known release; see ``releases_with``."""
    return _known(release) in releases_with(dotted)


def first_release(dotted: str) -> str | None:
    """The oldest known release that offers a name; later ones may lack it again."""
    return next(iter(releases_with(dotted)), None)


def env_exists(name: str, release: str) -> bool:
    """Whether a release, or CANN's libraries through it, reads an environment variable."""
    return _known(release) in _covered(environment().get(name, ""))


def parameters(dotted: str, release: str) -> tuple[str, ...] | None:
    """The parameters a caller of a function or class passes, in order.

    ``*`` alone stands before keyword-only ones; ``*args`` and ``**kwargs`` keep their stars;
    ``self`` is left out. None when the name is not in that release or not recorded.
    """
    table: Mapping[str, Mapping[str, str]] = _read("signatures.json")["signatures"]
    for spans, given in table.get(_canonical(dotted), {}).items():
        if _known(release) in _covered(spans):
            return tuple(given.split())
    return None


@cache
def torch_cuda_names() -> frozenset[str]:
    """The public names of torch 2.13's ``torch.cuda``, such as ``torch.cuda.amp.autocast``."""
    return frozenset(_read("torch_cuda.json")["names"])

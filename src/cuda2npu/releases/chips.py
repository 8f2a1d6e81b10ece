"""The names of Ascend chips: what torch_npu calls them, and the families of its support pages."""

from __future__ import annotations

import re

SOC_NAMES = (
    *(f"Ascend310B{kind}" for kind in "1234"),
    *(f"Ascend310P{kind}" for kind in "123457"),
    *(f"Ascend910{kind}" for kind in ("A", "B", "ProA", "ProB", "PremiumA")),
    *(f"Ascend910B{kind}" for kind in ("1", "2", "2C", "3", "4", "4-1")),
    *(f"Ascend910_93{kind}" for kind in ("62", "63", "72", "81", "82", "91", "92")),
)
"""The names of systems on chip that torch_npu 2.13 knows, without those not yet sold."""

FAMILIES = {"A2": "Atlas A2", "A3": "Atlas A3", "950": "Ascend 950DT"}
"""The families of the support pages, in the order of their marks, with the pages' own names."""
_SPOKEN = {
    "atlasa2": "A2",
    "910b": "A2",  # what people call it; torch_npu's Ascend910B is an older chip
    "atlasa3": "A3",
    "910c": "A3",
    "91093": "A3",
    "950dt": "950",
}


def family(name: str) -> str:
    """The family that a chip belongs to, by the name of either, in any spelling.

    Raises:
        ValueError: for a chip that the pages do not cover, or an unknown one; it names the nearest.
    """
    plain = _plain(name)
    for key in FAMILIES:
        if plain == _plain(key):
            return key
    if plain in _SPOKEN:
        return _SPOKEN[plain]
    for soc in SOC_NAMES:
        if plain == _plain(soc):
            return _family_of(soc)
    if re.fullmatch(r"950dt\w+", plain):
        return "950"
    from difflib import get_close_matches

    known = {_plain(each): each for each in (*FAMILIES, *filter(_is_covered, SOC_NAMES))}
    near = known[get_close_matches(plain, known, n=1, cutoff=0)[0]]
    raise ValueError(f"unknown chip {name!r}: the nearest is {near} (families: {_listed()})")


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]", "", name).lower().removeprefix("ascend")


def _is_covered(soc: str) -> bool:
    return soc.startswith(("Ascend910B", "Ascend910_93")) and soc != "Ascend910B"


def _family_of(soc: str) -> str:
    if not _is_covered(soc):
        raise ValueError(f"the support pages of torch_npu do not cover {soc}, only {_listed()}")
    return "A3" if soc.startswith("Ascend910_93") else "A2"


def _listed() -> str:
    return ", ".join(FAMILIES)

"""The part of the page on chips that is read from the data: which APIs each family lacks."""

from __future__ import annotations

from name_table import spans
from page_parts import code, table

from cuda2npu.releases.chips import FAMILIES
from cuda2npu.releases.support import ever_unsupported, page_releases
from cuda2npu.releases.support import table as support

_EFFECTS = {
    "cpu": "no kernel: computed on the CPU",
    "raises": "no kernel: raises",
    "acl_op": "no aclnn kernel: raises",
}


def lacking_section() -> str:
    """A table of the APIs that are reported, and one of what became of the marks."""
    lacking = [
        [code(name), *(_releases(name, family) for family in FAMILIES), _seen(name)]
        for name in ever_unsupported()
    ]
    counts = [
        [f"{title}, {release}", *(str(_count(release, family, mark)) for mark in "nc?")]
        for family, title in FAMILIES.items()
        for release in page_releases()
    ]
    head = ["pages", "reported", "contradicted", "not looked at"]
    return "\n".join(
        [table(["API", *FAMILIES.values(), "operators"], lacking), "", table(head, counts)]
    )


def _releases(name: str, family: str) -> str:
    """The pages that say so, whose release may be the newest of several."""
    pages = page_releases()
    some = [page for page in pages if support()[name].mark(page, family) == "n"]
    return spans(some, pages)


def _seen(name: str) -> str:
    return "; ".join(
        f"{code(operator)} {_EFFECTS[kind]}" for kind, operator in support()[name].operators
    )


def _count(release: str, family: str, mark: str) -> int:
    return sum(api.mark(release, family) == mark for api in support().values())

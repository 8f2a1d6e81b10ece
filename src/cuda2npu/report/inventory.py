"""What a project holds, counted while its outcomes come: the data of summary, page and JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from cuda2npu.model import Finding, FixLevel
from cuda2npu.project import Outcome

if TYPE_CHECKING:
    from cuda2npu.survey import Kernel, Survey


class Count:
    """How many findings there are, and how many of them ``rewrite`` fixes by itself."""

    def __init__(self) -> None:
        self.findings = 0
        self.automatic = 0

    @property
    def left(self) -> int:
        return self.findings - self.automatic

    def add(self, finding: Finding) -> None:
        self.findings += 1
        self.automatic += finding.applied


class Kind(NamedTuple):
    """What findings of one line of the summary have in common."""

    code: str
    name: str
    fix: FixLevel
    quiet: bool

    @property
    def order(self) -> tuple[bool, str, str]:
        """Quiet ones first: nobody would notice them on the NPU machine."""
        return not self.quiet, self.code, self.fix.value


class Inventory:
    """Counts over the outcomes of a run. It grows with the files that have findings alone."""

    def __init__(self) -> None:
        self.files = 0
        self.total = Count()
        self.kinds: dict[Kind, Count] = {}
        self.found: dict[str, Count] = {}
        """The files that have findings."""
        self.kernels: list[Finding] = []
        """The findings about custom kernels."""
        self.survey: Survey | None = None
        """What was found besides, when the whole project was looked through."""

    def add(self, outcome: Outcome) -> None:
        self.files += 1
        for finding in outcome.findings:
            kind = Kind(finding.code, finding.name, finding.fix, finding.quiet)
            of_file = self.found.setdefault(outcome.path, Count())
            for count in (self.total, self.kinds.setdefault(kind, Count()), of_file):
                count.add(finding)
            if finding.kernels:
                self.kernels.append(finding)

    def in_order(self) -> list[tuple[Kind, Count]]:
        return sorted(self.kinds.items(), key=lambda item: item[0].order)

    def by_level(self) -> dict[FixLevel, Count]:
        return self._summed({kind: kind.fix for kind in self.kinds}, FixLevel)

    def by_quiet(self) -> dict[bool, Count]:
        return self._summed({kind: kind.quiet for kind in self.kinds}, (True, False))

    def _summed(self, keys: dict[Kind, Any], every: Iterable[Any]) -> dict[Any, Count]:
        sums = {key: Count() for key in every}
        for kind, count in self.kinds.items():
            sums[keys[kind]].findings += count.findings
            sums[keys[kind]].automatic += count.automatic
        return sums

    def open_files(self) -> list[tuple[str, Count]]:
        """The files that ``rewrite`` does not finish, those with the most work first."""
        left = (item for item in self.found.items() if item[1].left)
        return sorted(left, key=lambda item: (-item[1].left, -item[1].findings, item[0]))

    @property
    def share(self) -> int:
        """Percent of the findings that are automatic; 100 only when every one is."""
        return 100 * self.total.automatic // self.total.findings if self.total.findings else 100


def as_data(inventory: Inventory) -> dict[str, Any]:
    """The inventory as JSON has it."""
    from cuda2npu.survey import Survey

    survey = inventory.survey or Survey()
    return {
        "files": inventory.files,
        "files_with_findings": len(inventory.found),
        "findings": inventory.total.findings,
        "automatic": inventory.total.automatic,
        "quiet": inventory.by_quiet()[True].findings,
        "fix": {level.value: count.findings for level, count in inventory.by_level().items()},
        "rules": [
            {
                "code": kind.code,
                "name": kind.name,
                "fix": kind.fix.value,
                "quiet": kind.quiet,
                "findings": count.findings,
                "automatic": count.automatic,
            }
            for kind, count in inventory.in_order()
        ],
        "open_files": [
            {"path": path, "findings": count.findings, "left": count.left}
            for path, count in inventory.open_files()
        ],
        "kernels": [_kernel(kernel) for kernel in survey.kernels],
        "cuda_sources": [
            {"path": source.path, "named_by": list(source.named_by)} for source in survey.sources
        ],
        "libraries": [
            {
                "name": use.library.name,
                "support": use.library.support,
                "advice": use.library.advice,
                "files": list(use.files),
            }
            for use in survey.libraries
        ],
    }


def _kernel(kernel: Kernel) -> dict[str, Any]:
    places = [
        {"path": finding.path, "line": finding.line, "code": finding.code, "name": finding.name}
        for finding in kernel.places
    ]
    return {"name": kernel.name, "places": places, "callers": list(kernel.callers)}

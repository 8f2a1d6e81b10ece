"""A report as plain data: ``--json``."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from cuda2npu.smoke.outcome import Comparison, First, Row
from cuda2npu.smoke.spec import NPU, REFERENCE
from cuda2npu.smoke.stage import Report

VERDICTS = ("match", "differs", "could not run")
NOTHING = "nothing to compare"


def verdict(report: Report) -> str:
    if report.code == len(VERDICTS) - 1 and report.comparison is not None and not report.failures:
        return NOTHING
    return VERDICTS[report.code]


def verdict_in_words(report: Report) -> str:
    """The verdict, with what it does not speak of."""
    failed = {failure.which for failure in report.failures}
    if REFERENCE in failed:
        other = "failed, too," if NPU in failed else "ran without an error"
        return f"could not run {report.reference_name}; the rewritten script {other}"
    partial = report.comparison is not None and report.comparison.limits
    return f"{verdict(report)} in what both runs got to" if partial else verdict(report)


def as_data(report: Report) -> dict[str, Any]:
    comparison = report.comparison
    found: dict[str, Any] = {
        "verdict": verdict(report),
        "script": str(report.request.script),
        "arguments": list(report.request.arguments),
        "simulated": report.simulated,
        "reference": report.reference_name,
        "steps": report.steps,
        "seed": report.request.seed,
        "tolerance": asdict(report.request.tolerance),
        "seconds": report.seconds,
        "environment": report.environment,
        "failures": [asdict(failure) for failure in (*report.failures, *report.went_on)],
        "edits": [asdict(edit) for edit in report.edits],
        "suspects": [asdict(edit) for edit in report.suspects],
        "notes": [asdict(note) for note in report.notes],
        "not_rewritten": report.not_rewritten,
        "left_behind": report.left_behind,
    }
    if report.ranks:
        found["ranks"] = [_rank(rank, one) for rank, one in report.ranks.items()]
    if comparison is not None:
        found["problems"] = comparison.problems
        found["limits"] = comparison.limits
        found["first"] = _first(comparison.first)
        found["early"] = _first(comparison.early)
        found["total"] = asdict(comparison.total)
        found["losses"] = [{"reference": old, "npu": new} for old, new in comparison.losses]
        found["layers"] = [_row(row) for row in comparison.rows]
    cleaned: dict[str, Any] = _finite(found)
    return cleaned


def _first(first: First | None) -> dict[str, Any] | None:
    return None if first is None else asdict(first)


def _rank(rank: int, comparison: Comparison) -> dict[str, Any]:
    return {
        "rank": rank,
        "matches": comparison.matches,
        "total": asdict(comparison.total),
        "losses": [{"reference": old, "npu": new} for old, new in comparison.losses],
    }


def _row(row: Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "rank": row.rank,
        "kind": row.kind,
        "calls": row.calls,
        "status": row.status.value,
        "reasons": row.reasons,
        **asdict(row.metrics),
    }


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they go as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value

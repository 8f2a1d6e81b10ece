"""Compares the record of the NPU run with that of the reference, event by event."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from cuda2npu.smoke.metrics import EPSILONS, Leaves, Metrics
from cuda2npu.smoke.outcome import Comparison, First, Row, Run
from cuda2npu.smoke.spec import Tolerance

NORM = 0.05
"""Relative difference of a gradient's or parameter's norm that counts as different."""
FLOORS = {"gradient": 1e-3, "parameter": 2e-2}
"""Norms below this share of the largest count as that share: Adam makes whole steps, to either
side, of gradients that are all but zero."""
_SHARE = 0.1
"""Inputs that are off by this share of the outputs' error take the blame from a layer."""

Event = dict[str, Any]


def compare(
    reference: Run, npu: Run, tolerance: Tolerance, lost_doubles: bool = False
) -> Comparison:
    """``lost_doubles``: edits that turn float64 into float32 were made, and explain the dtype."""
    return _Comparing(reference, npu, tolerance, lost_doubles).all()


class _Comparing:
    def __init__(self, reference: Run, npu: Run, tolerance: Tolerance, doubles: bool) -> None:
        self._old, self._new = reference, npu
        self._tolerance = tolerance
        self._doubles = doubles
        self._leaves = Leaves(reference.values, npu.values)
        self._rows: dict[tuple[str, str], Row] = {}
        self._result = Comparison()
        self._step = 1
        self._epsilon = 0.0

    def all(self) -> Comparison:
        others = {_key(event): event for event in self._new.events}
        for event in self._old.events:
            other = others.pop(_key(event), None)
            if other is None:
                self._missing(event)
            else:
                self._event(event, other)
            if event["kind"] == "step":
                self._step = max(self._step, event["call"] + 1)
        self._extra(others)
        if not self._limited():
            self._state()
        self._whole()
        self._result.rows = list(self._rows.values())
        self._result.losses = list(zip_longest(self._old.losses, self._new.losses))
        for row in self._result.rows:
            self._result.total = self._result.total.worst(row.metrics)
        return self._result

    def _row(self, kind: str, name: str) -> Row:
        return self._rows.setdefault((kind, name), Row(name, kind))

    def _event(self, old: Event, new: Event) -> None:
        if old["kind"] == "call":
            self._call(old, new)
        elif old["kind"] == "loss":
            self._loss(old, new)
        else:
            self._optimizer(old, new)

    def _call(self, old: Event, new: Event) -> None:
        for leaf in old["out"]:
            self._epsilon = max(self._epsilon, EPSILONS.get(leaf["dtype"], 0.0))
        metrics = self._leaves.compare(old["out"], new["out"])
        failures, pointed = self._judge(metrics)
        wrong = self._wrong_place(old, new)
        row = self._row("layer", old["name"])
        row.add(metrics, failures + wrong, pointed)
        if wrong:
            self._part(First(old["name"], old["name"], "", self._step, tuple(wrong)))
        elif failures:
            self._part(self._blame(old, new, metrics, tuple(failures)))
        elif pointed and self._result.early is None and self._result.first is None:
            self._result.early = self._blame(old, new, metrics, tuple(pointed))

    def _judge(self, metrics: Metrics) -> tuple[list[str], list[str]]:
        """Why it differs, and what is pointed out."""
        pointed = []
        if self._doubles and metrics.dtype.startswith(("float64 →", "complex128 →")):
            pointed.append(f"dtype {metrics.dtype}, by an edit of cuda2npu")
            metrics = metrics.without_dtype()
        failures = metrics.failures(self._tolerance, self._epsilon)
        if not failures and metrics.mean_abs > self._tolerance.mean_abs:
            pointed.append(f"mean abs {metrics.mean_abs:.3g} > {self._tolerance.mean_abs:g}")
        return failures, pointed

    def _wrong_place(self, old: Event, new: Event) -> list[str]:
        if old.get("placed") == "cuda" and new.get("placed") not in ("npu", None):
            return [f"its parameters are on {_place(new['placed'])}, expected npu"]
        if self._old.marked:
            return []
        pairs = zip(old["out"], new["out"], strict=False)
        if any(a["device"] == "cuda" and b["device"] == "cpu" for a, b in pairs):
            return ["its output is on cpu, expected npu"]
        return []

    def _blame(self, old: Event, new: Event, found: Metrics, why: tuple[str, ...]) -> First:
        """The layer itself, or the code that runs before it when its inputs differ already."""
        name = old["name"]
        inputs = self._leaves.compare(old["in"], new["in"])
        off = bool(inputs.shape) or inputs.rel_l2 > _SHARE * found.rel_l2
        values = found.rel_l2 > 0 and not found.shape
        if inputs.dtype == found.dtype and not values and found.dtype:
            off = True
        if not (inputs.compared and off and (inputs.rel_l2 > 1e-6 or inputs.shape or inputs.dtype)):
            return First(name, name, "", self._step, why)
        holder = name.rpartition(".")[0]
        text = f"the inputs of {name} differ already: look at the code that runs before it"
        return First(holder, name, text, self._step, why)

    def _loss(self, old: Event, new: Event) -> None:
        metrics = self._leaves.compare(old["out"], new["out"])
        a, b = old["value"], new["value"]
        failures: list[str] = []
        same = a == b or (a != a and b != b)
        if not same and not abs(a - b) <= self._tolerance.max_abs * max(1.0, abs(a)):
            failures.append(f"loss {old['call']}: {a:.6g} → {b:.6g}")
        if metrics.dtype or metrics.shape:
            failures += self._judge(metrics)[0]
        self._row("loss", "loss").add(metrics, failures, [])
        if failures:
            text = "every layer before it agrees: look at how the loss is computed"
            self._part(First("", f"loss {old['call']}", text, self._step, tuple(failures)))

    def _optimizer(self, old: Event, new: Event) -> None:
        floors = {
            what: floor * max((n[what] or 0.0 for n in old["norms"].values()), default=0.0)
            for what, floor in FLOORS.items()
        }
        failures = []
        worst = 0.0
        if old["losses"] != new["losses"]:
            failures.append(
                f"step {old['call']} comes after {old['losses']} backward passes, on the NPU "
                f"after {new['losses']}: a GradScaler skipped a step in one run alone"
            )
        for name, norms in old["norms"].items():
            reasons, distance = _norms(name, norms, new["norms"].get(name), floors)
            failures += reasons
            worst = max(worst, distance)
        self._row("step", f"{old['name']}: gradients").add(
            Metrics(rel_l2=worst, compared=len(old["norms"])), failures, []
        )
        if failures:
            layer = failures[0].partition(": ")[0].rpartition(".")[0]
            seen = f"step {old['call']} of {old['name']}"
            self._part(First(layer, seen, "", self._step, tuple(failures[:4])))

    def _state(self) -> None:
        others = {entry["path"]: entry for entry in self._new.state}
        for entry in self._old.state:
            row = self._row("state", "final state")
            other = others.get(entry["path"])
            if other is None:
                row.add(Metrics(), [f"{entry['path']} is missing"], [])
                continue
            metrics = self._leaves.one(entry, other)
            failures, pointed = self._judge(metrics)
            if failures and all(reason.startswith("cosine") for reason in failures):
                failures, pointed = [], failures
            if entry.get("placed") == "cuda" and other["device"] != "npu":
                failures.append(f"on {other['device']}, expected npu")
            row.add(
                metrics,
                [f"{entry['path']}: {reason}" for reason in failures],
                [f"{entry['path']}: {reason}" for reason in pointed],
            )

    def _missing(self, event: Event) -> None:
        if self._new.timed_out:
            return
        reason = f"call {event['call']} did not happen on the NPU"
        kind = "layer" if event["kind"] == "call" else event["kind"]
        self._row(kind, event["name"]).add(Metrics(), [reason], [])
        text = "the two runs take different ways"
        self._part(First(event["name"], event["name"], text, self._step, (reason,)))

    def _extra(self, events: dict[tuple[str, str, int], Event]) -> None:
        if self._old.timed_out:
            return
        for kind, name, call in events:
            reason = f"call {call} happened on the NPU alone"
            self._row("layer" if kind == "call" else kind, name).add(Metrics(), [reason], [])

    def _limited(self) -> bool:
        """Whether a run was stopped on its way: then the final states are those of two moments."""
        for which, run in (("the reference", self._old), ("the rewritten script", self._new)):
            if run.timed_out and run.events:
                self._result.limits.append(
                    f"{which} was ended by --timeout after {_so_far(run)}: only what both runs "
                    "did until then is compared, and no final state"
                )
        return self._old.timed_out or self._new.timed_out

    def _whole(self) -> None:
        devices = {leaf["device"] for e in self._new.events for leaf in e.get("out", ())}
        devices |= {n["device"] for e in self._new.events for n in e.get("norms", {}).values()}
        for which, run in (("the reference", self._old), ("the rewritten script", self._new)):
            if run.timed_out and not run.events:
                self._result.problems.append(
                    f"{which} was ended by --timeout before it called a module: there is nothing "
                    "to compare"
                )
        if self._result.problems:
            return
        if not self._old.events:
            self._result.problems.append(
                "the reference called no module and no backward: there is nothing to compare"
            )
        elif "npu" not in devices:
            self._result.problems.append("nothing of the rewritten script ran on the NPU")

    def _part(self, first: First) -> None:
        if self._result.first is None:
            self._result.first = first


def _key(event: Event) -> tuple[str, str, int]:
    return event["kind"], event["name"], event["call"]


def _so_far(run: Run) -> str:
    calls = sum(event["kind"] == "call" for event in run.events)
    count, what = (run.steps, "step") if run.steps else (calls, "module call")
    return f"{count} {what}{'' if count == 1 else 's'}"


def _place(placed: str) -> str:
    return "several devices" if placed == "mixed" else placed


def _norms(
    name: str, old: Event, new: Event | None, floors: dict[str, float]
) -> tuple[list[str], float]:
    """Why the norms of one parameter differ, and by how much they do."""
    if new is None:
        return [f"{name}: has no counterpart on the NPU"], 0.0
    if old["placed"] == "cuda" and new["device"] != "npu":
        return [f"{name}: is on {new['device']}, expected npu"], 0.0
    reasons, worst = [], 0.0
    for what in ("gradient", "parameter"):
        a, b = old[what], new[what]
        if a is None or b is None:
            if a is not b:
                reasons.append(f"{name}: has a {what} in one run alone")
            continue
        if a == b or (a != a and b != b):
            continue
        distance = abs(a - b) / max(abs(a), floors[what], 1e-12)
        worst = max(worst, distance)
        if not distance <= NORM:
            reasons.append(f"{name}: {what} norm {a:.4g} → {b:.4g}")
    return reasons, worst

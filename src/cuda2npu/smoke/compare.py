"""Compares the record of the NPU run with that of the reference, event by event."""

from __future__ import annotations

from itertools import zip_longest

from cuda2npu.report import plural
from cuda2npu.smoke.metrics import EPSILONS, Leaves, Metrics, beyond
from cuda2npu.smoke.outcome import Comparison, Event, First, Row, Run
from cuda2npu.smoke.spec import Tolerance
from cuda2npu.smoke.steps import key, moved_apart, shared_events, step_counts

NORM = 0.05
"""Relative difference of a gradient's or parameter's norm that counts as different."""
FLOORS = {"gradient": 1e-3, "parameter": 2e-2}
"""Norms below this share of the largest count as that share: Adam makes whole steps, to either
side, of gradients that are all but zero."""
_SHARE = 0.1
"""Inputs that are off by this share of the outputs' error take the blame from a layer."""

NOTHING = "called no module and no backward: there is nothing to compare"


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
        self._counts = step_counts(reference, npu)
        self._events, found = shared_events(reference, npu, self._counts)
        self._found = {key(event): event for event in found}
        self._rows: dict[tuple[str, str], Row] = {}
        self._result = Comparison()
        self._step = 1
        self._epsilon = 0.0

    def all(self) -> Comparison:
        others = dict(self._found)
        for number, event in enumerate(self._events):
            other = others.pop(key(event), None)
            if other is None:
                self._missing(event)
            else:
                self._event(number, event, other)
            if event["kind"] == "step":
                self._step = max(self._step, event["call"] + 1)
        self._extra(others)
        if self._counts:
            self._other_steps()
        elif not self._limited():
            self._state()
        self._whole()
        self._result.rows = list(self._rows.values())
        self._result.losses = list(zip_longest(self._old.losses, self._new.losses))
        for row in self._result.rows:
            self._result.total = self._result.total.worst(row.metrics)
        return self._result

    def _row(self, kind: str, name: str) -> Row:
        return self._rows.setdefault((kind, name), Row(name, kind))

    def _event(self, number: int, old: Event, new: Event) -> None:
        if old["kind"] == "call":
            self._call(number, old, new)
        elif old["kind"] == "loss":
            self._loss(old, new)
        else:
            self._optimizer(old, new)

    def _call(self, number: int, old: Event, new: Event) -> None:
        for leaf in old["out"]:
            self._epsilon = max(self._epsilon, EPSILONS.get(leaf["dtype"], 0.0))
        metrics = self._leaves.compare(old["out"], new["out"])
        failures, pointed = self._judge(metrics)
        wrong = self._wrong_place(old, new)
        row = self._row("layer", old["name"])
        row.add(metrics, failures + wrong, pointed)
        if wrong:
            self._part(First(old["name"], old["name"], "", self._step, tuple(wrong)))
        elif self._result.first is None and failures:
            self._part(self._blame(number, old, new, metrics, tuple(failures)))
        elif self._result.first is None and pointed:
            self._point_out(self._blame(number, old, new, metrics, tuple(pointed)))

    def _judge(self, metrics: Metrics) -> tuple[list[str], list[str]]:
        """Why it differs, and what is pointed out."""
        pointed = []
        if self._doubles and metrics.dtype.startswith(("float64 →", "complex128 →")):
            pointed.append(f"dtype {metrics.dtype}, by an edit of cuda2npu")
            metrics = metrics.without_dtype()
        failures = metrics.failures(self._tolerance, self._epsilon)
        if not failures and metrics.mean_abs > self._tolerance.mean_abs:
            over = beyond(metrics.mean_abs, ">", self._tolerance.mean_abs)
            pointed.append(f"mean abs {over}")
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

    def _blame(
        self, number: int, old: Event, new: Event, found: Metrics, why: tuple[str, ...]
    ) -> First:
        """The layer itself; when its inputs differ already, the nearest module around it that
        was still handed the same: its own code is between the two."""
        name = holder = old["name"]
        while holder and self._handed_other(old, new, found):
            holder = holder.rpartition(".")[0]
            around = self._around(number, holder)
            if around is None:
                break
            old, new = around
        if holder == name:
            return First(name, name, "", self._step, why)
        code = f"the code of {holder} that runs" if holder else "the code that runs"
        text = f"the inputs of {name} differ already: look at {code} before it"
        return First(holder, name, text, self._step, why)

    def _handed_other(self, old: Event, new: Event, found: Metrics) -> bool:
        """Whether the inputs of a call are off by more than ``found`` could have come without."""
        inputs = self._leaves.compare(old["in"], new["in"])
        if inputs.shape or inputs.nan or inputs.inf:
            return True
        if not inputs.compared:
            return False
        values = found.rel_l2 > 0 and not found.shape
        if inputs.dtype and inputs.dtype == found.dtype and not values:
            return True
        return inputs.rel_l2 > max(1e-6, _SHARE * found.rel_l2)

    def _around(self, number: int, name: str) -> tuple[Event, Event] | None:
        """The call of a module that ends first after an event, in both runs."""
        later = (event for event in self._events[number + 1 :] if event["kind"] == "call")
        old = next((event for event in later if event["name"] == name), None)
        new = None if old is None else self._found.get(key(old))
        return None if old is None or new is None else (old, new)

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
        seen = f"step {old['call']} of {old['name']}"
        moved = moved_apart(old["norms"], new["norms"])
        by_step = moved and all("parameter norm" in reason for reason in failures)
        text = f"the gradients agree: look at {old['name']} and what it is given, such as its lr"
        if failures and by_step:
            self._part(First("", seen, text, self._step, tuple(failures[:4])))
        elif failures:
            layer = failures[0].partition(": ")[0].rpartition(".")[0]
            self._part(First(layer, seen, "", self._step, tuple(failures[:4])))
        elif by_step and self._result.first is None:
            self._point_out(First("", seen, text, self._step, tuple(moved[:4])))

    def _other_steps(self) -> None:
        for name, (old, new) in self._counts.items():
            reason = f"{name}: {plural(old, 'step')} in the reference, {new} on the NPU"
            self._result.problems.append(f"{reason}; what comes after those is not compared")
            seen = f"step {min(old, new) + 1} of {name}"
            self._part(First("", seen, "", min(old, new) + 1, (reason,)))

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
        called = {name for kind, name, _ in self._found if kind == event["kind"]}
        holder = event["name"].rpartition(".")[0]
        while holder and holder not in called:
            holder = holder.rpartition(".")[0]
        self._part(First(holder, event["name"], text, self._step, (reason,)))

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
                self._result.nothing = True
        if self._result.nothing:
            return
        if not self._old.events:
            self._result.problems.append(f"the reference {NOTHING}")
            self._result.nothing = True
        elif "npu" not in devices:
            self._result.problems.append("nothing of the rewritten script ran on the NPU")
            if "cuda" not in _places(self._old):
                self._result.problems.append(
                    "nor did any module of the original run on CUDA: there is nothing to compare"
                )
                self._result.nothing = True

    def _point_out(self, early: First) -> None:
        if self._result.early is None:
            self._result.early = early

    def _part(self, first: First) -> None:
        if self._result.first is None:
            self._result.first = first


def _places(run: Run) -> set[str | None]:
    """Where modules and parameters were meant to be."""
    found = {event.get("placed") for event in run.events}
    found |= {leaf["device"] for event in run.events for leaf in event.get("out", ())}
    found |= {norms["placed"] for event in run.events for norms in event.get("norms", {}).values()}
    return found | {entry.get("placed") for entry in run.state}


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

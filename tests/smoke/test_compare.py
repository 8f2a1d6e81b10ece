"""Distances of tensors, and what is said about two runs. No torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuda2npu.smoke.compare import compare
from cuda2npu.smoke.metrics import Metrics, compare_values
from cuda2npu.smoke.outcome import Status
from cuda2npu.smoke.spec import Tolerance
from smoke.support import call, leaf, run_of

A = np.linspace(-1, 1, 50, dtype=np.float32)
TOLERANCE = Tolerance()


def test_equal_values() -> None:
    metrics = compare_values(A, A.copy())
    assert metrics.cosine == pytest.approx(1)
    assert (metrics.max_abs, metrics.mean_abs, metrics.rel_l2) == (0, 0, 0)
    assert metrics.failures(TOLERANCE) == []


def test_distances() -> None:
    found = compare_values(np.array([3, 4], np.float32), np.array([3, 4.5], np.float32))
    assert found.max_abs == pytest.approx(0.5)
    assert found.mean_abs == pytest.approx(0.25)
    assert found.rel_l2 == pytest.approx(0.1)
    assert found.failures(TOLERANCE) == ["max abs 0.5 > 0.01"]


@pytest.mark.parametrize(
    ("found", "reason"),
    [(1.010004, "max abs 0.010004 > 0.01"), (1.5, "max abs 0.5 > 0.01"), (1.0102, "0.0102 >")],
)
def test_a_figure_over_its_limit_is_not_rounded_down_to_it(found: float, reason: str) -> None:
    metrics = compare_values(np.array([1], np.float32), np.array([found], np.float32))
    assert reason in metrics.failures(TOLERANCE)[0]


def test_opposite_direction() -> None:
    assert compare_values(A, -A).cosine == pytest.approx(-1)


@pytest.mark.parametrize(
    ("old", "new", "nan", "inf"),
    [
        ([1, np.nan], [1, np.nan], 0, 0),
        ([1, 1], [1, np.nan], 1, 0),
        ([np.inf, 1], [np.inf, 1], 0, 0),
        ([np.inf, 1], [-np.inf, 1], 0, 1),
        ([1, 1], [np.inf, 1], 0, 1),
        ([np.nan, np.nan], [np.nan, np.nan], 0, 0),
    ],
)
def test_what_is_not_finite(old: list[float], new: list[float], nan: int, inf: int) -> None:
    metrics = compare_values(np.array(old, np.float32), np.array(new, np.float32))
    assert (metrics.nan, metrics.inf) == (nan, inf)
    assert bool(metrics.failures(TOLERANCE)) == bool(nan or inf)


def test_zeros_have_no_direction() -> None:
    zero = np.zeros(3, np.float32)
    assert compare_values(zero, zero).cosine == 1
    assert compare_values(zero, zero + 1).cosine == 0


def test_worst_of_several() -> None:
    worst = Metrics(cosine=0.5, max_abs=1).worst(Metrics(cosine=0.9, max_abs=2, dtype="a → b"))
    assert (worst.cosine, worst.max_abs, worst.dtype) == (0.5, 2, "a → b")


def test_the_first_layer_that_differs_is_named_with_its_step() -> None:
    old = run_of(
        [
            call("Net.a", [leaf("x", A)], [leaf("a", A)]),
            call("Net.b", [leaf("a", A)], [leaf("b", A)]),
            call("Net.c", [leaf("b", A)], [leaf("c", A)]),
        ],
        {"x": A, "a": A, "b": A, "c": A},
    )
    events = [{**event, "out": [{**event["out"][0], "device": "npu"}]} for event in old.events]
    new = run_of(events, {"x": A, "a": A, "b": A + 1, "c": A * 5})
    result = compare(old, new, TOLERANCE)
    assert result.first is not None
    assert (result.first.layer, result.first.step) == ("Net.b", 1)
    assert [row.status for row in result.rows[:3]] == [Status.OK, Status.DIFFERS, Status.DIFFERS]
    assert not result.matches


def test_code_between_two_layers_is_blamed_on_the_module_around_them() -> None:
    events = [call("Net.a", [leaf("x", A)], [leaf("a", A)]),
              call("Net.b", [leaf("between", A)], [leaf("b", A, "npu")])]  # fmt: skip
    old = run_of(events, {"x": A, "a": A, "between": A, "b": A})
    new = run_of(events, {"x": A, "a": A, "between": A + 1, "b": A + 1})
    first = compare(old, new, TOLERANCE).first
    assert first is not None
    assert (first.layer, first.seen) == ("Net", "Net.b")


@pytest.mark.parametrize(
    ("inner", "layer"), [("given", "Net"), ("x", "Net.block")], ids=["around it", "in it"]
)
def test_the_module_at_fault_is_the_nearest_that_was_handed_the_same(
    inner: str, layer: str
) -> None:
    events = [
        call("Net.block.first", [leaf("given", A)], [leaf("a", A, "npu")]),
        call("Net.block", [leaf(inner, A)], [leaf("a", A, "npu")]),
        call("Net", [leaf("x", A)], [leaf("a", A, "npu")]),
    ]
    old = run_of(events, {"x": A, "given": A, "a": A})
    first = compare(old, run_of(events, {"x": A, "given": A + 1, "a": A + 1}), TOLERANCE).first
    assert first is not None
    assert (first.layer, first.seen) == (layer, "Net.block.first")
    assert f"look at the code of {layer} " in first.text


def test_nan_in_the_inputs_comes_from_the_code_before() -> None:
    events = [call("Net.a", [leaf("x", A)], [leaf("y", A, "npu")]),
              call("Net", [leaf("in", A)], [leaf("y", A, "npu")])]  # fmt: skip
    nan = A * np.float32("nan")
    old = run_of(events, {"in": A, "x": A, "y": A})
    first = compare(old, run_of(events, {"in": A, "x": nan, "y": nan}), TOLERANCE).first
    assert first is not None
    assert (first.layer, first.seen) == ("Net", "Net.a")


def test_a_module_that_was_not_called_is_the_fault_of_its_caller() -> None:
    events = [call("Net.a.b", [], [leaf("y", A, "npu")]), call("Net.a", [], [leaf("y", A, "npu")]),
              call("Net", [], [leaf("y", A, "npu")])]  # fmt: skip
    first = compare(run_of(events, {"y": A}), run_of(events[2:], {"y": A}), TOLERANCE).first
    assert first is not None
    assert (first.layer, first.seen) == ("Net", "Net.a.b")


def test_small_errors_are_pointed_out_and_pass() -> None:
    events = [call("Net", [leaf("x", A)], [leaf("y", A, "npu")])]
    result = compare(
        run_of(events, {"x": A, "y": A}), run_of(events, {"x": A, "y": A + 0.005}), TOLERANCE
    )
    assert result.matches
    assert result.rows[0].status is Status.POINTED
    assert result.early is not None


def test_parameters_that_never_moved_fail() -> None:
    old = run_of([call("Net", [], [leaf("y", A)], placed="cuda")], {"y": A}, marked=True)
    new = run_of([call("Net", [], [leaf("y", A)], placed="cpu")], {"y": A})
    result = compare(old, new, TOLERANCE)
    assert not result.matches
    assert result.first is not None
    assert result.first.reasons == ("its parameters are on cpu, expected npu",)
    assert result.problems == ["nothing of the rewritten script ran on the NPU"]


def test_a_module_that_the_original_keeps_on_the_cpu_may_stay_there() -> None:
    events = [
        call("Loader", [], [leaf("y", A)], placed="cpu"),
        call("Net", [], [leaf("y", A, "npu")], placed="cuda"),
    ]
    new = [events[0], {**events[1], "placed": "npu"}]
    result = compare(run_of(events, {"y": A}, marked=True), run_of(new, {"y": A}), TOLERANCE)
    assert result.matches


def test_an_output_on_the_cpu_fails_against_a_run_on_cuda() -> None:
    old = run_of([call("Net", [], [leaf("y", A, "cuda")])], {"y": A})
    new = run_of([call("Net", [], [leaf("y", A)])], {"y": A})
    assert compare(old, new, TOLERANCE).rows[0].reasons == ["its output is on cpu, expected npu"]


@pytest.mark.parametrize(("edited", "matches"), [(False, False), (True, True)])
def test_lost_float64_is_excused_by_an_edit_alone(edited: bool, matches: bool) -> None:
    old = run_of([call("Net", [], [leaf("y", A, "cuda", "float64")])], {"y": A})
    new = run_of([call("Net", [], [leaf("y", A, "npu")])], {"y": A})
    assert compare(old, new, TOLERANCE, lost_doubles=edited).matches is matches


def test_different_ways_through_the_program() -> None:
    events = [call("Net", [], [leaf("y", A, "npu")], number) for number in (1, 2)]
    short, long = run_of(events[:1], {"y": A}), run_of(events, {"y": A})
    assert "did not happen" in compare(long, short, TOLERANCE).rows[0].reasons[0]
    assert "NPU alone" in compare(short, long, TOLERANCE).rows[0].reasons[0]


def test_an_empty_reference_is_no_pass() -> None:
    assert not compare(run_of([], {}), run_of([], {}), TOLERANCE).matches


def loss(value: float, shape: tuple[int, ...] = ()) -> tuple[dict[str, object], np.ndarray]:
    array = np.full(shape, value, np.float32)
    event = {"kind": "loss", "name": "loss", "call": 1, "value": value,
             "out": [leaf("l", array, "npu")]}  # fmt: skip
    return event, array


@pytest.mark.parametrize(
    ("old", "new", "matches"),
    [(2.0, 2.001, True), (2.0, 2.1, False), (500.0, 501.0, True), (1.0, float("nan"), False),
     (float("nan"), float("nan"), True)],
)  # fmt: skip
def test_losses(old: float, new: float, matches: bool) -> None:
    (a, x), (b, y) = loss(old), loss(new)
    result = compare(run_of([a], {"l": x}), run_of([b], {"l": y}), TOLERANCE)
    assert result.matches is matches
    if not matches:
        assert result.first is not None
        assert result.first.layer == ""


def step(gradient: float | None, losses: int = 1, device: str = "npu") -> dict[str, Any]:
    norms = {"parameter": 1.0, "gradient": gradient, "device": device, "placed": "cuda"}
    return {"kind": "step", "name": "SGD", "call": 1, "norms": {"Net.a.weight": norms},
            "losses": losses}  # fmt: skip


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (step(0.5), "gradient norm 1 → 0.5"),
        (step(None), "has a gradient in one run alone"),
        (step(1.0, device="cpu"), "is on cpu, expected npu"),
        (step(1.0, losses=2), "a GradScaler skipped a step"),
    ],
)
def test_steps(found: dict[str, object], reason: str) -> None:
    result = compare(run_of([step(1.0)], {}), run_of([found], {}), TOLERANCE)
    assert reason in result.rows[0].reasons[0]
    assert not result.matches


@pytest.mark.parametrize(("lr", "differs"), [(1.2, True), (1.01, False)])
def test_equal_gradients_and_other_parameters_are_the_optimizers_doing(
    lr: float, differs: bool
) -> None:
    moved = step(1.0)
    moved["norms"] = {"Net.a.weight": {**step(1.0)["norms"]["Net.a.weight"], "parameter": lr}}
    result = compare(run_of([step(1.0)], {}), run_of([moved], {}), TOLERANCE)
    first = result.first if differs else result.early
    assert first is not None
    assert result.matches is not differs
    assert (first.layer, first.seen) == ("", "step 1 of SGD")
    assert "look at SGD" in first.text


def test_other_numbers_of_steps_are_said_first_and_nothing_behind_them_is_compared() -> None:
    calls = [call("Net", [], [leaf("y", A, "npu")], number) for number in (1, 2)]
    other = call("Net", [], [leaf("z", A, "npu")], 2)
    old = run_of([calls[0], step(1.0), calls[1], {**step(1.0), "call": 2}], {"y": A})
    new = run_of([calls[0], step(1.0), other], {"y": A, "z": A + 1})
    result = compare(old, new, TOLERANCE)
    assert result.problems[0].startswith("SGD: 2 steps in the reference, 1 on the NPU")
    assert result.first is not None
    assert (result.first.layer, result.first.seen) == ("", "step 2 of SGD")
    assert all(row.status is Status.OK for row in result.rows)
    assert not result.matches


@pytest.mark.parametrize(("dtype", "matches"), [("bfloat16", True), ("float32", False)])
def test_the_last_places_of_half_precision_are_no_difference(dtype: str, matches: bool) -> None:
    """A bfloat16 of 2 has its neighbour at 2.0156."""
    big = A + 2
    events = [call("Net", [], [leaf("y", big, "npu", dtype)])]
    result = compare(
        run_of(events, {"y": big}), run_of(events, {"y": big * np.float32(1.0078)}), TOLERANCE
    )
    assert result.matches is matches


def test_time_is_up_in_one_run() -> None:
    """What both runs did is compared; the final states are those of two moments."""
    values = {"a": A, "b": A + 1}
    events = [call("Net", [], [leaf("a", A)], number) for number in (1, 2, 3)]
    there = [call("Net", [], [leaf("a", A, "npu")], number) for number in (1, 2)]
    old = run_of(events, values, steps=3)
    old.state.append({**leaf("a", A), "path": "Net.weight", "placed": "cpu"})
    new = run_of(there, values, ended="timeout", steps=1)
    new.state.append({**leaf("b", A, "npu"), "path": "Net.weight", "placed": "npu"})
    for first, second, which in ((old, new, "rewritten script"), (new, old, "reference")):
        found = compare(first, second, TOLERANCE)
        assert [row.name for row in found.rows] == ["Net"]
        assert [row.calls for row in found.rows] == [2]
        (limit,) = found.limits
        assert limit.startswith(f"the {which} was ended by --timeout after 1 step: only what both")
    assert compare(old, new, TOLERANCE).matches
    assert not compare(old, run_of(there, values, steps=1), TOLERANCE).matches


def test_time_is_up_before_anything() -> None:
    empty = run_of([], {}, ended="timeout")
    found = compare(empty, run_of([call("Net", [], [leaf("a", A)])], {"a": A}), TOLERANCE)
    assert not found.rows
    assert found.problems == [
        "the reference was ended by --timeout before it called a module: there is nothing to "
        "compare"
    ]

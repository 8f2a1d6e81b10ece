"""Statistics, what is asked for, saved results and their comparison. No torch."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmark.support import result
from cuda2npu.benchmark import show
from cuda2npu.benchmark.comparison import Ratio, compare
from cuda2npu.benchmark.meter import Call, Meter
from cuda2npu.benchmark.result import read_result
from cuda2npu.benchmark.spec import (
    CALL,
    BenchError,
    Spec,
    Target,
    parse_inputs,
    parse_target,
)
from cuda2npu.benchmark.statistics import percentile, summary, unsteady
from cuda2npu.model import UsageError
from cuda2npu.running import RunError
from cuda2npu.running.inputs import Drawn


def test_percentiles_by_hand() -> None:
    """Of 10, 20, 30, 40 the place of p90 is 3 * 0.9 = 2.7: 0.7 of the way from 30 to 40."""
    values = [10.0, 20.0, 30.0, 40.0]
    assert percentile(values, 50) == pytest.approx(25)
    assert percentile(values, 90) == pytest.approx(37)
    assert percentile(values, 99) == pytest.approx(39.7)
    assert (percentile(values, 0), percentile(values, 100)) == (10, 40)
    assert percentile([7.0], 99) == 7


def test_summary_by_hand() -> None:
    """The squares of the distances from 5 are 9 1 1 1 0 0 4 16, 32 in all, over 7."""
    found = summary([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0])
    assert (found.mean, found.least, found.most, found.p50) == (5, 2, 9, 4.5)
    assert found.deviation == pytest.approx((32 / 7) ** 0.5)
    assert summary([3.0]).deviation is None


def test_the_order_does_not_matter() -> None:
    assert summary([3.0, 1.0, 2.0]) == summary([1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([10.0] * 20, []),
        ([10.0, 10.4] * 10, []),
        ([10.0] * 10 + [11.5] * 10, ["drift: the second half of the iterations is 15% slower"]),
        ([11.5] * 10 + [10.0] * 10, ["drift: the second half of the iterations is 13% faster"]),
        ([10.0, 12.0] * 10, []),
        ([10.0, 14.0] * 10, []),
        ([10.0] * 95 + [900.0] * 5, []),
        ([10.0] * 8 + [14.0] * 2, ["unsteady: one iteration in ten takes at least 40% longer"]),
        ([10.0, 30.0], ["unsteady"]),
        ([10.0], []),
        ([0.0] * 20, []),
        ([0.0, 0.0, 0.0, 0.0, 1.0] * 4, ["unsteady: one iteration in ten takes longer than the"]),
    ],
)
def test_unsteady(values: list[float], words: list[str]) -> None:
    found = unsteady(values)
    assert len(found) == len(words)
    assert all(text.startswith(word) for text, word in zip(found, words, strict=True))


class Steps:
    """A clock that counts its own calls."""

    def __init__(self) -> None:
        self.now = 0
        self.waits: list[int] = []

    def mark(self) -> int:
        self.now += 1
        return self.now

    def between(self, start: int, end: int) -> float:
        return float(end - start)

    def synchronize(self) -> None:
        self.waits.append(self.now)

    def memory(self) -> dict[str, int]:
        return {}

    def describe(self) -> dict[str, str]:
        return {}


def test_the_device_is_waited_for_around_the_measured_iterations_only() -> None:
    clock = Steps()
    meter = Meter(clock, warmup=2, iterations=3)
    while not meter.full:
        meter.begin()
        meter.end()
    assert (meter.count, meter.measured) == (6, 3)
    # Two marks for each iteration: the first ends at 2, the warm-up at 6, the last at 12.
    assert clock.waits == [0, 2, 6, 12]
    assert meter.times()["latencies_ms"] == [1, 1, 1]
    meter.begin()
    meter.end()
    assert meter.count == 6


def test_steps_follow_one_another() -> None:
    """The end of one is the beginning of the next, save where the device is waited for."""
    clock = Steps()
    meter = Meter(clock, warmup=0, iterations=3, chained=True)
    meter.begin()
    for _ in range(4):
        meter.begin()
        meter.end()
    assert clock.now == 6
    assert meter.times()["latencies_ms"] == [1, 1, 1]


def test_what_ran_before_the_first_iteration() -> None:
    clock = Steps()
    meter = Meter(clock, warmup=0, iterations=2, chained=True)
    meter.begin()
    meter.saw((((9, 9), "float32"),))
    for _ in range(50):
        clock.mark()
    meter.forget()
    for _ in range(3):
        meter.begin()
        meter.end()
        meter.forget()  # an optimizer that is made later takes nothing away
    assert meter.times()["first_run_ms"] == 1
    assert (meter.full, meter.measured) == (True, 2)


def test_a_script_that_ends_before() -> None:
    clock = Steps()
    meter = Meter(clock, warmup=0, iterations=9, chained=True)
    meter.begin()
    for _ in range(3):
        meter.end()
    assert (meter.full, meter.measured) == (False, 2)
    assert meter.times()["wall_s"] == pytest.approx(0.002)


def test_inputs_of_an_iteration() -> None:
    meter = Meter(Steps(), warmup=0, iterations=3)
    one, other = (((2, 3), "float32"),), (((4, 3), "float32"),)
    for calls in ([one], [one, one], [other], [one, one]):
        meter.begin()
        for call in calls:
            meter.saw(call)
        meter.end()
    assert meter.shapes == {((one, 2),): 2, ((other, 1),): 1}
    assert meter.varied


ONE: Call = (((2, 3), "float32"),)
OTHER: Call = (((4, 3), "float32"),)


@pytest.mark.parametrize(
    ("iterations", "varied"),
    [
        ([[(ONE, 1)], [(ONE, 1), (ONE, 1)]], False),
        ([[(ONE, 1)], [(OTHER, 1)]], True),
        ([[(ONE, 1)], [(OTHER, 2)]], False),  # two modules in turn
        ([[(ONE, 1)], [(ONE, 1), (OTHER, 2)]], False),
        ([[(ONE, 1)], [(ONE, 1), (OTHER, 1)]], True),
        ([[(ONE, 1), (OTHER, 1)], [(OTHER, 1), (ONE, 1)]], False),
    ],
)
def test_a_module_gets_other_shapes(iterations: list[list[tuple[Call, int]]], varied: bool) -> None:
    meter = Meter(Steps(), warmup=0, iterations=len(iterations))
    first: list[tuple[Call, int]] = [(OTHER, 1), (ONE, 2)]  # which is not measured
    for calls in (first, *iterations):
        meter.begin()
        for call, module in calls:
            meter.saw(call, module)
        meter.end()
    assert meter.varied is varied


def test_what_inputs_mean() -> None:
    assert parse_inputs("1x3x224x224:float16,ids=8:int64:99") == (
        Drawn("", (1, 3, 224, 224), "float16", 2),
        Drawn("ids", (8,), "int64", 99),
    )
    assert parse_inputs("") == ()


@pytest.mark.parametrize("text", ["0x3", "3x", "x", "3:half", "3,", "-1", "3:float16:cuda"])
def test_what_is_no_input(text: str) -> None:
    with pytest.raises(UsageError, match="--inputs"):
        parse_inputs(text)


def test_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").touch()
    (tmp_path / "odd:name").touch()
    path = str(tmp_path / "a.py")
    assert parse_target("a.py") == Target(path)
    assert parse_target("a.py:step") == Target(path, "step")
    assert parse_target("odd:name") == Target(str(tmp_path / "odd:name"))
    module = parse_target("package.module:step")
    assert (module, module.name, module.is_file) == (
        Target("package.module", "step"),
        "package.module:step",
        False,
    )
    assert parse_target("a.py:step").name == "a.py:step"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("b.py", "no such file"),
        ("b.py:step", "no such file"),
        ("a.py:", "is no name of a function"),
        ("a.py:a b", "is no name of a function"),
        ("some/where:step", "no file and no name of a module"),
        (".", "is a folder"),
    ],
)
def test_what_is_no_target(
    text: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").touch()
    with pytest.raises(RunError, match=words):
        parse_target(text)


def test_a_spec_is_read_as_it_was_written(tmp_path: Path) -> None:
    spec = Spec(Target("a.py", "f"), ("--x",), "here", "npu", 1, 2, parse_inputs("2x3:int64"), True)
    spec.write(tmp_path / "spec")
    assert Spec.read(tmp_path / "spec") == spec


def saved(folder: Path, **changes: object) -> Path:
    path = folder / "result.json"
    path.write_text(json.dumps({**result().as_data(), **changes}), encoding="utf-8")
    return path


def test_a_result_is_read_as_it_was_saved(tmp_path: Path) -> None:
    path = saved(tmp_path)
    assert read_result(path) == result()
    data = json.loads(path.read_text())
    assert data["version"] == 1
    assert data["latency_ms"]["p50"] == 10.25
    assert (data["iterations_per_s"], data["samples_per_s"]) == (80, 2560)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": "other"}, "is no result of cuda2npu bench"),
        ({"version": 2}, "has version 2"),
        ({"latencies_ms": []}, "damaged: latencies_ms"),
        ({"latencies_ms": [1, None]}, "damaged: latencies_ms"),
        ({"latencies_ms": [1, True]}, "damaged: latencies_ms"),
        ({"wall_s": 0}, "damaged: wall_s"),
        ({"device": "tpu"}, "damaged: device"),
        ({"batch": 0}, "damaged: batch"),
        ({"shapes": [{"calls": "x"}]}, "damaged: shapes"),
        ({"memory": {"allocated": -1}}, "damaged: memory"),
        ({"environment": {"torch": 2}}, "damaged: environment"),
        ({"varied": 1}, "damaged: varied"),
        ({"simulated": True}, "damaged: simulated"),
    ],
)
def test_what_is_no_result(changes: dict[str, object], words: str, tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=words):
        read_result(saved(tmp_path, **changes))


@pytest.mark.parametrize("text", ["", "[]", "{", "3", "\0"])
def test_what_is_no_json(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(BenchError, match=r"cannot be read|is no result"):
        read_result(path)


NPU: dict[str, Any] = {
    "device": "npu",
    "sha256": "b" * 64,
    "latencies_ms": [20.0, 21.0] * 10,
    "wall_s": 0.5,
    "memory": {"allocated": 3 * 2**19, "reserved": 2**22},
    "environment": {"python": "3.11.7", "torch": "2.13.0", "device": "Ascend910B1"},
}


def test_ratios_are_b_to_a() -> None:
    found = compare(result(), result(**NPU))
    assert found.refusals == ()
    by_name = {(ratio.what, ratio.unit): ratio for ratio in found.ratios}
    latency = by_name["latency p50", "ms"]
    assert (latency.a, latency.b, latency.value, latency.inverse) == (10.25, 20.5, 2, 0.5)
    assert latency.in_words() == "B takes 2.00 times as long as A"
    speed = by_name["throughput", "samples/s"]
    assert (speed.a, speed.b, speed.value) == (2560, 1280, 0.5)
    assert speed.in_words() == "A does 2.00 times as much as B"
    space = by_name["peak memory of tensors", "bytes"]
    assert space.in_words() == "A takes 2.00 times as much as B"
    assert by_name["peak memory reserved", "bytes"].in_words() == "the same"
    assert [word.partition(",")[0] for word in found.warnings] == [
        "the file is not the same in both"
    ]


@pytest.mark.parametrize(
    ("b", "words"),
    [
        (165.3, "B takes about 170 times as long as A"),
        (0.43, "A takes about 2.3 times as long as B"),
        (1.04, "about the same"),
        (12345.0, "B takes about 12,000 times as long as A"),
    ],
)
def test_rough_ratios(b: float, words: str) -> None:
    assert Ratio("latency p50", 1, b, "ms", "takes {} times as long as", True).in_words() == words


def test_ratios_of_what_is_unsteady_are_rough() -> None:
    found = compare(result(), result(**{**NPU, "latencies_ms": [20.0, 20.0, 20.0, 30.0] * 5}))
    rough = {(ratio.what, ratio.unit) for ratio in found.ratios if ratio.rough}
    assert {("latency p50", "ms"), ("throughput", "samples/s"), ("first run", "ms")} <= rough
    assert not any(unit == "bytes" for _, unit in rough)
    steady = compare(result(), result(**NPU))
    assert [ratio.what for ratio in steady.ratios if ratio.rough] == ["first run"]


def test_the_ratio_of_nothing() -> None:
    assert Ratio("latency p50", 0, 1, "ms", "").in_words() == "no ratio: one of them is 0"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "eval.py", "sha256": "b" * 64}, "different scripts: train.py and eval.py"),
        ({"name": "os:getpid", "sha256": ""}, "different scripts: train.py and os:getpid"),
        ({"unit": CALL}, "one iteration is one optimizer step in A, one forward call in B"),
        ({"batch": 64}, "--batch is 32 in A, 64 in B"),
        ({"batch": None}, "--batch is 32 in A, not given in B"),
        (
            {"shapes": [{"calls": ["64x64:float32"], "iterations": 20}]},
            "different input shapes: 32x64 in A, 64x64 in B",
        ),
        ({"shapes": [{"calls": [], "iterations": 20}]}, "32x64 in A, no module called in B"),
    ],
)
def test_what_is_refused(changes: dict[str, object], words: str) -> None:
    found = compare(result(), result(**changes))
    assert [text for text in found.refusals if words in text]
    assert found.ratios == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sha256": "b" * 64}, "the file is not the same in both"),
        (
            {"shapes": [{"calls": ["32x64:float16"], "iterations": 20}], "dtypes": ["float16"]},
            "different types: parameters float32, inputs float32 in A, parameters float16, inputs "
            "float16 in B",
        ),
        ({"arguments": []}, "different arguments: --epochs 1 in A, none in B"),
        ({"warmup": 0}, "different warm-up: 10 in A, 0 in B"),
        ({"iterations": 40}, "B: only 20 of 40 iterations"),
        ({"environment": {"torch": "2.1.0"}}, "different torch: 2.13.0 in A, 2.1.0 in B"),
        ({"latencies_ms": [1.0] * 10 + [9.0] * 10}, "B: drift"),
    ],
)
def test_what_is_warned_of(changes: dict[str, object], words: str) -> None:
    found = compare(result(), result(**changes))
    assert found.refusals == ()
    assert found.ratios
    assert [text for text in found.warnings if text.startswith(words)]


def test_two_functions_without_a_file() -> None:
    found = compare(result(name="time:time", sha256=""), result(name="os:getpid", sha256=""))
    assert found.refusals == ("different scripts: time:time and os:getpid",)


def test_shapes_that_vary() -> None:
    kinds = [
        {"calls": ["32x64:float32 (4 calls)"], "iterations": 18},
        {"calls": ["7x64:float32"], "iterations": 2},
    ]
    (word,) = result(shapes=kinds, varied=True).warnings
    assert word.startswith("the inputs vary from one optimizer step to the other (2 kinds: ")
    assert "7x64:float32 in 2" in word
    found = compare(result(shapes=kinds), result(shapes=kinds[::-1]))
    assert found.refusals == (), "the same kinds, whichever comes first"


def test_numbers_of_calls_that_vary() -> None:
    once = {"calls": ["32x64:float32"], "iterations": 19}
    often = {"calls": ["32x64:float32 (5 calls)"], "iterations": 1}
    found = result(shapes=[once, often])
    assert found.warnings == []
    word, _ = found.notes
    assert word.startswith("the calls vary from one optimizer step to the other (2 ")
    assert f"note: {word}" in show.result_text(found)
    both = compare(found, result(shapes=[once]))
    assert both.refusals == ()
    assert [text for text in both.warnings if text.startswith("not the same kinds of iterations")]
    other = compare(result(shapes=[often]), result(shapes=[once]))
    assert other.refusals == ("different numbers of calls: 32x64 (5 calls) in A, 32x64 in B",)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0148, "14.8 µs"), (0.1234, "0.123 ms"), (12.34, "12.3 ms"), (1234.5, "1.23 s")],
)
def test_times_are_read_easily(value: float, text: str) -> None:
    assert show.milliseconds(value) == text


def test_few_values() -> None:
    one = result(latencies_ms=[3.0], iterations=1)
    text = show.result_text(one)
    assert "latency      3 ms" in text
    assert not re.search("±|p99", text)
    assert "note: one value has no percentiles" in text
    assert json.loads(json.dumps(one.as_data()))["latency_ms"]["deviation"] is None
    assert result().notes == ["p99 of 20 values says little more than the largest of them"]
    assert result(latencies_ms=[3.0, 4.0] * 50, iterations=100).notes == []


def test_sizes() -> None:
    assert [show.size(n) for n in (12, 2048, 300 << 20, 3 << 30)] == [
        "12 B", "2 KiB", "300 MiB", "3 GiB",
    ]  # fmt: skip

"""Which iterations a script or a function has, whatever its shape: each in a process of its own."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from needs import needs

from benchmark.support import FIXTURES, measured
from cuda2npu.benchmark.result import uneven, varying
from cuda2npu.benchmark.spec import CALL, FUNCTION, STEP, Spec, Target, parse_inputs

pytestmark = needs("torch")
BATCH = "8x16:float32"
FUNCTIONS = FIXTURES / "functions.py"
LOOPS = ("infer", "accumulate", "two", "catch", "keep", "compiled", "load", "vary", "gan",
         "validate", "turns")  # fmt: skip
CALLED = {
    "step": "",
    "prepared": "",
    "model": "4x64:bfloat16",
    "embedding": "input=2x5:int64:100",
    "nothing": "",
    "weights": "",
    "asks": "3",
    "build": "",
    "named_inputs": "",
    **dict.fromkeys(("later", "items", "streams", "makes_items", "gives_a_class", "Settings"), ""),
}
"""Functions, and what they are to be called with."""


def _spec(target: Target, folder: Path, *arguments: str, inputs: str = "") -> Spec:
    return Spec(target, arguments, str(folder), "cpu", 4, 20, parse_inputs(inputs))


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    base = tmp_path_factory.mktemp("records")
    loops, train = Target(str(FIXTURES / "shapes.py")), Target(str(FIXTURES / "train.py"))
    specs = {name: _spec(loops, base / name, name) for name in LOOPS}
    specs["short"] = _spec(train, base / "short", "--steps", "9")
    for name, inputs in CALLED.items():
        target = Target(str(FUNCTIONS), name)
        specs[name] = _spec(target, base / name, inputs=inputs)
    build = Target(str(FUNCTIONS), "build")
    specs["other inputs"] = _spec(build, base / "other inputs", inputs="2x16,2x16")
    specs["factory"] = _spec(Target(str(FUNCTIONS), "model"), base / "factory")
    specs["no factory"] = _spec(Target(str(FUNCTIONS), "step"), base / "no factory", inputs="3")
    specs["built in"] = _spec(Target("time", "time"), base / "built in")
    specs["no module"] = _spec(Target("nowhere", "step"), base / "no module")
    return measured(specs)


@pytest.mark.parametrize(
    ("name", "unit", "calls"),
    [
        ("infer", CALL, [f"{BATCH}, 4:float32"]),
        ("accumulate", STEP, [f"{BATCH} (4 calls)"]),
        ("two", STEP, [f"{BATCH} (2 calls)"]),
        ("catch", STEP, [BATCH]),
        ("keep", CALL, [BATCH]),
        ("compiled", CALL, [BATCH]),
        ("load", STEP, [BATCH]),
        ("step", FUNCTION, []),
        ("prepared", FUNCTION, []),
        ("model", FUNCTION, ["4x64:bfloat16"]),
        ("embedding", FUNCTION, ["2x5:int64"]),
        ("build", FUNCTION, [f"{BATCH}, {BATCH}"]),
        ("other inputs", FUNCTION, ["2x16:float32, 2x16:float32"]),
        ("named_inputs", FUNCTION, ["8x16:float64"]),
    ],
)
def test_iterations(
    records: dict[str, dict[str, Any]], name: str, unit: str, calls: list[str]
) -> None:
    found = records[name]
    assert (found["unit"], found["count"], found["measured"]) == (unit, 25, 20)
    assert found["shapes"] == [{"calls": calls, "iterations": 20}]
    assert len(found["latencies_ms"]) == 20
    assert all(value > 0 for value in found["latencies_ms"])
    assert found["first_run_ms"] > 0
    assert found["wall_s"] >= sum(found["latencies_ms"]) / 1e3 * 0.999
    file = FUNCTIONS if unit == FUNCTION else FIXTURES / "shapes.py"
    assert found["sha256"] == sha256(file.read_bytes()).hexdigest()


def test_a_function_without_a_file(records: dict[str, dict[str, Any]]) -> None:
    found = records["built in"]
    assert (found["measured"], found["sha256"]) == (20, "")


def test_types_of_parameters(records: dict[str, dict[str, Any]]) -> None:
    types = {name: records[name]["dtypes"] for name in ("infer", "compiled", "model", "step")}
    assert types == {
        "infer": ["float32"], "compiled": ["float32"], "model": ["bfloat16"], "step": [],
    }  # fmt: skip


def test_shapes_that_vary(records: dict[str, dict[str, Any]]) -> None:
    (word,) = varying(records["vary"]["shapes"], records["vary"]["varied"], CALL)
    assert word.startswith("the inputs vary from one forward call to the other (3 kinds: ")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gan", "8x4:float32 and 8x16:float32 (2 calls) in 13; 8x4:float32 (2 calls) and"),
        ("validate", f"{BATCH} in 16; {BATCH} (4 calls) in 4"),
        ("turns", f"8x4:float32 in 10; {BATCH} in 10"),
    ],
)
def test_calls_may_vary_and_their_shapes_not(
    records: dict[str, dict[str, Any]], name: str, words: str
) -> None:
    shapes, varied = records[name]["shapes"], records[name]["varied"]
    assert varying(shapes, varied, STEP) == []
    (word,) = uneven(shapes, varied, STEP)
    assert words in word
    assert "compiles" not in word


def test_a_script_that_is_too_short(records: dict[str, dict[str, Any]]) -> None:
    found = records["short"]
    assert (found["ended"], found["count"], found["measured"]) == ("script", 9, 4)
    assert len(found["latencies_ms"]) == 4
    assert found["wall_s"] > 0


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("factory", "BenchError", "say what to call it with"),
        ("nothing", "UsageError", "functions.py has no nothing"),
        ("weights", "BenchError", "is a Tensor, which cannot be called"),
        ("no factory", "BenchError", "--inputs is for a factory"),
        ("no module", "UsageError", "nowhere: no such module, seen from"),
        ("later", "BenchError", "gives back an object of type coroutine, which"),
        ("items", "BenchError", "gives back an object of type generator, which"),
        ("streams", "BenchError", "gives back an object of type async_generator, which"),
        ("makes_items", "BenchError", "gives back an object of type generator, which"),
        ("gives_a_class", "BenchError", "gives back the class Linear"),
        ("Settings", "BenchError", "is a class whose objects cannot be called"),
        ("asks", "TypeError", "missing 1 required positional argument: 'more'"),
    ],
)
def test_what_cannot_be_called(
    records: dict[str, dict[str, Any]], name: str, kind: str, words: str
) -> None:
    error = records[name]["error"]
    assert error["type"] == kind
    assert words in error["message"]
    assert "latencies_ms" not in records[name]

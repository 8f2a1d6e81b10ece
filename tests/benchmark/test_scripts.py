"""Which iterations a script has, whatever its shape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from needs import needs

from benchmark.support import bench

pytestmark = needs("torch")
FIXTURES = Path(__file__).resolve().parent.parent.parent / "fixtures" / "bench"
BATCH = "8x16:float32"


@pytest.mark.parametrize(
    ("name", "unit", "calls"),
    [
        ("infer", "forward call", [f"{BATCH}, 4:float32"]),
        ("accumulate", "optimizer step", [f"{BATCH} (4 calls)"]),
        ("two", "optimizer step", [f"{BATCH} (2 calls)"]),
        ("catch", "optimizer step", [BATCH]),
        ("keep", "forward call", [BATCH]),
        ("compiled", "forward call", [BATCH]),
        ("load", "optimizer step", [BATCH]),
    ],
)
def test_iterations(name: str, unit: str, calls: list[str]) -> None:
    done = bench("shapes.py", "--iterations", "20", "--warmup", "4", "--json", "--dry-run", "--",
                 name, cwd=FIXTURES)  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["dry_run"]
    assert found["unit"] == unit
    assert (found["count"], found["measured"]) == (25, 20)
    assert found["shapes"] == [{"calls": calls, "iterations": 20}]
    assert found["dtypes"] == ["float32"]


def test_shapes_that_vary() -> None:
    done = bench("shapes.py", "--iterations", "9", "--dry-run", "--", "vary", cwd=FIXTURES)
    assert done.returncode == 0, done.stderr
    assert "warning: the inputs vary from one forward call to the other (3 kinds: " in done.stdout

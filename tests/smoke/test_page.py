"""The report: one page, looked at in a real browser, and the table. No torch."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path

import pytest
from browser import browser
from rich.console import Console

from cuda2npu.smoke.causes import cause_of
from cuda2npu.smoke.charts import error_chart, loss_chart
from cuda2npu.smoke.data import as_data
from cuda2npu.smoke.failure import Failure
from cuda2npu.smoke.lines import Pair
from cuda2npu.smoke.metrics import Metrics
from cuda2npu.smoke.notes import Note
from cuda2npu.smoke.outcome import Comparison, First, Row, Status
from cuda2npu.smoke.page import page_of
from cuda2npu.smoke.stage import Report, Request
from cuda2npu.smoke.suspects import Edit
from cuda2npu.smoke.table import show, shown

EVIL = '<script>document.title="taken"</script><img src=x onerror=alert(1)>&"\'[bold]'


def report(broken: bool = False) -> Report:
    rows = [
        Row("Net.a", "layer", 2, Metrics(compared=2)),
        Row(
            EVIL, "layer", 2, Metrics(0.5, 3.0, 1.0, 0.8, 1, 0, compared=2), Status.DIFFERS, [EVIL]
        ),
        Row("Net.b", "layer", 2, Metrics(1, 2e-3, 2e-4, 1e-3, compared=2), Status.POINTED, ["x"]),
        Row("loss", "loss", 3, Metrics(compared=3)),
    ]
    edit = Edit(EVIL, 3, "NPU401", EVIL, True, EVIL, EVIL)
    found = Report(
        Request(Path("train.py"), ("--name", EVIL)),
        reference_name="the original on the CPU",
        simulated=True,
        edits=[edit],
        suspects=[edit],
        notes=[Note("float64", EVIL, EVIL, EVIL, 3, 2)],
        environment={"npu": {"torch": EVIL}},
        seconds={"npu": 1.0},
        steps=3,
    )
    if broken:
        found.failures = [
            Failure("npu", EVIL, EVIL, (Pair(EVIL, 1, EVIL, 2, EVIL),),
                    cause_of("AssertionError", "Torch not compiled with CUDA enabled"))
        ]  # fmt: skip
    else:
        first = First("Net.a", EVIL, EVIL, 1, (EVIL,))
        losses: list[tuple[float | None, float | None]]
        losses = [(3.0, 3.0), (2.0, 2.5), (1.0, float("nan")), (None, 1.0)]
        found.comparison = Comparison(rows, losses, first, first, [EVIL])
    return found


@pytest.mark.parametrize("broken", [False, True])
def test_everything_is_escaped(broken: bool) -> None:
    page = page_of(report(broken))
    assert "<script" not in page
    assert "<img" not in page
    assert "simulated NPU: names, placement" in page
    assert "&lt;script&gt;" in page


@pytest.mark.parametrize("broken", [False, True])
def test_nothing_is_loaded(broken: bool) -> None:
    page = page_of(report(broken))
    assert not re.search(
        r"https?://|\bsrc=|\bhref=|url\(|@import", page.replace("&lt;img src=x", "")
    )
    assert "default-src 'none'" in page


def test_charts_of_nothing() -> None:
    assert "No loss" in loss_chart([])
    assert "No loss" in loss_chart([(None, float("nan"))])
    assert "<path" in loss_chart([(1.0, 1.0)])
    assert "No layer" in error_chart([])


@pytest.mark.parametrize("broken", [False, True])
def test_the_data_is_json(broken: bool) -> None:
    data = json.loads(json.dumps(as_data(report(broken)), allow_nan=False))
    assert data["verdict"] == ("could not run" if broken else "differs")
    assert data["simulated"] is True


@pytest.mark.parametrize("broken", [False, True])
def test_the_table(broken: bool) -> None:
    text = StringIO()
    show(report(broken), Console(file=text, width=200))
    assert "simulated" in text.getvalue()
    assert "[bold]" in text.getvalue(), "the user's own brackets are no markup"
    assert ("Torch" in text.getvalue() or "CUDA call left" in text.getvalue()) is broken
    last = text.getvalue().strip().splitlines()[-1]
    assert last.startswith("could not run" if broken else "differs")


def test_a_partial_verdict_says_so() -> None:
    partial = report()
    assert partial.comparison is not None
    partial.comparison.limits = ["the reference was ended by --timeout after 3 steps"]
    text = StringIO()
    show(partial, Console(file=text, width=200))
    assert "differs in what both runs got to on the simulated NPU" in text.getvalue()
    assert "differs in what both runs got to" in page_of(partial)
    data = as_data(partial)
    assert (data["verdict"], data["limits"]) == ("differs", partial.comparison.limits)


def test_of_many_layers_those_that_stand_out_are_shown() -> None:
    rows = [Row(f"n{index}", "layer") for index in range(100)]
    rows[70].status = Status.DIFFERS
    chosen = shown(rows, 10)
    assert len(chosen) == 10
    assert rows[70] in chosen


def test_in_a_browser(tmp_path: Path) -> None:
    page = tmp_path / "smoke.html"
    page.write_text(page_of(report()), encoding="utf-8")
    with browser(tmp_path / "profile") as tab:
        tab.open(page)
        assert tab.run("document.title") == "train.py: differs"
        counts = (
            "['polyline', 'rect', 'table#layers'].map(n => document.querySelectorAll(n).length)"
        )
        assert tab.run(counts) == [2, 3, 1]
        bars = (
            "[...document.querySelectorAll('rect')].map(bar => bar.getBoundingClientRect().width)"
        )
        small, large, pointed = tab.run(bars)
        assert 0 < small < pointed < large
        assert tab.requests == [page.as_uri()]
        assert tab.faults == []
        picture = tmp_path / "smoke.png"
        tab.picture(picture)
        assert picture.stat().st_size > 20_000

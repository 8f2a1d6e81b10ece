"""The pages, looked at in a real browser. No torch."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from browser import browser

from benchmark.support import EVIL, result
from cuda2npu.benchmark.comparison import compare
from cuda2npu.benchmark.page import comparison_page, result_page


def _result_page() -> str:
    return result_page(
        result(
            name=EVIL,
            arguments=[EVIL],
            shapes=[{"calls": [EVIL], "iterations": 20}, {"calls": [EVIL], "iterations": 1}],
            dtypes=[EVIL],
            environment={"torch": EVIL, "device": EVIL, EVIL: EVIL},
            memory={EVIL: 3},
        )
    )


def _comparison_page() -> str:
    a = result(environment={"device": EVIL})
    b = result(
        device="npu",
        sha256="b" * 64,
        arguments=[EVIL],
        latencies_ms=[20.0, 21.0] * 10,
        wall_s=0.5,
        environment={"device": EVIL, "torch": EVIL},
    )
    return comparison_page(compare(a, b), (EVIL, EVIL))


PAGES = pytest.mark.parametrize("text", [_result_page(), _comparison_page()], ids=["one", "two"])


@PAGES
def test_everything_is_escaped(text: str) -> None:
    assert "<script" not in text
    assert "<img" not in text
    assert "&lt;script&gt;" in text


@PAGES
def test_nothing_is_loaded(text: str) -> None:
    inert = text.replace("&lt;img src=x", "")
    assert not re.search(r"https?://|\bsrc=|\bhref=|url\(|@import", inert)
    assert "default-src 'none'" in text


def test_in_a_browser(tmp_path: Path) -> None:
    pages = {"one": _result_page(), "two": _comparison_page()}
    for name, text in pages.items():
        (tmp_path / f"{name}.html").write_text(text, encoding="utf-8")
    with browser(tmp_path / "profile") as tab:
        for name in pages:
            page = tmp_path / f"{name}.html"
            tab.open(page, 375, 800)
            assert tab.run("document.title") != "taken"
            assert tab.run("document.documentElement.scrollWidth") == 375
            lines = tab.run("document.querySelectorAll('#latencies polyline').length")
            assert lines == (1 if name == "one" else 2)
            letters = "getComputedStyle(document.querySelector('#latencies text')).fontSize"
            assert tab.run(letters) == "11px"
            assert tab.requests == [page.as_uri()]
            assert tab.faults == []
        bars = (
            "[...document.querySelectorAll('#latency rect')].slice(0, 2)"
            ".map(bar => bar.getBoundingClientRect().width)"
        )
        a, b = tab.run(bars)
        assert b / a == pytest.approx(2, rel=0.01)
        ratios = "[...document.querySelectorAll('.ratios b')].map(each => each.textContent)"
        assert tab.run(ratios) == ["2.00", "0.50", "1.00"]

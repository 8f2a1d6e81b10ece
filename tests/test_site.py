"""The built documentation: generated pages, links, and what a browser would ask for."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browser import browser

from cuda2npu.packs import load_rules
from cuda2npu.releases import RELEASES, releases_with, torch_cuda_names
from cuda2npu.rule import Rule

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tools"))

from name_table import entries, spans  # noqa: E402
from rule_pages import OWN, rule_page  # noqa: E402

RULES = [rule for rule in load_rules() if rule.code.startswith(OWN)]
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as ``make docs`` builds it: each warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def _text(page: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", page))


def test_every_rule_has_its_page(site: Path) -> None:
    for rule in RULES:
        text = _text((site / "rules" / f"{rule.code}.html").read_text(encoding="utf-8"))
        assert f"{rule.code} {rule.name}" in text
        assert rule.why[1:] in text
        for example in rule.examples:
            assert example.before.strip("\n") in text, rule.code
            assert example.after.strip("\n") in text, rule.code


def test_every_rule_stands_in_the_index_of_its_family(site: Path) -> None:
    indexes = "".join(path.read_text(encoding="utf-8") for path in site.glob("rules/*/index.html"))
    for rule in RULES:
        assert f"{rule.code}</a></td>" in indexes


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_examples_are_highlighted_as_what_they_are(rule: Rule) -> None:
    page = rule_page(rule)
    assert page.count("\n```") == 2 * (1 + sum(1 + (e.kind == "rewrite") for e in rule.examples))
    if rule.examples and not rule.is_about_documents:
        assert "```{.python" in page or "```python" in page


def test_names_say_what_the_wheels_say() -> None:
    found = {entry.name: entry for entry in entries()}
    assert found.keys() == torch_cuda_names()
    for entry in found.values():
        assert entry.written or entry.advice
        for new, releases in entry.written.items():
            if new.startswith("torch.npu."):
                assert set(releases) <= set(releases_with(new)), new
    pushed = found["torch.cuda.nvtx.range_push"].written
    assert pushed == {"torch.npu.mstx.range_push": list(releases_with("torch.npu.mstx.range_push"))}


@pytest.mark.parametrize(
    ("some", "words"),
    [
        (RELEASES, "all"),
        (RELEASES[5:], f"from {RELEASES[5]}"),
        (RELEASES[:5], f"up to {RELEASES[4]}"),
        ((RELEASES[0], *RELEASES[3:]), f"{RELEASES[0]}, from {RELEASES[3]}"),
        ((RELEASES[2], RELEASES[3], RELEASES[6]), f"{RELEASES[2]} to {RELEASES[3]}, {RELEASES[6]}"),
    ],
)
def test_releases_in_words(some: tuple[str, ...], words: str) -> None:
    assert spans(some) == words


class _Loads(HTMLParser):
    """What a browser fetches for a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.found.append(given.get(LOADED.get(tag, "")) or "")


def _fetched(site: Path) -> Iterator[tuple[Path, str]]:
    for path in site.rglob("*.html"):
        for address in _Loads(path.read_text(encoding="utf-8")).found:
            yield path, address
    for path in site.rglob("*.css"):
        for address in re.findall(r"(?:url\(|@import )[\"']?([^\"')]+)", path.read_text("utf-8")):
            yield path, address


def test_no_page_asks_the_network_for_anything(site: Path) -> None:
    fetched = list(_fetched(site))
    assert len(fetched) > 500
    assert [each for each in fetched if re.match(r"(?:https?:)?//", each[1])] == []


def test_no_page_knows_where_it_was_built(site: Path) -> None:
    for path in site.rglob("*"):
        if path.suffix in (".html", ".js", ".json", ".xml"):
            assert str(ROOT) not in path.read_text(encoding="utf-8"), path


@pytest.mark.parametrize("width", [1280, 390])
def test_a_reader_finds_a_rule_without_network(site: Path, tmp_path: Path, width: int) -> None:
    """Opened from disk: the search answers, nothing is fetched, and no page is too wide."""
    with browser(tmp_path / "profile") as tab:
        for page in ("index", "tutorial", "torch-cuda", "comparison", "rules/index", "zh"):
            tab.open(site / f"{page}.html", width=width)
            assert tab.run("document.documentElement.scrollWidth <= innerWidth"), page
            assert tab.faults == []
            assert all(address.startswith(("file:", "data:")) for address in tab.requests)
        tab.open(site / "rules" / "NPU401.html", width=width)
        found = tab.run(SEARCH)
        assert "NPU301 nccl-backend" in found


SEARCH = """
new Promise((done) => {
  const field = document.querySelector("input.md-search__input");
  document.querySelector("#__search").click();
  field.value = "nccl-backend";
  field.dispatchEvent(new Event("focus"));
  field.dispatchEvent(new KeyboardEvent("keyup"));
  const end = Date.now() + 20000;
  const look = () => {
    const found = document.querySelector(".md-search-result__list").textContent;
    if (found.includes("nccl-backend") || Date.now() > end) done(found);
    else setTimeout(look, 100);
  };
  look();
})
"""

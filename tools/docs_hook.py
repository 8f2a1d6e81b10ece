"""Adds the generated pages while mkdocs builds the site, so that none can be out of date."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chip_page import lacking_section
from comparison import cases_section
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from name_table import name_page
from rule_pages import FAMILIES, by_family, rule_pages

ROOT = Path(__file__).resolve().parent.parent
LACKING = "<!-- the APIs that a chip lacks -->"
CASES = "<!-- the programs of tools/comparison.py -->"


def on_config(config: MkDocsConfig) -> None:
    """Fill the section of the navigation that is called Rules."""
    for entry in config.nav or ():
        if "Rules" in entry:
            entry["Rules"] = ["rules/index.md", *_families()]


def _families() -> Iterator[dict[str, Any]]:
    for digit, rules in by_family().items():
        file, title = FAMILIES[digit]
        pages = [{f"{rule.code} {rule.name}": f"rules/{rule.code}.md"} for rule in rules]
        yield {title: [f"rules/{file}/index.md", *pages]}


def _chinese_readme() -> str:
    """The Chinese README as a page."""
    text = (ROOT / "README.zh-CN.md").read_text(encoding="utf-8")
    return text.replace("(README.md)", "(index.md)")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the generated parts in their places on the pages written by hand."""
    if LACKING in markdown:
        return markdown.replace(LACKING, lacking_section())
    return markdown.replace(CASES, cases_section()) if CASES in markdown else markdown


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages to those that are read from ``docs``."""
    pages = [("torch-cuda.md", name_page()), ("zh.md", _chinese_readme())]
    for path, text in [*rule_pages(), *pages]:
        files.append(File.generated(config, path, content=text))

"""The Chinese README says what the English one says: compared by all that needs no translation."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ENGLISH, CHINESE = "README.md", "README.zh-CN.md"

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"\s+# .*")
_SPAN = re.compile(r"`([^`]+)`")


@dataclass
class Section:
    """What stands under one heading, without its prose."""

    level: int
    code: list[tuple[str, str]] = field(default_factory=list)
    """Languages and texts of the blocks, comments aside."""
    spans: set[str] = field(default_factory=set)
    table: list[list[set[str]]] = field(default_factory=list)
    """The code in each cell."""
    links: list[str] = field(default_factory=list)
    points: int = 0
    emphasised: int = 0


def sections(text: str) -> list[Section]:
    blocks: list[tuple[str, str]] = []

    def take(match: re.Match[str]) -> str:
        blocks.append((match[1], _COMMENT.sub("", match[2])))
        return f"\0{len(blocks) - 1}\n"

    found: list[Section] = []
    for part in re.split(r"^(?=#+ )", _FENCE.sub(take, text), flags=re.MULTILINE)[1:]:
        heading, _, body = part.partition("\n")
        rows = [line for line in body.splitlines() if line.startswith("|")]
        section = Section(len(heading) - len(heading.lstrip("#")))
        section.code = [blocks[int(number)] for number in re.findall("\0([0-9]+)", body)]
        section.spans = set(_SPAN.findall(body))
        section.table = [[set(_SPAN.findall(cell)) for cell in row.split(" | ")] for row in rows]
        section.links = re.findall(r"\]\(([^)]+)\)", body)
        section.points = len(re.findall(r"^[*-] ", body, re.MULTILINE))
        section.emphasised = body.count("**")
        found.append(section)
    return found


def _read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_they_are_in_step() -> None:
    english, chinese = sections(_read(ENGLISH)), sections(_read(CHINESE))
    assert [section.level for section in english] == [section.level for section in chinese]
    assert len(english) > 5
    english[0].links.remove(CHINESE)
    chinese[0].links.remove(ENGLISH)
    for one, other in zip(english, chinese, strict=True):
        assert one == other


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("## ", "### "),
        ("`--unsafe`", "`--safe`"),
        ("| 0 |\n", "| 0 |\n| `cuda2npu new` | does | 0 |\n"),
        ('"hccl")\n', '"nccl")\n'),
        ("(https://github.com/", "(https://example.org/"),
        ("* **unsafe**", "**unsafe**"),
    ],
)
def test_a_step_of_one_alone_is_seen(old: str, new: str) -> None:
    text = _read(ENGLISH)
    assert old in text
    assert sections(text.replace(old, new, 1)) != sections(text)


def test_comments_in_code_are_prose() -> None:
    block = "# A\n```console\n$ make demo    # {}\n```\n"
    assert sections(block.format("sets up")) == sections(block.format("创建"))

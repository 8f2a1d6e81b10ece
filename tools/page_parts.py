"""What the generated pages of the documentation have in common: text and tables in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~])")


def plain(text: str) -> str:
    """Text that Markdown shows as it is."""
    return _SPECIAL.sub(r"\\\1", text)


def code(text: str) -> str:
    """Text as inline code, in a table too."""
    return f"`{text}`".replace("|", "\\|")


def fenced(text: str, language: str, title: str = "") -> str:
    """A block of code; its fence is longer than any in it."""
    fence = max(re.findall(r"^`{3,}", text, flags=re.MULTILINE), default="``") + "`"
    head = f'{fence}{{.{language} title="{title}"}}' if title else f"{fence}{language}"
    return f"{head}\n{text.strip(chr(10))}\n{fence}\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; what stands in its cells is Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)

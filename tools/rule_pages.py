"""The pages about rules, made from the rules themselves: one each, one per family, an index."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from page_parts import code, fenced, plain, table
from pygments.lexers import get_lexer_for_filename
from pygments.util import ClassNotFound

from cuda2npu.packs import load_rules
from cuda2npu.report.rules import FIX, how_to_turn_on
from cuda2npu.rule import Example, Rule, Target

FAMILIES = {
    "0": ("imports", "Imports and shims"),
    "1": ("placement", "Device placement and torch.cuda"),
    "2": ("mixed-precision", "Mixed precision"),
    "3": ("distributed", "Distributed and environment"),
    "4": ("numerics", "Numerics"),
    "5": ("profiling-extensions", "Precision flags, profiling, extensions, compilers"),
    "6": ("third-party", "Third-party libraries"),
    "7": ("performance", "Performance advice, off by default"),
    "8": ("documents", "Scripts, configs, requirements"),
    "9": ("missing-names", "Names that torch_npu does not have"),
}
"""File name and title by the first digit of a code."""

OWN = "NPU"
"""What the codes of these rules start with; those of other packs have letters of their own."""

PYTHON = "example.py"

_KINDS = {
    "rewrite": "Rewritten",
    "report": "Reported, not changed",
    "leave": "Left alone",
}


def rule_pages() -> Iterator[tuple[str, str]]:
    """Paths below ``docs`` and the pages in Markdown."""
    families = by_family()
    yield "rules/index.md", _index(families)
    for digit, rules in families.items():
        file, title = FAMILIES[digit]
        yield f"rules/{file}/index.md", f"# {title}\n\n{_list(rules)}"
        for rule in rules:
            yield f"rules/{rule.code}.md", rule_page(rule)


def by_family() -> dict[str, list[Rule]]:
    """The tool's own rules by the first digit of their codes.

    Raises KeyError for a digit that has no family.
    """
    families: dict[str, list[Rule]] = {digit: [] for digit in FAMILIES}
    for rule in load_rules():
        if rule.code.startswith(OWN):
            families[rule.code[len(OWN)]].append(rule)
    return {digit: rules for digit, rules in families.items() if rules}


def _index(families: dict[str, list[Rule]]) -> str:
    rows = [
        [f"{digit}xx", f"[{title}]({file}/index.md)", str(len(families[digit]))]
        for digit, (file, title) in FAMILIES.items()
        if digit in families
    ]
    meanings = [
        [code(level.value), plain(meaning.partition(": ")[2])] for level, meaning in FIX.items()
    ]
    return "\n".join(
        [
            "# Rules\n",
            f"{sum(map(len, families.values()))} rules. Each page is made from the rule itself; "
            "its examples are unit tests. `cuda2npu rules CODE` prints the same.\n",
            table(["codes", "family", "rules"], rows),
            "## Fix levels\n",
            table(["level", "meaning"], meanings),
            "A finding is **quiet** when the code, left as it is, would not raise on an NPU "
            "machine: it runs on the CPU, in another precision, over another backend or without "
            "effect.\n",
        ]
    )


def _list(rules: Sequence[Rule]) -> str:
    rows = [
        [
            f"[{rule.code}](../{rule.code}.md)",
            plain(rule.name),
            rule.fix.value,
            "quiet" if rule.quiet else "",
            "" if rule.default else "off",
        ]
        for rule in rules
    ]
    return table(["code", "name", "fix", "quiet", "default"], rows)


def rule_page(rule: Rule) -> str:
    """The page of one rule."""
    parts = [f"# {rule.code} {rule.name}\n", _sentence(rule.why), _facts(rule)]
    for kind, title in _KINDS.items():
        examples = [example for example in rule.examples if example.kind == kind]
        if examples:
            parts += [f"## {title}\n", *(_example(example) for example in examples)]
    return "\n".join([*parts, _how_to_keep_away(rule)])


def _sentence(why: str) -> str:
    """The reason, with a capital unless it starts with code."""
    starts_with_word = re.match(r"[a-z]+[ ,]", why) is not None
    return f"{why[0].upper() if starts_with_word else plain(why[0])}{plain(why[1:])}.\n"


def _facts(rule: Rule) -> str:
    level, _, meaning = FIX[rule.fix].partition(": ")
    rows = [["fix", f"**{level}**: {plain(meaning)}"]]
    quiet = "yes: what is left does not raise on an NPU machine" if rule.quiet else "no"
    rows += [["quiet", quiet], ["torch_npu", f"from {rule.since}"]]
    if Target.NPU not in rule.targets:
        rows.append(["target", "only with `--target shim`"])
    if not rule.default:
        rows.append(["off by default", plain(how_to_turn_on(rule))])
    if rule.source:
        rows.append(["source", plain(rule.source)])
    return table(rows[0], rows[1:])


def _example(example: Example) -> str:
    language = _language(example.path)
    notes = [] if example.path == PYTHON else [example.path]
    notes += [f"torch_npu {example.release}"] if example.release else []
    notes += [f"--chip {example.chip}"] if example.chip else []
    if example.kind != "rewrite":
        return fenced(example.before, language, ", ".join(notes))
    before, after = (", ".join([title, *notes]) for title in ("before", "after"))
    blocks = [
        fenced(example.before, language, before),
        fenced(example.after, language, after),
    ]
    return "\n".join(['<div class="grid" markdown>\n', *blocks, "</div>\n"])


def _language(path: str) -> str:
    """The name by which the highlighter knows a file's language."""
    try:
        return str(get_lexer_for_filename(path).aliases[0])
    except (ClassNotFound, IndexError):
        return "text"


def _how_to_keep_away(rule: Rule) -> str:
    return "\n".join(
        [
            "## Keep it away\n",
            f"From one line with a comment on it, `# cuda2npu: ignore[{rule.code}]`; from a run "
            f"with `--ignore {rule.code}`; from a project in its `pyproject.toml`:\n",
            fenced(f'[tool.cuda2npu]\nignore = ["{rule.code}"]', "toml"),
        ]
    )

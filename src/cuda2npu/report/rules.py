"""``cuda2npu rules``: the list of rules, and one rule explained."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import PurePath

from rich.console import Console
from rich.markup import escape
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from cuda2npu.config import CHIP_RULE
from cuda2npu.model import FixLevel
from cuda2npu.rule import Example, Rule

FIX = {
    FixLevel.SAFE: "safe: the NPU program means what the CUDA program meant; rewrite applies it",
    FixLevel.NUMERICS: "numerics: results change; rewrite applies it, --preserve-numerics does not",
    FixLevel.UNSAFE: "unsafe: probably right; rewrite applies it with --unsafe",
    FixLevel.NONE: "none: a person has to decide",
}


def console() -> Console:
    """A console as wide as the terminal, or wide enough for a table in a pipe."""
    return Console(width=None if sys.stdout.isatty() else 120, highlight=False, emoji=False)


def print_rules(rules: Sequence[Rule]) -> None:
    table = Table("code", "name", "fix", "quiet", "default", box=None, pad_edge=False)
    for rule in rules:
        marks = ("quiet" if rule.quiet else "", "" if rule.default else "off")
        table.add_row(rule.code, escape(rule.name), rule.fix.value, *marks)
    console().print(table)


def print_rule(rule: Rule) -> None:
    out = console()
    out.print(f"[bold]{rule.code}[/bold] {escape(rule.name)}\n")
    out.print(escape(rule.why) + "\n")
    out.print(f"fix: {FIX[rule.fix]}")
    if rule.quiet:
        out.print("quiet: the leftover does not fail on an NPU machine")
    out.print(f"from torch_npu: {rule.since}")
    if not rule.default:
        out.print(f"off by default: {how_to_turn_on(rule)}")
    if rule.source:
        out.print(f"source: {escape(rule.source)}")
    for example in rule.examples:
        _print_example(out, example)


def how_to_turn_on(rule: Rule) -> str:
    """The options that ask for a rule that is off by default."""
    if rule.code == CHIP_RULE:
        return "--chip NAME asks it, beside the others; with --select, where that names it, too"
    return f"--extend-select {rule.code} adds it to the others, --select {rule.code} runs it alone"


def _print_example(out: Console, example: Example) -> None:
    release = f" (torch_npu {example.release})" if example.release else ""
    for name, text in example.beside:
        out.print(f"\n[bold]beside it, {escape(name)}[/bold]")
        _print_code(out, text, name)
    if example.chip:
        release += f" (--chip {example.chip})"
    if PurePath(example.path).suffix != ".py":
        release += f" ({example.path})"
    if example.kind == "rewrite":
        out.print(f"\n[bold]before[/bold]{release}")
        _print_code(out, example.before, example.path)
        out.print("[bold]after[/bold]")
        _print_code(out, example.after, example.path)
    else:
        title = "reported, not changed" if example.kind == "report" else "left alone"
        out.print(f"\n[bold]{title}[/bold]{release}")
        _print_code(out, example.before, example.path)


def _print_code(out: Console, source: str, path: str) -> None:
    language = Syntax.guess_lexer(path, source)
    text = Syntax("", language, theme="ansi_dark").highlight(source.strip("\n"))
    for line in text.split("\n"):
        out.print(Text("    ") + line if line else "", soft_wrap=True)

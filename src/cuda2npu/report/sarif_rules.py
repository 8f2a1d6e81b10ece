"""A rule as SARIF describes it."""

from __future__ import annotations

from cuda2npu.report.rules import FIX
from cuda2npu.report.sarif import Json, level
from cuda2npu.rule import Example, Rule


def descriptor(rule: Rule) -> Json:
    """A ``reportingDescriptor``; the help is what ``cuda2npu rules CODE`` prints."""
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": rule.name.replace("-", " ").capitalize()},
        "fullDescription": {"text": rule.why},
        "help": {"text": _text(rule), "markdown": _markdown(rule)},
        "defaultConfiguration": {"level": level(rule.quiet)},
        "properties": {"fix": rule.fix.value, "quiet": rule.quiet},
    }


def _text(rule: Rule) -> str:
    return f"{rule.why}\nfix: {FIX[rule.fix]}"


def _markdown(rule: Rule) -> str:
    shown = next((e for e in rule.examples if e.kind != "leave"), None)
    return f"{rule.why}\n\n**fix**: {FIX[rule.fix]}" + (_example(shown) if shown else "")


def _example(example: Example) -> str:
    if example.kind == "report":
        return f"\n\n{_code(example.before)}"
    return f"\n\nbefore\n\n{_code(example.before)}\n\nafter\n\n{_code(example.after)}"


def _code(source: str) -> str:
    return f"```python\n{source.strip()}\n```"

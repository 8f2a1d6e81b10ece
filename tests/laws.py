"""The laws that hold for every source, read from the bytes and trees alone.

Nothing here uses the engine's own idea of a statement, a scope or a position.
"""

from __future__ import annotations

import ast
import re
import warnings
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from cuda2npu.engine import rewrite_bytes
from cuda2npu.file_rules import UNREADABLE
from cuda2npu.model import Finding, Options, Result, SourceError
from cuda2npu.packs import packs
from cuda2npu.releases import exists
from cuda2npu.source import decode

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$")
_INSERTED = r"(?:import torch_npu|import torch|from torch_npu\.contrib import transfer_to_npu)"
_INSERTED_LINE = re.compile(rf"^[ \t\f]*{_INSERTED}(?:  # noqa: F401)?(?:\r\n|\r|\n|$)")
_INSERTED_BEHIND = re.compile(rf"; {_INSERTED}")
_DOTTED = re.compile(r"torch(?:_npu|\.npu)(?:\.\w+)+")

NOT_FOUND_AGAIN = {
    "NPU525": "the call is the NPU's once it is renamed, and no code shows whether the library "
    "that it loads was built anew",
}
"""Rules whose findings a rewrite may leave and end, each with the reason."""

Node = ast.stmt | ast.expr | ast.excepthandler | ast.pattern
Span = tuple[int, int]


@dataclass
class Verdict:
    """What the laws say about one file."""

    broken: list[str] = field(default_factory=list)
    triggered: bool = False
    changed: bool = False
    refused: str = ""
    findings: tuple[Finding, ...] = ()
    vanished: list[str] = field(default_factory=list)
    """Findings that were left, and that a second run does not find again."""


def judge(data: bytes, options: Options | None = None) -> Verdict:
    """Rewrite a source and hold every law to the result."""
    options = options or Options()
    verdict = Verdict(triggered=any(word.encode() in data for p in packs() for word in p.words))
    try:
        new, result = rewrite_bytes(data, options, path="f.py")
    except SourceError as error:
        verdict.refused = str(error)
        return verdict
    verdict.changed, verdict.findings = result.changed, result.findings
    if new is not data and new == data:
        verdict.broken.append("unchanged bytes came back as new ones")
    if result.changed != (new != data):
        verdict.broken.append("`changed` does not tell whether the bytes changed")
    if not verdict.triggered and (result.changed or result.findings):
        verdict.broken.append("a file without a trigger word was not left alone")
    verdict.broken += _unreadable(result.findings)
    for finding in result.remaining:
        if options.applies(finding.fix):
            verdict.broken.append(f"line {finding.line}: the edit of {finding.code} is left")
    if new != data:
        verdict.broken += _second_run(new, result, options, verdict)
        verdict.broken += compare(data, new, result.applied, options)
    return verdict


def _unreadable(findings: tuple[Finding, ...]) -> Iterator[str]:
    for finding in findings:
        if finding.code == UNREADABLE.code:
            yield f"line {finding.line}: a statement could not be read"


def _second_run(new: bytes, first: Result, options: Options, verdict: Verdict) -> Iterator[str]:
    try:
        again, result = rewrite_bytes(new, options, path="f.py")
    except SourceError as error:
        yield f"the second run refused the output: {error}"
        return
    if again != new or result.changed:
        yield f"the second run changed the output: {_first_difference(new, again)}"
    verdict.vanished += vanished(first, result)


def vanished(first: Result, second: Result) -> Iterator[str]:
    """What a run left for the user and a second run, on the new text, does not find again."""
    left, found = (Counter(finding.code for finding in r.remaining) for r in (first, second))
    for code, count in (left - found).items():
        if code not in NOT_FOUND_AGAIN:
            lines = [finding.line for finding in first.remaining if finding.code == code]
            yield f"{count} of {code} left at lines {lines} vanished"


def _first_difference(one: bytes, other: bytes) -> str:
    for number, (a, b) in enumerate(zip(one.split(b"\n"), other.split(b"\n"), strict=False), 1):
        if a != b:
            return f"line {number}: {a!r} became {b!r}"
    return "at its end"


def compare(
    data: bytes, new: bytes, applied: tuple[Finding, ...], options: Options
) -> Iterator[str]:
    old_text, new_text = decode(data)[0], decode(new)[0]
    try:
        old_tree, new_tree = _parse(old_text), _parse(new_text)
    except SyntaxError as error:
        yield f"the output does not parse: {error}"
        return
    yield from _outside(old_text, old_tree, new_text, applied)
    if _shape(old_tree) != _shape(new_tree):
        yield f"statements came or went: {_shape(new_tree) - _shape(old_tree)}"
    for name in sorted(_npu_names(new_tree) - _npu_names(old_tree)):
        # `torch.npu.X.npu()` moves whatever X is, as `torch.cuda.X.cuda()` did.
        if not exists(re.sub(r"(\.(npu|to|is_npu))+$", "", name), options.torch_npu):
            yield f"{name} does not exist in torch_npu {options.torch_npu}"


def _parse(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


# --- bytes outside edited statements


class _Offsets:
    """Character offsets of the positions that ``ast`` and findings give."""

    def __init__(self, text: str) -> None:
        self.lines = _LINE.findall(text)
        self.starts = list(accumulate(map(len, self.lines), initial=0))

    def of(self, line: int, column: int) -> int:
        """``column`` counts UTF-8 bytes from 0."""
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        before = text.encode("utf-8", "surrogatepass")[:column]
        return self.starts[line - 1] + len(before.decode("utf-8", "surrogatepass"))

    def start(self, node: Node) -> int:
        return self.of(node.lineno, node.col_offset)

    def end(self, node: Node) -> int:
        return self.of(node.end_lineno or 0, node.end_col_offset or 0)


def _outside(old: str, tree: ast.Module, new: str, applied: tuple[Finding, ...]) -> Iterator[str]:
    """Every stretch of text outside edited statements stands in the output, in order."""
    offsets = _Offsets(old)
    own = sorted(_own_spans(tree, offsets))
    holes = set(_import_holes(old, tree, offsets))
    for finding in applied:
        place = offsets.starts[finding.line - 1] + finding.column - 1
        index = bisect_right(own, (place, len(old))) - 1
        if index < 0 or not own[index][0] <= place < own[index][1]:
            yield f"line {finding.line}: {finding.code} lies in no statement"
        else:
            holes.add(own[index])
    rest, position = _without_inserted(new), 0
    for fixed in _stretches(old, sorted(holes)):
        text = _without_inserted(fixed)
        found = rest.find(text, position)
        if found < 0 or (position == 0 and fixed == old[: len(fixed)] and found != 0):
            yield f"this text is gone: {text[:200]!r}"
            return
        position = found + len(text)
    last = _without_inserted(list(_stretches(old, sorted(holes)))[-1])
    if not rest.endswith(last):
        yield f"the end changed: {rest[-80:]!r}"


def _shape(tree: ast.Module) -> Counter[str]:
    """How many statements of each kind there are, but imports of torch and ``pass``."""
    return Counter(
        type(node).__name__
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt)
        and not isinstance(node, ast.Pass)
        and not (isinstance(node, (ast.Import, ast.ImportFrom)) and "torch" in ast.unparse(node))
    )


def _stretches(text: str, holes: list[Span]) -> Iterator[str]:
    position = 0
    for start, end in holes:
        if start >= position:
            yield text[position:start]
        position = max(position, end)
    yield text[position:]


def _without_inserted(text: str) -> str:
    kept = (line for line in _LINE.findall(text) if not _INSERTED_LINE.fullmatch(line))
    return _INSERTED_BEHIND.sub("", "".join(kept)).rstrip("\r\n")


def _own_spans(tree: ast.Module, offsets: _Offsets) -> Iterator[Span]:
    """Simple statements, and compound ones up to the first statement of their body."""
    for node in ast.walk(tree):
        if isinstance(node, ast.match_case):
            yield offsets.start(node.pattern), _first(node.body, offsets)
        elif isinstance(node, (ast.stmt, ast.excepthandler)):
            start = offsets.start(node)
            for decorator in getattr(node, "decorator_list", []):
                start = min(start, offsets.start(decorator) - 1)
            if isinstance(node, ast.Match):
                yield start, offsets.start(node.cases[0].pattern)
            elif hasattr(node, "body"):
                yield start, _first(node.body, offsets)
            else:
                yield start, offsets.end(node)


def _first(body: list[ast.stmt], offsets: _Offsets) -> int:
    decorators: list[ast.expr] = getattr(body[0], "decorator_list", [])
    return offsets.start(decorators[0]) - 1 if decorators else offsets.start(body[0])


def _import_holes(text: str, tree: ast.Module, offsets: _Offsets) -> Iterator[Span]:
    """Imports of torch may go when the edits made them unused, with the line they have alone."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            start, end = offsets.start(node), offsets.end(node)
            if "torch" not in text[start:end]:
                continue
            line_start, line_end = (
                offsets.starts[node.lineno - 1],
                offsets.starts[node.end_lineno or 0],
            )
            behind = text[end:line_end].strip()
            alone = not text[line_start:start].strip() and (not behind or behind[0] == "#")
            yield (line_start, line_end) if alone else (start, end)


# --- names


def _npu_names(tree: ast.Module) -> set[str]:
    """Every ``torch.npu.…`` and ``torch_npu.…`` name that a file reads, imports or spells out."""
    aliases = _aliases(tree)
    names: set[str] = set()
    inner: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node not in inner:
            dotted = _resolve(node, aliases, inner)
            if dotted is not None:
                names.add(dotted)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
    return {name for name in names if _DOTTED.fullmatch(name)}


def _aliases(tree: ast.Module) -> dict[str, str]:
    """What imported names stand for, wherever they are imported."""
    aliases: dict[str, str] = {"torch": "torch", "torch_npu": "torch_npu"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    aliases[alias.asname] = alias.name
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return aliases


def _resolve(node: ast.expr, aliases: dict[str, str], inner: set[ast.AST]) -> str | None:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
        inner.add(node)
    if not isinstance(node, ast.Name) or node.id not in aliases:
        return None
    return ".".join((aliases[node.id], *reversed(parts)))

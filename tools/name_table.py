"""The page with the public names of torch.cuda and their counterparts in each torch_npu release.

It shows what the rewriter does: a small source that uses every name is rewritten for each release.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from page_parts import code, plain, table

from cuda2npu.engine import rewrite_source
from cuda2npu.model import Options
from cuda2npu.releases import RELEASES, torch_cuda_names


@dataclass
class Entry:
    """What became of a name of torch.cuda, by release."""

    name: str
    written: dict[str, list[str]] = field(default_factory=dict)
    """Counterparts, each with the releases it is written for."""
    advice: str = ""
    """What the newest release without a counterpart says."""


def entries(releases: Sequence[str] = RELEASES) -> list[Entry]:
    """Every public name of torch.cuda, sorted."""
    found = {name: Entry(name) for name in sorted(torch_cuda_names())}
    for release in releases:
        for name, written, message in _ask(list(found), "use({})", release):
            if written != name:
                found[name].written.setdefault(written, []).append(release)
            elif message:
                found[name].advice = message
    silent = [entry.name for entry in found.values() if not entry.written and not entry.advice]
    for name, _, message in _ask(silent, "use({}())", releases[-1]):  # reported only when called
        found[name].advice = message
    return list(found.values())


def _ask(names: list[str], use: str, release: str) -> Iterator[tuple[str, str, str]]:
    """Each name, what stands in its place after a rewrite, and what is said about it."""
    source = "\n".join(["import torch", *map(use.format, names)])
    result = rewrite_source(source, Options(torch_npu=release))
    messages = {finding.line - 2: finding.message for finding in result.remaining}
    uses = [line for line in ast.parse(result.text).body if isinstance(line, ast.Expr)]
    for index, (name, line) in enumerate(zip(names, uses, strict=True)):
        assert isinstance(line.value, ast.Call)
        yield name, ast.unparse(line.value.args[0]), messages.get(index, "")


def spans(some: Sequence[str], known: Sequence[str] = RELEASES) -> str:
    """Releases in words: ``all``, ``2.7.1, from 2.9.0``, ``up to 2.12.0``."""
    if list(some) == list(known):
        return "all"
    runs: list[list[str]] = []
    for release in some:
        index = known.index(release)
        if runs and runs[-1][-1] == known[index - 1]:
            runs[-1].append(release)
        else:
            runs.append([release])
    return ", ".join(_span(run, known) for run in runs)


def _span(run: list[str], known: Sequence[str]) -> str:
    if len(run) == 1:
        return run[0]
    if run[-1] == known[-1]:
        return f"from {run[0]}"
    return f"up to {run[-1]}" if run[0] == known[0] else f"{run[0]} to {run[-1]}"


_INTRODUCTION = """\
# torch.cuda names

What `cuda2npu rewrite` writes for each public name of `torch.cuda` (torch 2.13), by the torch_npu
release that is written for. `torch.npu.X` and `torch_npu.npu.X` are the same object. The known
releases are {releases}; each stands for its newest wheel. An older post-release may lack a name
that was added later.

`--torch-npu RELEASE`, or `torch-npu = "RELEASE"` in the settings, chooses the release. In releases
that lack a name it is reported and stays as it is.
"""


def name_page() -> str:
    """The page in Markdown."""
    found = entries()
    parts = [_INTRODUCTION.format(releases=", ".join(RELEASES))]
    for module in sorted({_module(entry.name) for entry in found if entry.written}):
        rows = [
            [code(entry.name.removeprefix(f"{module}.")), code(new), spans(releases)]
            for entry in found
            if _module(entry.name) == module
            for new, releases in entry.written.items()
        ]
        parts += [f"## {module}\n", table(["name", "on the NPU", "torch_npu"], rows)]
    missing = [[code(e.name), plain(_short(e))] for e in found if not e.written]
    parts += ["## Without a counterpart\n", "In no known release. What to do instead:\n"]
    parts.append(table(["name", "advice"], missing))
    return "\n".join(parts)


def _module(name: str) -> str:
    return name.rpartition(".")[0]


def _short(entry: Entry) -> str:
    return entry.advice.removeprefix(f"torch.npu has no counterpart for {entry.name}: ")

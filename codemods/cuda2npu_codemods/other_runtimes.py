"""Devices that go to a package with devices of its own: directly, or as entries of a table."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import libcst as cst

from cuda2npu.rule import OTHER_RUNTIMES, FixLevel, Report, Site, leave, report, rule
from cuda2npu_codemods.expressions import last_name, outward, string, terminal
from cuda2npu_codemods.kernels import imported
from cuda2npu_codemods.libraries import ADVICE
from cuda2npu_codemods.words import DEVICE

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_ANYBODYS = frozenset(
    "args arguments cfg conf config data kwargs options opts params parameters settings".split()
)
"""Names that mean a table of their own in each function."""


class _Table(NamedTuple):
    """A variable or attribute that holds a table."""

    name: str
    function: _Function | None
    """Where it stands."""

    def is_same(self, other: _Table) -> bool:
        """Whether both may hold one table; a telling name does in the whole file."""
        near = self.function is other.function or self.name not in _ANYBODYS
        return self.name == other.name and near


def runtime_of(site: Site, table: cst.CSTNode | None) -> str | None:
    """The package that takes the entries of a dict display: ``ctranslate2.Translator(**args)``."""
    taken = _taken(site.file.tree) if isinstance(table, cst.Dict) else ()
    if not taken or not isinstance(table, cst.Dict):
        return None
    function = next((n for n in site.enclosing if isinstance(n, _Function)), None)
    held = [_Table(name, function) for name in _holders(table, site) if name]
    held += [to for table in held for source, to in _moves(site.file.tree) if source.is_same(table)]
    return next((who for table in held for other, who in taken if table.is_same(other)), None)


def _holders(table: cst.Dict, site: Site) -> Iterator[str]:
    """What a display is assigned to, or added to by ``update``."""
    _, holder = outward(table, site)
    if isinstance(holder, cst.Assign):
        yield from filter(None, (terminal(target.target) for target in holder.targets))
    elif isinstance(holder, (cst.AnnAssign, cst.AugAssign)):
        yield terminal(holder.target) or ""
    elif isinstance(holder, cst.Arg):
        call = site.parent(holder)
        func = call.func if isinstance(call, cst.Call) else None
        if isinstance(func, cst.Attribute) and func.attr.value == "update":
            yield terminal(func.value) or ""


@lru_cache(maxsize=4)
def _taken(tree: ast.Module) -> tuple[tuple[_Table, str], ...]:
    """The tables that calls of other runtimes take, as ``**table`` or as an argument."""
    brought = imported(tree)
    heads = {local: name.partition(".")[0] for local, name in brought.items()}
    if not OTHER_RUNTIMES & {*heads.values()}:
        return ()
    found = []
    for node, function in _inner(tree):
        if isinstance(node, ast.Call) and heads.get(_head(node.func), "") in OTHER_RUNTIMES:
            for value in (*node.args, *(keyword.value for keyword in node.keywords)):
                name = last_name(value)
                if name is not None:
                    found.append((_Table(name, function), heads[_head(node.func)]))
    return tuple(found)


@lru_cache(maxsize=4)
def _moves(tree: ast.Module) -> tuple[tuple[_Table, _Table], ...]:
    """Tables whose entries go to another: ``a.update(b)``, ``for k, v in b.items(): f(a, k, v)``.

    What a loop's body names may be the other one; only those that are taken matter.
    """
    found = []
    for node, function in _inner(tree):
        if isinstance(node, ast.For):
            source = _owner(node.iter, "items")
            targets = [n for part in node.body for n in ast.walk(part) if isinstance(n, _NAMED)]
        elif isinstance(node, ast.Call) and node.args:
            source, owner = node.args[0], _owner(node, "update")
            targets = [owner] if isinstance(owner, _NAMED) else []
        else:
            continue
        start = _Table(last_name(source) or "", function)
        found += [(start, _Table(last_name(target) or "", function)) for target in targets]
    return tuple(found)


_NAMED = (ast.Name, ast.Attribute)


def _owner(node: ast.expr, method: str) -> ast.expr | None:
    """What a method is called of."""
    func = node.func if isinstance(node, ast.Call) else None
    return func.value if isinstance(func, ast.Attribute) and func.attr == method else None


def _inner(
    node: ast.AST, function: _Function | None = None
) -> Iterator[tuple[ast.AST, _Function | None]]:
    """Every node with the innermost function around it."""
    inside = node if isinstance(node, _Function) else function
    for child in ast.iter_child_nodes(node):
        yield child, inside
        yield from _inner(child, inside)


def _head(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return getattr(node, "id", "")


_TOLD_ELSEWHERE = ("onnxruntime", "onnx")


@rule(
    "NPU623",
    "device-of-another-runtime",
    on=cst.SimpleString,
    words=("cuda",),
    fix=FixLevel.NONE,
    why="this CUDA device goes to a package that is not torch and has no NPU: give it the CPU, or "
    "do this part with torch",
    examples=(
        report('import torch, ctranslate2\ng = ctranslate2.Generator(path, device="cuda")'),
        report(
            'import torch, ctranslate2\ng = ctranslate2.Translator(path, "cuda" if gpu else "cpu")'
        ),
        report(
            "import torch\nfrom faster_whisper import WhisperModel\n"
            'm = WhisperModel("base", device="cuda:0")'
        ),
        report(
            "import torch, ctranslate2\ndef load(path, gpu):\n"
            '    args = {"device": "cuda" if gpu else "cpu"}\n'
            "    return ctranslate2.Translator(path, **args)"
        ),
        report(
            "import torch\nclass A:\n    def __init__(self, path, ct2_args):\n"
            "        import ctranslate2\n"
            "        self.translator = ctranslate2.Translator(path, **ct2_args)\n"
            "    def settings(ct2_args, opt):\n"
            '        defaults = {"device": "cuda" if opt.cuda else "cpu"}\n'
            "        for name, value in defaults.items(): merge(ct2_args, name, value)"
        ),
        report(
            'import torch, spacy\nkw = {"device": "cuda"}\nm = spacy.load("en", model_kwargs=kw)'
        ),
        leave(
            "import torch, ctranslate2\ndef load(**args): return ctranslate2.Translator(**args)\n"
            'def move(x):\n    args = {"device": "cuda"}\n    return x.to(**args)'
        ),
        leave('import torch, ctranslate2\nx = torch.ones(2, device="cuda")'),
        leave('import torch, json\nargs = {"device": "cuda"}\njson.dumps(args)'),
        leave('import torch, ctranslate2\ng = ctranslate2.Generator(path, device="cpu")'),
    ),
)
def device_of_another_runtime(node: cst.SimpleString, site: Site) -> Report | None:
    if not DEVICE.fullmatch(string(node) or ""):
        return None
    _, holder = outward(node, site)
    if isinstance(holder, cst.DictElement):
        runtime = runtime_of(site, site.parent(holder))
    elif isinstance(holder, cst.Arg):
        call = site.parent(holder)
        name = site.name(call.func) if isinstance(call, cst.Call) else None
        runtime = (name or "").partition(".")[0]
    else:
        return None
    if runtime not in OTHER_RUNTIMES or runtime in _TOLD_ELSEWHERE:
        return None
    advice = ADVICE.get(runtime, "give it the CPU, or do this part with torch")
    return Report(f"this device goes to {runtime}, which is not torch and has no NPU: {advice}")

"""Tables that are looked up by device: their CUDA entries stay CUDA's, and are reported."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import libcst as cst

from cuda2npu.rule import FixLevel, Report, Site, leave, report, rule
from cuda2npu_codemods.arguments import Use
from cuda2npu_codemods.expressions import (
    denotes,
    is_device,
    is_table_by_device,
    last_name,
    string,
    terminal,
)
from cuda2npu_codemods.uses import use_of
from cuda2npu_codemods.words import HOST_DEVICES, OTHER_ACCELERATORS, names_device


@rule(
    "NPU115",
    "lookup-by-device",
    on=cst.Subscript,
    words=("cuda",),
    fix=FixLevel.NONE,
    why="a table is looked up by device with its CUDA entry as the fallback; it was left, and "
    "the NPU takes the fallback: add an entry for npu if it needs its own",
    quiet=True,
    examples=(
        report('t = TABLE.get(x.device.type, TABLE["cuda"])'),
        leave('t = TABLE["cuda"]'),
    ),
)
def lookup_by_device(node: cst.Subscript, site: Site) -> Report | None:
    index = node.slice[0].slice
    if not isinstance(index, cst.Index) or string(index.value) != "cuda":
        return None
    arg = site.parent(node)
    call = site.parent(arg) if isinstance(arg, cst.Arg) else None
    if not isinstance(call, cst.Call) or terminal(call.func) != "get" or len(call.args) != 2:
        return None
    return Report() if is_device(site, call.args[0].value) else None


@rule(
    "NPU124",
    "built-device-name-left",
    on=(cst.FormattedString, cst.BinaryOperation),
    words=("cuda:",),
    fix=FixLevel.NONE,
    why="a built name of a CUDA device is a key, or goes into a collection of which the file does "
    "not show what else is in it; it was left: if names of the NPU's devices are looked up there, "
    "or it is handed to torch, write npu: here and in what is compared with it",
    examples=(
        report('memory = {}\nfor i in range(n): memory[f"cuda:{i}"] = 0'),
        report('names = []\nfor i in range(n): names.append("cuda:" + str(i))'),
        leave('memory = {f"cuda:{i}": 0 for i in range(n)}\nmemory["cuda:0"] += 1'),
        leave('devices = []\nfor i in range(n): devices.append(f"cuda:{i}")'),
        leave('print(f"cuda:{i}")'),
        leave('torch.load(f, map_location={f"cuda:{i}": "cpu"})'),
        leave('import numpy as np\nlog.info("cuda:" + str(i))'),
    ),
)
def built_device_name_left(
    node: cst.FormattedString | cst.BinaryOperation, site: Site
) -> Report | None:
    if not re.fullmatch(r"""f['"]cuda:\{[^{}]*\}['"]|['"]cuda:['"] \+ .*""", site.code(node)):
        return None
    holder = site.parent(node)
    if isinstance(holder, cst.Arg):
        call = site.parent(holder)
        collects = isinstance(call, cst.Call) and terminal(call.func) in ("append", "add")
        return Report() if collects and use_of(site, node) is Use.TEXT else None
    is_key = isinstance(holder, cst.Index) and use_of(site, node) is Use.KEY
    return Report() if is_key else None


_CUDA_VALUE = re.compile(r"\bcuda\b|['\"](nccl|cuda(:\d+)?)['\"]")


@rule(
    "NPU116",
    "table-by-device",
    on=(cst.DictElement, cst.Arg),
    words=("cuda",),
    fix=FixLevel.NONE,
    why="a table by device has an entry for cuda and none for npu; it was left: add an entry "
    "for npu, or the lookup fails there",
    examples=(
        report('SEED = {"cuda": torch.cuda.manual_seed, "cpu": torch.manual_seed}'),
        report('BACKENDS = {"cuda": "nccl", "cpu": "gloo"}'),
        report('SIZES = {"cuda": 64, "cpu": 8}\nn = SIZES[x.device.type]'),
        report('n = {"cuda": 64, "cpu": 8}.get(str(device), 4)'),
        report("n = dict(cuda=64, cpu=8)[x.device.type]"),
        report("class A:\n    n = dict(cuda=64, cpu=8)\n    def f(s, x): s.n[x.device.type]"),
        leave('SEED = {"cuda": torch.cuda.manual_seed, "npu": torch.npu.manual_seed}'),
        leave('state = {"cuda": torch.cuda.get_rng_state(), "step": 1}'),
        leave('s = {"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all()}'),
        leave('SIZES = {"cuda": 64, "cpu": 8}\nn = SIZES[impl]'),
        leave('def f(cpu, cuda): return {"cpu": cpu, "cuda": cuda}'),
        report('N = {"cuda": 64, "cpu": 8, "default": 8}\nn = N[x.device.type]'),
        leave("n = dict(cuda=64, npu=32, cpu=8)[x.device.type]"),
        leave("n = dict(cuda=True, x=x.device)[x.device.type]"),
        leave(
            'SIZES = {"cuda": 64, "cpu": 8}\ndef f(device_type):\n'
            '    if device_type == "npu": device_type = "cuda"\n    return SIZES[device_type]'
        ),
        leave(
            'MAKE = {"cuda": torch.cuda.Stream, "cpu": None}\ndef f(x):\n'
            '    device_type = x.device.type.replace("npu", "cuda")\n    return MAKE[device_type]'
        ),
        report(
            'SIZES = {"cuda": 64, "cpu": 8}\ndef f(device_type):\n'
            '    if device_type == "npu": device_type = "cuda"\n    return SIZES[device_type]\n'
            "def g(device_type): return SIZES[device_type]"
        ),
    ),
)
def table_by_device(node: cst.DictElement | cst.Arg, site: Site) -> Report | None:
    table = _table(node, site)
    if table is None:
        return None
    value, at = node.value, node.key if isinstance(node, cst.DictElement) else node
    found = _lookups(table, site)
    lookups = [has_default for has_default in found if has_default is not None]
    if found and not lookups:
        return None
    if lookups and (all(lookups) or re.search(r"""['"]default['"]""", site.code(table))):
        return Report(_DEFAULT, quiet=True, at=at)
    is_entry = isinstance(node, cst.DictElement) and not isinstance(value, cst.Name)
    says_cuda = is_entry and _CUDA_VALUE.search(site.code(value))
    return Report(at=at) if lookups or says_cuda else None


_DEFAULT = (
    "a table by device has an entry for cuda and none for npu; it was left, and the NPU takes the "
    "default of the lookup: add an entry for npu if it needs its own"
)


def _table(node: cst.DictElement | cst.Arg, site: Site) -> cst.BaseExpression | None:
    """The table whose entry for CUDA the node is, when it knows other devices but no NPU."""
    table = site.parent(node)
    if isinstance(node, cst.DictElement):
        if string(node.key) != "cuda" or not is_table_by_device(table):
            return None
        assert isinstance(table, cst.Dict)
        keys = {string(e.key) for e in table.elements if isinstance(e, cst.DictElement)}
        return None if "npu" in keys else table
    if node.keyword is None or node.keyword.value != "cuda" or not isinstance(table, cst.Call):
        return None
    keywords = {arg.keyword.value for arg in table.args if arg.keyword is not None}
    known = terminal(table.func) == "dict" and keywords & (HOST_DEVICES | OTHER_ACCELERATORS)
    return table if known and "npu" not in keywords else None


def _lookups(table: cst.BaseExpression, site: Site) -> list[bool | None]:
    """Where the file looks the table up by a device: whether each lookup has a default.

    None for a lookup by a variable that is never the NPU's device.
    """
    holder = site.parent(table)
    if isinstance(holder, cst.Subscript):
        index = holder.slice[0].slice
        return [False] if isinstance(index, cst.Index) and is_device(site, index.value) else []
    if isinstance(holder, cst.Attribute):
        call = site.parent(holder)
        if not isinstance(call, cst.Call) or holder.attr.value != "get" or not call.args:
            return []
        return [len(call.args) > 1] if is_device(site, call.args[0].value) else []
    if isinstance(holder, cst.Assign):
        name = terminal(holder.targets[0].target)
    else:
        name = terminal(holder.target) if isinstance(holder, cst.AnnAssign) else None
    return list(_lookups_of(name, site.file.tree)) if name is not None else []


def _lookups_of(name: str, tree: ast.Module) -> Iterator[bool | None]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript):
            if last_name(node.value) == name and denotes(node.slice, names_device):
                yield None if _is_mapped(node.slice, tree) else False
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            looks_up = node.func.attr == "get" and last_name(node.func.value) == name
            falls_back = "cuda" in ast.unparse(node.args[-1])  # NPU115
            if looks_up and not falls_back and denotes(node.args[0], names_device):
                is_mapped = _is_mapped(node.args[0], tree)
                yield None if is_mapped else len(node.args) > 1


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _is_mapped(index: ast.expr, tree: ast.Module) -> bool:
    """Whether a variable was given another device's name, in this function, if it was npu."""
    around = [f for f in ast.walk(tree) if isinstance(f, _FUNCTIONS) and _holds(f, index)]
    body = around[-1] if around else tree
    return isinstance(index, ast.Name) and any(
        _maps(node, index.id)
        for node in ast.walk(body)
        if getattr(node, "lineno", 0) < index.lineno
    )


def _holds(outer: ast.stmt, node: ast.expr) -> bool:
    return outer.lineno <= node.lineno <= (outer.end_lineno or 0)


def _maps(node: ast.AST, name: str) -> bool:
    """``if name == "npu": name = …``, ``name = … if … == "npu" else …``, ``replace("npu", …)``."""
    if isinstance(node, ast.If):
        return _says_npu(node.test) and any(_assigns(inner, name) for inner in node.body)
    if not isinstance(node, ast.Assign) or not _assigns(node, name):
        return False
    return any(
        (isinstance(part, ast.IfExp) and _says_npu(part.test))
        or (isinstance(part, ast.Call) and last_name(part.func) == "replace" and _says_npu(part))
        for part in ast.walk(node.value)
    )


def _assigns(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.Assign) and name in map(last_name, node.targets)


def _says_npu(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Constant) and part.value == "npu" for part in ast.walk(node))


@rule(
    "NPU147",
    "entry-of-table-by-device",
    on=cst.AssignTarget,
    words=("cuda",),
    fix=FixLevel.NONE,
    why="an entry for cuda is stored in a table by device, and none for npu; it was left: store "
    "one for npu where the type of a device is looked up there, or the lookup fails on the NPU",
    examples=(
        report('n = {}\nn["cuda"] = 0\ndef f(x): n[x.device.type] += 1'),
        report('class A:\n    def f(self):\n        self.n["cpu"] = 0\n        self.n["cuda"] = 0'),
        report('n = {}\nn["cuda"] = 0\ndef f(x): return n.get(x.device.type, 0)'),
        leave('n = {}\nn["cuda"] = 0\nn["npu"] = 0\ndef f(x): n[x.device.type] += 1'),
        leave('n = {"npu": 0}\nn["cuda"] = 0\ndef f(x): n[x.device.type] += 1'),
        leave('state = {"cpu": 0}\nstate["cpu"] = 1\nstate["cuda"] = torch.cuda.get_rng_state()'),
        leave('class A:\n    def f(self): self.options["cuda"] = True'),
        leave('n = {}\nn["cuda"] = 0\ndef f(x): n[x] += 1'),
        leave(
            'n = {}\nn["cuda"] = 0\ndef f(device):\n    if device == "npu": device = "cuda"\n'
            "    n[device] += 1"
        ),
    ),
)
def entry_of_table_by_device(node: cst.AssignTarget, site: Site) -> Report | None:
    entry = node.target
    if not isinstance(entry, cst.Subscript) or isinstance(entry.value, cst.Subscript):
        return None
    index, name = entry.slice[0].slice, terminal(entry.value)
    if not isinstance(index, cst.Index) or string(index.value) != "cuda" or name is None:
        return None
    stored, tree = _stored(name, site.file.tree), site.file.tree
    first = next(each for key, each in stored if key == "cuda")
    if not any(inner is first for inner in ast.walk(site.statement)):
        return None
    keys = {key for key, _ in stored}
    if "npu" in keys or "npu" in _displayed(name, tree):
        return None
    # A table that other files see is known by its keys, another one by a lookup.
    is_seen = isinstance(entry.value, cst.Attribute) and keys & HOST_DEVICES
    found = list(_lookups_of(name, tree))
    lookups = [has_default for has_default in found if has_default is not None]
    if found and not lookups:
        return None
    if lookups and all(lookups):
        return Report(_DEFAULT, quiet=True, at=entry)
    return Report(at=entry) if lookups or is_seen else None


def _stored(name: str, tree: ast.Module) -> list[tuple[str, ast.Subscript]]:
    """The keys that the file stores in a table, in order."""
    found = [
        (str(node.slice.value), node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Store)
        and last_name(node.value) == name
        and isinstance(node.slice, ast.Constant)
    ]
    return sorted(found, key=lambda item: (item[1].lineno, item[1].col_offset))


def _displayed(name: str, tree: ast.Module) -> set[object]:
    """The keys of the displays that a table starts with."""
    return {
        getattr(key, "value", None)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Dict)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if last_name(target) == name
        for key in node.value.keys
    }

"""Constants, options and fields whose value other files of the project read.

A value moves together with its readers: ``PROTOCOL = "nccl"`` in one file is a backend because
another one starts a process group with it, and ``if PROTOCOL == "nccl"`` in a third moves, too.
Where somebody else reads it as well, a package with devices of its own or a command that is
run, nothing of it moves, and a finding names that reader.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import libcst as cst

from cuda2npu.rule import BACKEND, DEVICE, FOREIGN, FixLevel, Report, Site, leave, report, rule
from cuda2npu_codemods.expressions import defines_option, string
from cuda2npu_codemods.words import DEVICE as DEVICE_NAME


def kinds(site: Site, keys: Iterator[str]) -> frozenset[str]:
    """What the project does with the values of these keys."""
    sinks = site.file.project.sinks
    return frozenset().union(*(sinks.get(key, frozenset()) for key in keys))


def is_device_elsewhere(site: Site, node: cst.CSTNode) -> bool:
    """Whether the project hands the value of this name or attribute to torch as a device."""
    return DEVICE in kinds(site, keys_of(site, node))


def is_backend_elsewhere(site: Site, node: cst.CSTNode) -> bool:
    """Whether the project starts a process group with the value of this name or attribute."""
    return BACKEND in kinds(site, keys_of(site, node))


def is_shared(site: Site, node: cst.CSTNode) -> bool:
    """Whether somebody who is not torch reads the value, too."""
    return FOREIGN in kinds(site, keys_of(site, node))


def keys_of(site: Site, node: cst.CSTNode) -> Iterator[str]:
    """The keys of a name or attribute, assigned to or read."""
    project = site.file.project
    if not project.sinks:
        return
    if isinstance(node, cst.Name):
        if _is_field(site, node):
            yield from attribute_keys(site, node.value)
        elif not site.enclosing or site.meaning(node.value) is not None:
            key = project.constant(node.value)
            if key is not None:
                yield key
    elif isinstance(node, cst.Attribute):
        key = project.constant(site.code(node)) if site.name(node) is not None else None
        if key is not None:
            yield key
        else:
            yield from attribute_keys(site, node.attr.value)
    elif isinstance(node, cst.Subscript):
        element = node.slice[0].slice
        name = string(element.value) if isinstance(element, cst.Index) else None
        if name is not None:
            yield from attribute_keys(site, name)


def attribute_keys(site: Site, name: str) -> Iterator[str]:
    """The keys of a field, an option or an entry of a dictionary."""
    name = name.lstrip("-").replace("-", "_")
    yield name
    yield f"{site.file.project.here}:.{name}"


def option_keys(site: Site, call: cst.Call) -> Iterator[str]:
    """The keys of a command-line option: its ``dest``, else its long flag."""
    dest = site.argument(call, "dest")
    flags = [string(dest.value)] if dest else [string(a.value) for a in call.args if not a.keyword]
    for flag in flags:
        if flag and (dest or flag.startswith("--")):
            yield from attribute_keys(site, flag)


def _is_field(site: Site, node: cst.Name) -> bool:
    """Whether a name is assigned in the body of a class."""
    parent = site.parent(node)
    assigned = isinstance(parent, (cst.AssignTarget, cst.AnnAssign))
    return assigned and bool(site.enclosing) and isinstance(site.enclosing[0], ast.ClassDef)


def _readers(node: cst.CSTNode, site: Site) -> tuple[str, ...]:
    """Who else reads the value that a literal is given to or compared with."""
    for ancestor in site.ancestors(node):
        keys: list[str] = []
        if isinstance(ancestor, cst.Assign):
            keys = [key for t in ancestor.targets for key in keys_of(site, t.target)]
        elif isinstance(ancestor, (cst.AnnAssign, cst.NamedExpr)):
            keys = [*keys_of(site, ancestor.target)]
        elif isinstance(ancestor, cst.Comparison):
            sides = [ancestor.left, *(t.comparator for t in ancestor.comparisons)]
            keys = [key for side in sides for key in keys_of(site, side)]
        elif isinstance(ancestor, cst.DictElement):
            keys = [*attribute_keys(site, string(ancestor.key) or "")]
        elif isinstance(ancestor, cst.Call) and defines_option(ancestor):
            keys = [*option_keys(site, ancestor)]
        found = [reader for key in keys for reader in site.file.project.readers.get(key, ())]
        if found:
            return tuple(found)
    return ()


def _report(node: cst.SimpleString, site: Site, value: str) -> Report | None:
    readers = _readers(node, site) if site.file.project.readers else ()
    if not readers:
        return None
    return Report(
        f"this {value} also goes to {readers[0]}, which is not torch and knows no NPU name, so "
        "that it was left together with what is compared with it: give torch a value of its own"
    )


@rule(
    "NPU122",
    "device-shared-with-others",
    on=cst.SimpleString,
    words=("cuda",),
    fix=FixLevel.NONE,
    why="this device also goes to something other than torch, in this or another file of the "
    "project: give torch a value of its own",
    examples=(
        report(
            'WHERE = "cuda"',
            beside={
                "asr.py": "import ctranslate2\nfrom example import WHERE\n"
                "m = ctranslate2.Translator(path, WHERE)"
            },
        ),
        report(
            'class Config:\n    device: str = "cuda"',
            beside={
                "asr.py": "import ctranslate2\nfrom example import Config\n"
                "def load(cfg: Config): return ctranslate2.Translator(path, cfg.device)"
            },
        ),
        report(
            'from settings import WHERE\nif WHERE == "cuda": pass',
            beside={
                "settings.py": 'WHERE = "cuda"',
                "run.py": "import subprocess\n"
                "from settings import WHERE\nsubprocess.run(['serve', f'--on={WHERE}'])",
            },
        ),
        leave(
            'WHERE = "cuda"',
            beside={
                "asr.py": "import ctranslate2\nfrom other import WHERE\n"
                "m = ctranslate2.Translator(path, WHERE)"
            },
        ),
        leave('DEVICE = "cuda"\nx = x.to(DEVICE)'),
    ),
)
def device_shared_with_others(node: cst.SimpleString, site: Site) -> Report | None:
    if not DEVICE_NAME.fullmatch(string(node) or ""):
        return None
    return _report(node, site, "device")


@rule(
    "NPU311",
    "backend-shared-with-others",
    on=cst.SimpleString,
    words=("nccl", "NCCL"),
    fix=FixLevel.NONE,
    why="this backend also goes to something other than torch, in this or another file of the "
    "project: give torch a value of its own",
    examples=(
        report(
            'BACKEND = "nccl"\ninit_process_group(BACKEND)',
            beside={
                "launch.py": "import os\nimport example\n"
                "os.system('run --backend ' + example.BACKEND)"
            },
        ),
        leave('BACKEND = "nccl"\ninit_process_group(BACKEND)'),
    ),
)
def backend_shared_with_others(node: cst.SimpleString, site: Site) -> Report | None:
    if (string(node) or "") not in ("nccl", "NCCL"):
        return None
    return _report(node, site, "backend")

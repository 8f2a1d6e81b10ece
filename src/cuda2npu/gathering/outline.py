"""What one file says that the other files of its project want to know. Pure functions.

Only files that :mod:`cuda2npu.gathering.glance` picks are read in outline. A name is told as it
is written, ``CONSTANT`` or ``.attribute``, with what the file's imports make of it; what it means
in the project is found out when all outlines are put together, in :mod:`cuda2npu.gathering.merge`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from cuda2npu.gathering.methods import OwnMethods, own_methods
from cuda2npu.gathering.nodes import Nodes
from cuda2npu.gathering.options import defines_option, fields, makes_field_parser, options
from cuda2npu.knowledge import BACKEND, DEVICE, FOREIGN, SINKS
from cuda2npu.parsing import parse
from cuda2npu.rule import OTHER_RUNTIMES
from cuda2npu.scopes import (
    OPAQUE,
    Scope,
    attribute_chain,
    bind_import,
    bind_import_from,
    bind_target,
    parameters,
)
from cuda2npu.words import names_backend, names_device

_COMMANDS = ("subprocess.", "os.system", "os.popen", "os.exec", "os.spawn")
_TRAINERS = frozenset("Trainer Fabric LightningLite".split())
"""Lightning's classes, whose accelerators have names of their own."""
_TEXT_METHODS = frozenset("lower upper strip".split())
_WRAPPERS = frozenset("str device".split())
_READERS = frozenset("get getattr pop".split())
_TORCH_ONLY = frozenset("device load Generator autocast Backend cuda".split())
"""Callees with a common name, which are torch's only where an import says so."""


class Reading(NamedTuple):
    """A place where a value is handed to somebody who decides what it is."""

    name: str
    """``CONSTANT`` or ``.attribute``."""
    dotted: str
    """The imported name that it is, as ``pkg.constants.BACKEND`` or ``.constants.BACKEND``."""
    kind: str
    reader: str
    line: int


class Definition(NamedTuple):
    """A constant, field, option or key with a value that is a string."""

    name: str
    is_device: bool
    """Whether the value can be a device or a backend of CUDA's or the NPU's program."""


class Outline(NamedTuple):
    """Everything that one file says."""

    imports: tuple[tuple[str, str], ...] = ()
    """Local names with the dotted names that they mean; ``*`` for a star import."""
    classes: tuple[OwnMethods, ...] = ()
    constants: frozenset[str] = frozenset()
    """The names bound at module level."""
    definitions: tuple[Definition, ...] = ()
    readings: tuple[Reading, ...] = ()
    exported: frozenset[str] | None = None
    """What ``__all__`` lists; None without it, or where it is more than a list."""
    options: frozenset[str] = frozenset()
    """The command-line options that are defined, with ``_`` for ``-``."""
    fields: frozenset[str] = frozenset()
    """The fields of dataclasses, which some parsers make options of."""
    parses_fields: bool = False
    """Whether such a parser is made."""
    files: frozenset[str] = frozenset()
    """The configuration files that strings name, from the right."""


def outline(text: str) -> Outline:
    """Outline one file. Raises SourceError when the text does not parse."""
    tree = parse(text)
    nodes = Nodes(tree)
    scope = _names(tree, nodes)
    calls, classes = nodes.of(ast.Call), nodes.of(ast.ClassDef)
    return Outline(
        imports=tuple(_imports(nodes)),
        classes=tuple(map(own_methods, classes)),
        constants=frozenset(scope.names),
        definitions=tuple(_definitions(tree, nodes)),
        readings=tuple(_readings(nodes, scope)),
        exported=_exported(tree),
        options=frozenset(name for call in calls for name in options(call)),
        fields=frozenset(name for each in classes for name in fields(each)),
        parses_fields=any(map(makes_field_parser, calls)),
        files=frozenset(_files(nodes)),
    )


def _names(tree: ast.Module, nodes: Nodes) -> Scope:
    """The names of the module, and what imports anywhere in the file bring."""
    scope = Scope("module", tree, None)
    for plain in nodes.of(ast.Import):
        bind_import(scope, plain)
    for named in nodes.of(ast.ImportFrom):
        bind_import_from(scope, named)
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                bind_target(scope, target, node.value)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            scope.bind(node.name, OPAQUE)
    return scope


def _imports(nodes: Nodes) -> Iterator[tuple[str, str]]:
    for plain in nodes.of(ast.Import):
        for alias in plain.names:
            yield alias.asname or alias.name, alias.name
    for node in nodes.of(ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            if alias.name == "*":
                yield "*", module
            else:
                dot = "" if module.endswith(".") else "."
                yield alias.asname or alias.name, f"{module}{dot}{alias.name}"


def _exported(tree: ast.Module) -> frozenset[str] | None:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            items = node.value.elts if isinstance(node.value, (ast.List, ast.Tuple)) else [node]
            names = [item.value for item in items if isinstance(item, ast.Constant)]
            if len(names) == len(items):
                return frozenset(str(name) for name in names)
    return None


def _files(nodes: Nodes) -> Iterator[str]:
    for node in nodes.of(ast.Constant):
        if isinstance(node.value, str) and (named := _CONFIG_FILE.search(node.value)):
            yield named[1]


_CONFIG_FILE = re.compile(r"(?:^|/)((?:\w[\w.-]*/)*\w[\w.-]*\.(?:ya?ml|json|toml))$")


def _definitions(tree: ast.Module, nodes: Nodes) -> Iterator[Definition]:
    for statement in tree.body:
        yield from _assigned(statement, "")
    for owner in nodes.of(ast.ClassDef):
        yield from (each for member in owner.body for each in _assigned(member, "."))
    for node in nodes.of(ast.Assign):
        if isinstance(node.targets[0], ast.Attribute):
            yield from _values(f".{node.targets[0].attr}", node.value)
    for table in nodes.of(ast.Dict):
        for key, value in zip(table.keys, table.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield from _values(f".{key.value}", value)
    for call in nodes.of(ast.Call):
        yield from _option(call)


def _assigned(node: ast.stmt, prefix: str) -> Iterator[Definition]:
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        targets = [node.target]
    for target in targets:
        if isinstance(target, ast.Name) and isinstance(node, (ast.Assign, ast.AnnAssign)):
            yield from _values(prefix + target.id, node.value)


def _option(call: ast.Call) -> Iterator[Definition]:
    """``add_argument("--accelerator", default="cuda")``: an attribute of what is parsed."""
    if not defines_option(call):
        return
    flags = [a.value for a in call.args if isinstance(a, ast.Constant)]
    names = [f.lstrip("-") for f in flags if isinstance(f, str) and f.startswith("--")]
    names += [
        k.value.value
        for k in call.keywords
        if k.arg == "dest" and isinstance(k.value, ast.Constant) and isinstance(k.value.value, str)
    ]
    for keyword in call.keywords:
        if keyword.arg == "default" and names:
            yield from _values("." + names[-1].replace("-", "_"), keyword.value)


def _values(name: str, value: ast.expr | None) -> Iterator[Definition]:
    """One definition for each string that an expression may be."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        # One file for each kind of device, each with its name: no setting of the program.
        yield Definition(name, _is_device(value.value) and value.value not in _OTHERS)
    elif isinstance(value, (ast.Tuple, ast.List, ast.Set)) and not name.startswith("."):
        items = [getattr(item, "value", None) for item in value.elts]
        if items and all(isinstance(item, str) and item and _is_device(item) for item in items):
            yield Definition(name, True)
    elif isinstance(value, ast.IfExp):
        for part in (value.body, value.orelse):
            if isinstance(part, ast.Constant) and part.value in _OTHERS:
                yield Definition(name, True)
            else:
                yield from _values(name, part)
    elif isinstance(value, ast.Call):
        callee = (attribute_chain(value.func) or ("",))[-1]
        if callee in ("field", "Field", "Option", "Argument"):
            for argument in (
                *value.args[:1],
                *(k.value for k in value.keywords if k.arg == "default"),
            ):
                yield from _values(name, argument)
        elif callee in ("get", "getenv"):
            yield from (d for a in value.args[1:] for d in _values(name, a))


_OTHERS = frozenset("mps xpu hpu mlu musa xla".split())
_DEVICES = frozenset("cpu meta auto npu cuda gloo nccl hccl mpi ucc none".split()) | _OTHERS


def _is_device(value: str) -> bool:
    return not value or value.lower().partition(":")[0] in _DEVICES


def _readings(nodes: Nodes, scope: Scope) -> Iterator[Reading]:
    values = _Values(scope, nodes)
    for test in nodes.of(ast.Compare):
        yield from _tested(test, values)
    for node in nodes.of(ast.Call):
        callee = attribute_chain(node.func)
        last = callee[-1] if callee else getattr(node.func, "attr", "")
        meaning = (_meaning(node.func, scope) if callee and callee[0] in scope.names else "") or ""
        foreign = _foreign(meaning)
        if last in _TRAINERS and any(k.arg == "accelerator" for k in node.keywords):
            accelerator = next(k.value for k in node.keywords if k.arg == "accelerator")
            yield from values.read(accelerator, FOREIGN, f"{last}(accelerator=…)")
        for slot, argument in _slots(node):
            kind = SINKS.get(f"{last}/{slot}") or _by_keyword(slot)
            if foreign:
                for inner in ast.walk(argument):
                    yield from values.read(inner, FOREIGN, foreign)
            elif kind and (
                last not in _TORCH_ONLY or slot.endswith("=") or meaning.startswith("torch.")
            ):
                yield from values.read(argument, kind, meaning or last)


def _tested(node: ast.Compare, values: _Values) -> Iterator[Reading]:
    """``device not in KNOWN``: the constant lists devices."""
    if not isinstance(node.ops[0], (ast.In, ast.NotIn)):
        return
    chain = attribute_chain(_unwrapped(node.left)) or ()
    kind = _by_keyword(f"{''.join(chain[-1:])}=")
    if chain[-1:] == ("type",) and _by_keyword(f"{chain[-2:][0]}=") == DEVICE:
        kind = DEVICE
    if kind and isinstance(node.comparators[0], (ast.Name, ast.Attribute)):
        for reading in values.read(node.comparators[0], kind, "in"):
            if reading.dotted or not reading.name.startswith("."):
                yield reading


def _by_keyword(slot: str) -> str | None:
    """``f(…, device=x)``: what a keyword says by its name."""
    if not slot.endswith("="):
        return None
    if names_device(slot[:-1]):
        return DEVICE
    return BACKEND if names_backend(slot[:-1]) else None


def _foreign(meaning: str) -> str:
    """The package or command that a call goes to, when it is not torch's."""
    if meaning.startswith(_COMMANDS):
        return "a command"
    head = meaning.partition(".")[0]
    return head if head in OTHER_RUNTIMES else ""


def _slots(call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    for position, argument in enumerate(call.args):
        if isinstance(argument, ast.Starred):
            return
        yield str(position), argument
    for keyword in call.keywords:
        yield f"{keyword.arg}=", keyword.value


class _Values:
    """Which constant, attribute or key of somebody else an argument is."""

    def __init__(self, scope: Scope, nodes: Nodes) -> None:
        self._scope = scope
        self._parameters = {p.arg for each in nodes.of(ast.arguments) for p in parameters(each)}
        has_star = any(node.names[0].name == "*" for node in nodes.of(ast.ImportFrom))
        self._stored = _stored(nodes) if has_star else None
        """The names that the file binds itself, where others may come by a star import."""
        bound: dict[str, list[ast.expr]] = {}
        for node in nodes.of(ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    bound.setdefault(target.id, []).append(node.value)
        self._aliases = {
            name: values[0]
            for name, values in bound.items()
            if len(values) == 1 and isinstance(_unwrapped(values[0]), _PASSED_ON)
        }
        """``kind = args.accelerator``: variables with one value, which is another name's."""

    def read(self, node: ast.AST, kind: str, reader: str, depth: int = 3) -> Iterator[Reading]:
        """The readings of one argument, also behind ``str(…)`` and ``or``."""
        if isinstance(node, ast.BoolOp):
            for value in node.values:
                yield from self.read(value, kind, reader, depth)
            return
        node, scope = _unwrapped(node), self._scope
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Name):
            if node.id in self._parameters:
                return
            if node.id in self._aliases and depth:
                yield from self.read(self._aliases[node.id], kind, reader, depth - 1)
            elif node.id in scope.names or self._comes_by_star(node.id):
                yield Reading(node.id, scope.meaning(node.id) or "", kind, reader, line)
        elif isinstance(node, ast.Attribute):
            chain = attribute_chain(node)
            known = chain is not None and chain[0] in scope.names
            dotted = _meaning(node, scope) if known else None
            yield Reading(f".{node.attr}", dotted or "", kind, reader, line)
        else:
            key = _key(node)
            if key is not None:
                yield Reading(f".{key}", "", kind, reader, line)

    def _comes_by_star(self, name: str) -> bool:
        return self._stored is not None and name not in self._stored


def _stored(nodes: Nodes) -> set[str]:
    return {node.id for node in nodes.of(ast.Name) if not isinstance(node.ctx, ast.Load)}


_PASSED_ON = (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.BoolOp)


def _key(node: ast.AST) -> str | None:
    """``cfg["key"]``, ``cfg.get("key")``, ``getattr(cfg, "key")``."""
    keys: list[ast.expr] = []
    if isinstance(node, ast.Subscript):
        keys = [node.slice]
    elif isinstance(node, ast.Call):
        callee = (attribute_chain(node.func) or (getattr(node.func, "attr", ""),))[-1]
        if callee in _READERS:
            keys = node.args[:2]
    names = [k.value for k in keys if isinstance(k, ast.Constant) and isinstance(k.value, str)]
    return names[0] if names else None


def _unwrapped(node: ast.AST) -> ast.AST:
    while isinstance(node, ast.Call):
        callee = (attribute_chain(node.func) or (getattr(node.func, "attr", ""),))[-1]
        if callee in _WRAPPERS and node.args:
            node = node.args[0]
        elif callee in _TEXT_METHODS and isinstance(node.func, ast.Attribute):
            node = node.func.value
        else:
            break
    return node


def _meaning(node: ast.expr, scope: Scope) -> str | None:
    """The dotted name of an expression that an import brought, or its plain chain."""
    chain = attribute_chain(node)
    if chain is None:
        return None
    head = scope.meaning(chain[0])
    if head is None:
        return ".".join(chain) if len(chain) == 1 else None
    return ".".join((head, *chain[1:]))

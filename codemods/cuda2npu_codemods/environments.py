"""Where a literal or keyword names an environment variable, and the value that it gets."""

from __future__ import annotations

import ast
import re

import libcst as cst

from cuda2npu.rule import Site
from cuda2npu_codemods.arguments import Use
from cuda2npu_codemods.expressions import in_cuda_row, string, terminal
from cuda2npu_codemods.uses import use_of

_ENVIRONMENT = re.compile(
    r"(\w*_)?(envs?|environb?|environments?|envvars?)"
    r"(_(vars?|variables|dict|copy|map|updates?|overrides?|extra|args))?",
    re.I,
)
_ABOUT_ENVIRONMENT = re.compile(r"(\w*_)?(env|environ|envvar|environment)(_\w*)?", re.I)
_VARIABLE_NAME = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")
_BY_NAME = frozenset(["getenv", "putenv", "unsetenv", "setenv", "delenv", "getenvb"])
_ITEM_METHODS = frozenset(["get", "pop", "setdefault", "__getitem__", "__setitem__"])
_ITEM_FUNCTIONS = frozenset(["setitem", "delitem", "getattr"])
_SETTERS = frozenset(["setdefault", "setenv", "putenv", "__setitem__"])


def is_environment(site: Site, node: cst.CSTNode | None) -> bool:
    """Whether an expression is the process's environment or a mapping made for one."""
    if isinstance(node, cst.Call):
        callee = terminal(node.func)
        if callee == "copy" and isinstance(node.func, cst.Attribute) and not node.args:
            return is_environment(site, node.func.value)
        if callee in ("dict", "copy", "deepcopy"):
            return any(is_environment(site, arg.value) for arg in node.args)
        return False
    if isinstance(node, cst.Subscript):
        index = node.slice[0].slice
        key = string(index.value) if isinstance(index, cst.Index) else None
        return bool(key and _ENVIRONMENT.fullmatch(key))
    name = terminal(node)
    if name is None:
        return False
    if _ENVIRONMENT.fullmatch(name) or site.name(node or cst.Name("_")) == "os.environ":
        return True
    value = site.binding(name) if isinstance(node, cst.Name) else None
    return value is not None and "environ" in ast.dump(value)


def is_variable(site: Site, node: cst.SimpleString, new: str | None) -> bool | None:
    """Whether a literal names an environment variable: True, False when that is not shown.

    None where it cannot be one, or where the NPU's variable ``new`` is named beside it.
    """
    parent = site.parent(node)
    if isinstance(parent, cst.Index):
        element = site.parent(parent)
        holder = site.parent(element) if element else None
        return is_environment(site, getattr(holder, "value", None))
    if isinstance(parent, cst.Arg):
        return _as_argument(site, parent)
    if isinstance(parent, cst.DictElement):
        return _in_dict(site, node, parent, new)
    if isinstance(parent, (cst.Comparison, cst.ComparisonTarget)):
        return _compared(site, node, parent)
    if isinstance(parent, cst.Element):
        return _listed(site, parent, new)
    if isinstance(parent, cst.Assign):
        return any(_reads_by(site, target.target) for target in parent.targets)
    return None if use_of(site, node) in (Use.TEXT, Use.FOREIGN) else False


def _reads_by(site: Site, target: cst.CSTNode) -> bool:
    """``NAME = "…"`` and then ``os.environ[NAME]`` or ``os.getenv(NAME)`` in the file."""
    name = target.value if isinstance(target, cst.Name) else ""
    pattern = rf"(environ(\[|\.\w+\()|env\()\s*{name}\b"
    return bool(name) and re.search(pattern, site.file.text) is not None


def _as_argument(site: Site, arg: cst.Arg) -> bool | None:
    call = site.parent(arg)
    if not isinstance(call, cst.Call):
        return None
    callee = terminal(call.func) or ""
    if arg.keyword is not None:
        keyword = arg.keyword.value
        if keyword in ("help", "description", "reason", "name", "metavar"):
            return True if callee in _BY_NAME else None
        return bool(_ENVIRONMENT.fullmatch(keyword)) or (keyword == "key" and callee in _BY_NAME)
    if callee in _BY_NAME:
        return call.args[0] is arg
    if callee in _ITEM_METHODS and isinstance(call.func, cst.Attribute):
        return is_environment(site, call.func.value) if call.args[0] is arg else False
    if callee in _ITEM_FUNCTIONS:
        return is_environment(site, call.args[0].value)
    if callee in ("add_argument", "add_option", "hasattr") or use_of(site, arg.value) is Use.TEXT:
        return None
    return bool(_ABOUT_ENVIRONMENT.fullmatch(callee))


def _in_dict(
    site: Site, node: cst.SimpleString, element: cst.DictElement, new: str | None
) -> bool | None:
    table = site.parent(element)
    if not isinstance(table, cst.Dict):
        return None
    keys = [string(e.key) or "" for e in table.elements if isinstance(e, cst.DictElement)]
    if element.key is not node:
        return None if in_cuda_row(site, node) or "npu" in keys else False
    if new in keys:
        return None
    if any(
        isinstance(e, cst.StarredDictElement) and is_environment(site, e.value)
        for e in table.elements
    ):
        return True
    return _becomes_environment(site, table)


def _becomes_environment(site: Site, node: cst.CSTNode) -> bool:
    """Whether the mapping is passed, added or assigned as an environment."""
    parent = site.parent(node)
    if isinstance(parent, cst.DictElement):
        return bool(_ENVIRONMENT.fullmatch(string(parent.key) or ""))
    if isinstance(parent, (cst.AnnAssign, cst.Assign)):
        targets = (
            [parent.target]
            if isinstance(parent, cst.AnnAssign)
            else [t.target for t in parent.targets]
        )
        return any(is_environment(site, target) or _is_spread(site, target) for target in targets)
    if isinstance(parent, cst.BinaryOperation):
        return any(is_environment(site, side) for side in (parent.left, parent.right))
    if not isinstance(parent, cst.Arg):
        return False
    if parent.keyword is not None:
        return bool(_ENVIRONMENT.fullmatch(parent.keyword.value))
    call = site.parent(parent)
    if not isinstance(call, cst.Call):
        return False
    if isinstance(call.func, cst.Attribute) and is_environment(site, call.func.value):
        return True
    return any(is_environment(site, arg.value) for arg in call.args if arg is not parent)


def _is_spread(site: Site, target: cst.BaseExpression) -> bool:
    """``conf = {…}`` and then ``env=conf``, ``os.environ.update(conf)`` or ``**conf`` beside it."""
    name = target.value if isinstance(target, cst.Name) else ""
    pattern = (
        rf"environ\.update\((\*\*)?{name}\b|\benv\s*=\s*{name}\b"
        rf"|environ\b[^\n]*\*\*{name}\b|\*\*{name}\b[^\n]*environ\b"
    )
    return bool(name) and re.search(pattern, site.file.text) is not None


def is_chosen_by_device(site: Site, new: str) -> bool:
    """Whether the code around names the NPU's variable already, for another branch."""
    around = next((n for n in site.enclosing if not isinstance(n, ast.ClassDef)), site.statement)
    return any(isinstance(n, ast.Constant) and n.value == new for n in ast.walk(around))


def removes(site: Site, node: cst.CSTNode) -> bool:
    """Whether the variable that a literal names is only taken out of the environment."""
    if isinstance(site.statement, ast.Delete):
        return True
    arg = site.parent(node)
    call = site.parent(arg) if isinstance(arg, cst.Arg) else None
    return isinstance(call, cst.Call) and terminal(call.func) in ("pop", "delenv", "unsetenv")


def _compared(site: Site, node: cst.CSTNode, parent: cst.CSTNode) -> bool:
    comparison = parent if isinstance(parent, cst.Comparison) else site.parent(parent)
    assert isinstance(comparison, cst.Comparison)
    sides = [comparison.left, *(target.comparator for target in comparison.comparisons)]
    return any(is_environment(site, side) for side in sides if side is not node)


def _listed(site: Site, element: cst.Element, new: str | None) -> bool | None:
    """A list of variables' names, in a file that speaks to the environment."""
    container = site.parent(element)
    values = {string(e.value) or "" for e in getattr(container, "elements", ())}
    if new in values:
        return None
    text = site.file.text
    speaks = "environ" in text or "getenv" in text or "setenv" in text
    return speaks and all(map(_VARIABLE_NAME.fullmatch, values))


def variable_keyword(site: Site, arg: cst.Arg) -> str | None:
    """The keyword of ``dict(os.environ, NAME=…)`` and ``os.environ.update(NAME=…)``."""
    call = site.parent(arg)
    if arg.keyword is None or not isinstance(call, cst.Call):
        return None
    callee = terminal(call.func) or ""
    known = (
        is_environment(site, call)
        or bool(_ABOUT_ENVIRONMENT.fullmatch(callee))
        or any(is_environment(site, other.value) for other in call.args if not other.keyword)
        or (isinstance(call.func, cst.Attribute) and is_environment(site, call.func.value))
        or (callee == "dict" and _becomes_environment(site, call))
    )
    return arg.keyword.value if known else None


def value_of(site: Site, node: cst.CSTNode) -> cst.BaseExpression | None:
    """What the variable that a literal or keyword names is set to, where it is set."""
    if isinstance(node, cst.Arg):
        return node.value
    parent = site.parent(node)
    if isinstance(parent, cst.DictElement) and parent.key is node:
        return parent.value
    if isinstance(parent, cst.Index):
        chain = list(site.ancestors(parent))[:4]
        if len(chain) == 4 and isinstance(chain[2], cst.AssignTarget):
            return chain[3].value if isinstance(chain[3], cst.Assign) else None
    call = site.parent(parent) if isinstance(parent, cst.Arg) else None
    if isinstance(call, cst.Call) and terminal(call.func) in (_SETTERS | _ITEM_FUNCTIONS):
        position = call.args.index(parent) + 1
        return call.args[position].value if position < len(call.args) else None
    return None

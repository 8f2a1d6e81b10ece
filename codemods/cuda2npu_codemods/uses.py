"""What a string literal is used as: a device, a process-group backend, or neither.

From the literal the walk goes outward, through conditional expressions, formatting and
containers, to the place that takes the value: an argument, an assignment, a comparison, a
default. Only that place decides; the letters alone never do.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

import libcst as cst

from cuda2npu.rule import DEVICE as DEVICE_KIND
from cuda2npu.rule import SINKS, Site
from cuda2npu_codemods.arguments import (
    Use,
    by_name,
    by_operand,
    keyword_use,
    passed_on,
    positional_use,
    started_use,
    use_elsewhere,
)
from cuda2npu_codemods.device_lists import holds_devices
from cuda2npu_codemods.expressions import (
    is_backend,
    is_device,
    is_foreign_call,
    is_table_by_device,
    string,
    terminal,
)
from cuda2npu_codemods.other_runtimes import runtime_of
from cuda2npu_codemods.passed_on import with_parameter
from cuda2npu_codemods.preferences import are_devices, are_tried
from cuda2npu_codemods.programs import starts_elsewhere, takes, words_before
from cuda2npu_codemods.project_values import attribute_keys, keys_of
from cuda2npu_codemods.roles import annotated_use, compared_use
from cuda2npu_codemods.words import HOST_DEVICES, OTHER_ACCELERATORS, OTHER_BACKENDS

Step = Callable[[Site, cst.CSTNode, cst.CSTNode], "Use | cst.CSTNode | None"]


def use_of(site: Site, node: cst.CSTNode) -> Use | None:
    """What takes the value of a literal; None when nothing shows it."""
    child, parent = node, site.parent(node)
    while parent is not None:
        step = _STEPS.get(type(parent))
        if step is None:
            return None
        result = step(site, child, parent)
        if not isinstance(result, cst.CSTNode):
            return result
        child, parent = result, site.parent(result)
    return None


def _out(site: Site, child: cst.CSTNode, parent: cst.CSTNode) -> cst.CSTNode:
    """The value passes through."""
    return parent


def _condition(site: Site, child: cst.CSTNode, parent: cst.CSTNode) -> Use | cst.CSTNode | None:
    assert isinstance(parent, cst.IfExp)
    if child is parent.test:
        return None
    other = string(parent.orelse if child is parent.body else parent.body)
    test = site.code(parent.test)
    outward = use_of(site, parent)
    if outward in (Use.DEVICE, Use.BACKEND, Use.KEY, Use.FOREIGN):
        return outward
    if _is_part_of_word(site, parent):
        return Use.TEXT
    if other in HOST_DEVICES | OTHER_ACCELERATORS and _asks_for_gpu(test):
        return Use.DEVICE
    if other in OTHER_BACKENDS:
        return Use.BACKEND
    return outward


def _is_part_of_word(site: Site, node: cst.CSTNode) -> bool:
    """``f"{'cuda' if on else 'cpu'}_time_total"`` names something that is no device."""
    piece = site.parent(node)
    whole = site.parent(piece) if isinstance(piece, cst.FormattedStringExpression) else None
    if not isinstance(whole, cst.FormattedString):
        return False
    index = [part is piece for part in whole.parts].index(True)
    before, after = (
        "".join(getattr(part, "value", "") for part in parts)
        for parts in (whole.parts[:index][-1:], whole.parts[index + 1 :][:1])
    )
    return bool(re.search(r"\w$", before) or re.match(r"\w", after))


def _asks_for_gpu(test: str) -> bool:
    lower = test.lower()
    return any(word in lower for word in ("is_available", "cuda", "gpu", "device", "nccl"))


def _or(site: Site, child: cst.CSTNode, parent: cst.CSTNode) -> Use | cst.CSTNode | None:
    """``device or "cuda"``."""
    assert isinstance(parent, cst.BooleanOperation)
    other = parent.left if child is parent.right else parent.right
    if is_device(site, other):
        return Use.DEVICE
    return Use.BACKEND if is_backend(site, other) else parent


def _binary(site: Site, child: cst.CSTNode, parent: cst.CSTNode) -> Use | cst.CSTNode | None:
    assert isinstance(parent, cst.BinaryOperation)
    if isinstance(parent.operator, cst.Modulo) and child is parent.right:
        return Use.TEXT
    other = parent.right if child is parent.left else parent.left
    if are_devices(child) and re.search(r"""['"]cuda:""", site.code(other)):
        return _unless_silent(site, parent)  # ["cpu", "cuda"] + [f"cuda:{i}" for …]
    return parent


def _unless_silent(site: Site, node: cst.CSTNode) -> Use:
    """A device by what it says, unless the place shows that it is none."""
    use = use_of(site, node)
    return use if use in (Use.KEY, Use.TEXT, Use.FOREIGN, Use.BACKEND) else Use.DEVICE


def _comprehension(site: Site, child: cst.CSTNode, parent: cst.CSTNode) -> Use | cst.CSTNode | None:
    assert isinstance(parent, (cst.ListComp, cst.SetComp, cst.GeneratorExp))
    return parent if child is parent.elt else None


def _method_of_string(
    site: Site, child: cst.CSTNode, parent: cst.CSTNode
) -> Use | cst.CSTNode | None:
    """``"cuda:{}".format(i)``, ``"cuda".lower()``: the call's value goes on."""
    call = site.parent(parent)
    if isinstance(call, cst.Call) and call.func is parent:
        return call
    return None


def _argument(site: Site, child: cst.CSTNode, parent: cst.CSTNode) -> Use | cst.CSTNode | None:
    assert isinstance(parent, cst.Arg)
    call = site.parent(parent)
    if isinstance(call, cst.ClassDef):
        return None
    assert isinstance(call, cst.Call)
    if is_foreign_call(site, call):
        return Use.FOREIGN
    if parent.keyword is not None:
        return keyword_use(site, parent.keyword.value, call)
    return positional_use(site, call.args.index(parent), call)


def _compared(site: Site, child: cst.CSTNode, parent: cst.CSTNode) -> Use | cst.CSTNode | None:
    """The other side of the comparison decides."""
    comparison = parent if isinstance(parent, cst.Comparison) else site.parent(parent)
    assert isinstance(comparison, cst.Comparison)
    sides = [comparison.left, *(target.comparator for target in comparison.comparisons)]
    for side in sides:
        if side is not child:
            use = by_operand(site, side)
            if use is not Use.TEXT:
                return use
    return Use.TEXT


def _dict_element(site: Site, child: cst.CSTNode, parent: cst.CSTNode) -> Use | cst.CSTNode | None:
    assert isinstance(parent, cst.DictElement)
    if child is parent.key:
        return Use.KEY
    key = string(parent.key)
    if is_table_by_device(site.parent(parent)):
        return Use.KEY
    if any(isinstance(a, cst.Call) and is_foreign_call(site, a) for a in site.ancestors(parent)):
        return Use.FOREIGN
    if runtime_of(site, site.parent(parent)) is not None:
        return Use.FOREIGN
    elsewhere = use_elsewhere(site, attribute_keys(site, key)) if key else None
    if elsewhere is Use.SHARED:
        return elsewhere
    if key and (by_name(key) or elsewhere):
        return Use.UNKNOWN_ARGUMENT if _is_booster_setting(site) else by_name(key) or elsewhere
    holder = site.parent(site.parent(parent) or parent)
    if key == "choices" and isinstance(holder, cst.Arg) and holder.keyword is not None:
        # field(default="nccl", metadata={"choices": ["nccl", "gloo"]})
        return site.parent(holder) if holder.keyword.value == "metadata" else None
    outward = use_of(site, site.parent(parent) or parent)
    return outward if outward in (Use.DEVICE, Use.BACKEND) else None


def _is_booster_setting(site: Site) -> bool:
    """``{"device": "cuda"}`` beside lightgbm may be its parameters as well as torch's."""
    return any(map(site.file.imports, ("xgboost", "lightgbm", "catboost")))


def _assigned(site: Site, child: cst.CSTNode, parent: cst.CSTNode) -> Use | cst.CSTNode | None:
    if isinstance(parent, cst.Assign):
        targets: list[cst.CSTNode] = [target.target for target in parent.targets]
    else:
        assert isinstance(parent, (cst.AnnAssign, cst.NamedExpr, cst.AugAssign))
        targets = [parent.target]
    for target in targets:
        use = _target(site, target) or _by_role(site, child, terminal(target))
        if use in (None, Use.BACKEND) and are_tried(site, child, terminal(target)):
            return Use.DEVICE  # a list of BACKENDS, too
        if use is not None:
            return use
    return None


def _by_role(site: Site, value: cst.CSTNode, name: str | None) -> Use | None:
    """What a variable turns out to be where the file compares or annotates with it."""
    if name is None or isinstance(value, cst.Dict):
        return None  # what is looked up in a dictionary are its keys
    if isinstance(value, cst.Subscript):
        return annotated_use(site.file.tree, name)
    if not re.search(
        rf"(\bin|[=!]=|choices=|Choice\()\s*(\w+\.)*{name}\b|\b{name} *[=!]=", site.file.text
    ):
        return None
    return compared_use(site.file.tree, name)


def _element(site: Site, child: cst.CSTNode, parent: cst.CSTNode) -> Use | cst.CSTNode | None:
    """An item of a tuple or list: by its own place where that shows more than the whole."""
    container = site.parent(parent)
    if not isinstance(container, (cst.Tuple, cst.List)):
        return parent
    index = [element is parent for element in container.elements].index(True)
    holder = site.parent(container)
    if are_devices(container) and ":" in site.code(container):
        return _unless_silent(site, container)  # "cuda" beside "cuda:0"
    if isinstance(holder, cst.Assign):
        target = holder.targets[0].target
        if isinstance(target, cst.Tuple) and len(target.elements) == len(container.elements):
            return _target(site, target.elements[index].value)
    if isinstance(holder, cst.Arg) and holder.keyword and holder.keyword.value == "args":
        call = site.parent(holder)
        return started_use(site, index, call) if isinstance(call, cst.Call) else None
    option = string(container.elements[index - 1].value) if index else None
    if option is None or not option.startswith("--") or by_name(option) is None:
        return parent
    return _option(site, parent, option)


def _option(site: Site, value: cst.CSTNode, option: str) -> Use | None:
    """``["python", "a.py", "--device", "cuda"]``: a device if the project's program takes one."""
    use = by_name(option)
    words = words_before(site, value)
    if words is None or use is None:
        return use
    taken = takes(site.file.project, words, option, use.value)
    return use if taken and not starts_elsewhere(site, value) else Use.COMMAND


def _target(site: Site, target: cst.CSTNode) -> Use | None:
    elsewhere = use_elsewhere(site, keys_of(site, target))
    if elsewhere is Use.SHARED:
        return elsewhere
    if isinstance(target, cst.Subscript):
        key = target.slice[0].slice
        name = string(key.value) if isinstance(key, cst.Index) else None
        return (by_name(name) or elsewhere) if name else _target(site, target.value)
    name = terminal(target)
    if name is None:
        return None
    return by_name(name) or _by_flow(site, name) or elsewhere


def _by_flow(site: Site, name: str) -> Use | None:
    """Where the variable's value is passed on in this file."""
    for place in site.file.flows(name):
        callee, _, slot = place.partition("/")
        if slot.endswith("=") and by_name(slot[:-1]):
            return by_name(slot[:-1])
        kind = SINKS.get(place) if callee != "load" else None
        if kind:
            return Use.DEVICE if kind == DEVICE_KIND else Use.BACKEND
    return None


def _default(site: Site, child: cst.CSTNode, parent: cst.CSTNode) -> Use | cst.CSTNode | None:
    assert isinstance(parent, cst.Param)
    name = parent.name.value
    found = by_name(name) or (Use.DEVICE if are_tried(site, child, name) else None)
    functions = () if found else with_parameter(site.statement, name)
    return found or next((passed_on(site, each, name) for each in functions), None)


def _returned(site: Site, child: cst.CSTNode, parent: cst.CSTNode) -> Use | cst.CSTNode | None:
    """By the function's name, or by the other devices that it returns."""
    function = next(iter(site.enclosing), None)
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return None
    use = by_name(function.name)
    if use is not None or "accelerator" in function.name.lower():
        return use  # what a framework calls its accelerators, ``"gpu"`` or ``"cuda"``, is its own
    returned = {
        node.value.value
        for node in ast.walk(function)
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Constant)
    }
    if returned & (HOST_DEVICES | OTHER_ACCELERATORS):
        return Use.DEVICE
    return Use.BACKEND if returned & OTHER_BACKENDS else None


def _loop(site: Site, child: cst.CSTNode, parent: cst.CSTNode) -> Use | cst.CSTNode | None:
    assert isinstance(parent, (cst.For, cst.CompFor))
    return _target(site, parent.target)


def _index(site: Site, child: cst.CSTNode, parent: cst.CSTNode) -> Use | cst.CSTNode | None:
    """A key, except in ``Literal["cuda", "cpu"]``."""
    element = site.parent(parent)
    subscript = site.parent(element) if element else None
    if isinstance(subscript, cst.Subscript) and terminal(subscript) in _TYPE_FORMS:
        return subscript
    if isinstance(subscript, cst.Subscript) and holds_devices(site, subscript.value):
        return Use.DEVICE
    return Use.KEY


_TYPE_FORMS = frozenset("Literal Optional Union Annotated List Sequence Tuple".split())


def _annotated(site: Site, child: cst.CSTNode, parent: cst.CSTNode) -> Use | cst.CSTNode | None:
    owner = site.parent(parent)
    if isinstance(owner, cst.Param):
        return by_name(owner.name.value)
    return _target(site, owner.target) if isinstance(owner, cst.AnnAssign) else None


def _text(site: Site, child: cst.CSTNode, parent: cst.CSTNode) -> Use:
    return Use.TEXT


def _formatted(site: Site, child: cst.CSTNode, parent: cst.CSTNode) -> Use | cst.CSTNode | None:
    """Text for people, except in ``f"{'cuda'}:{i}"``."""
    whole = site.parent(parent)
    parts = whole.parts if isinstance(whole, cst.FormattedString) else ()
    if not parts or parts[0] is not parent:
        return Use.TEXT
    rest = "".join(p.value if isinstance(p, cst.FormattedStringText) else "{}" for p in parts[1:])
    if not re.fullmatch(r"(:(\{\}|\d+))?", rest):
        return Use.TEXT
    assert whole is not None
    return _unless_silent(site, whole) if rest else whole


def _case(site: Site, child: cst.CSTNode, parent: cst.CSTNode) -> Use | cst.CSTNode | None:
    match = next((a for a in site.ancestors(parent) if isinstance(a, cst.Match)), None)
    return by_operand(site, match.subject) if match else None


_STEPS: dict[type[cst.CSTNode], Step] = {
    cst.IfExp: _condition,
    cst.BooleanOperation: _or,
    cst.BinaryOperation: _binary,
    cst.ConcatenatedString: _out,
    cst.Attribute: _method_of_string,
    cst.Call: _out,
    cst.Arg: _argument,
    cst.Comparison: _compared,
    cst.ComparisonTarget: _compared,
    cst.Element: _element,
    cst.List: _out,
    cst.Tuple: _out,
    cst.Set: _out,
    cst.Dict: _out,
    cst.DictElement: _dict_element,
    cst.ListComp: _comprehension,
    cst.SetComp: _comprehension,
    cst.GeneratorExp: _comprehension,
    cst.Lambda: _out,
    cst.Assign: _assigned,
    cst.AnnAssign: _assigned,
    cst.AugAssign: _assigned,
    cst.NamedExpr: _assigned,
    cst.Param: _default,
    cst.Return: _returned,
    cst.For: _loop,
    cst.CompFor: _loop,
    cst.Index: _index,
    cst.Annotation: _annotated,
    cst.FormattedStringExpression: _formatted,
    cst.Raise: _text,
    cst.MatchValue: _case,
}

"""What names mean: imports, aliases, rebinding and shadowing, read from the ``ast`` tree."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Literal

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Binding:
    """One place where a name gets a meaning.

    ``origin`` is the dotted name for an import, ``value`` the expression for a plain
    assignment, and both say a call that imports; with neither, the binding is a user's value
    (parameter, loop variable, class).
    """

    origin: str | None = None
    value: ast.expr | None = None

    @property
    def is_none(self) -> bool:
        """``torch = None`` beside a failed import: the absence of a meaning."""
        return isinstance(self.value, ast.Constant) and self.value.value is None


OPAQUE = Binding()


@dataclass(slots=True, eq=False)
class Scope:
    """A module, class or function, with the names bound in it."""

    kind: Literal["module", "class", "function"]
    node: ast.AST
    parent: Scope | None
    names: dict[str, list[Binding]] = field(default_factory=dict)
    declared: dict[str, Scope] = field(default_factory=dict)
    """Names declared ``global`` or ``nonlocal``, with the scope that holds them."""

    def bind(self, name: str, binding: Binding) -> None:
        holder = self.declared.get(name, self)
        holder.names.setdefault(name, []).append(binding)

    def find(self, name: str) -> tuple[Scope, list[Binding]] | None:
        """The scope a name is looked up in from here, and its bindings there."""
        scope: Scope | None = self
        while scope is not None:
            if (scope.kind != "class" or scope is self) and name in scope.names:
                return scope, scope.names[name]
            scope = scope.parent
        return None

    def enclosing(self) -> tuple[ast.AST, ...]:
        """The functions and classes from here outward."""
        nodes: list[ast.AST] = []
        scope: Scope | None = self
        while scope is not None and scope.kind != "module":
            nodes.append(scope.node)
            scope = scope.parent
        return tuple(nodes)

    def module(self) -> Scope:
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope

    def meaning(self, name: str, *, _seen: tuple[tuple[int, str], ...] = ()) -> str | None:
        """The dotted name that ``name`` stands for here.

        A name that is bound nowhere stands for itself: a builtin, or what a star import
        brought. None for a user's value and for a name with two meanings.
        """
        found = self.find(name)
        if found is None:
            return name
        scope, bindings = found
        if (id(scope), name) in _seen:
            return None
        seen = (*_seen, (id(scope), name))
        meanings = {scope._of(binding, seen) for binding in bindings if not binding.is_none}
        return meanings.pop() if len(meanings) == 1 else None

    def _of(self, binding: Binding, seen: tuple[tuple[int, str], ...]) -> str | None:
        if binding.origin is not None:
            return binding.origin
        chain = attribute_chain(binding.value)
        if chain is None:
            return None
        head = self.meaning(chain[0], _seen=seen)
        # An unbound head inside an alias (`x = y`) says nothing about imports.
        if head is None or (head == chain[0] and self.find(head) is None and head != "torch"):
            return None
        return ".".join((head, *chain[1:]))

    def value(self, name: str) -> ast.expr | None:
        """The expression of the name's only binding, if it is an assignment."""
        found = self.find(name)
        if found is None or len(found[1]) != 1:
            return None
        return found[1][0].value


def attribute_chain(node: ast.AST | None) -> tuple[str, ...] | None:
    """``a.b.c`` as ``("a", "b", "c")``; None for any other expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return (node.id, *reversed(parts))


def parameters(arguments: ast.arguments) -> list[ast.arg]:
    """All parameters of a function in order, ``*args`` and ``**kwargs`` included."""
    result = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    result += [arg for arg in (arguments.vararg, arguments.kwarg) if arg is not None]
    return result


def bind_import(scope: Scope, node: ast.Import) -> None:
    for alias in node.names:
        if alias.asname:
            scope.bind(alias.asname, Binding(alias.name))
        else:
            top = alias.name.partition(".")[0]
            scope.bind(top, Binding(top))


def bind_import_from(scope: Scope, node: ast.ImportFrom) -> None:
    module = "." * node.level + (node.module or "")
    for alias in node.names:
        if alias.name != "*":
            scope.bind(alias.asname or alias.name, Binding(f"{module}.{alias.name}"))


def bind_target(scope: Scope, target: ast.expr, value: ast.expr | None) -> None:
    """Bind an assignment target; only a plain name keeps its value."""
    if isinstance(target, ast.Name):
        scope.bind(target.id, Binding(loaded_module(value), value))
    elif isinstance(target, (ast.Tuple, ast.List)):
        pairs = _paired(target, value)
        for element, part in pairs:
            bind_target(scope, element, part)
    elif isinstance(target, ast.Starred):
        bind_target(scope, target.value, None)


_LOADERS = frozenset(
    "importlib.import_module import_module pytest.importorskip importorskip __import__".split()
)


def loaded_module(value: ast.expr | None) -> str | None:
    """The module that a call returns: ``torch`` of ``pytest.importorskip("torch")``.

    None for what torch.cuda holds, of which the name in the string is edited, and what it means
    with it.
    """
    if not isinstance(value, ast.Call) or not value.args:
        return None
    callee, name = ast.unparse(value.func), getattr(value.args[0], "value", None)
    if callee not in _LOADERS or not isinstance(name, str) or name.startswith("."):
        return None
    if "cuda" in name.split("."):
        return None
    return name.partition(".")[0] if callee == "__import__" else name


def _paired(
    target: ast.Tuple | ast.List, value: ast.expr | None
) -> list[tuple[ast.expr, ast.expr | None]]:
    """``a, b = x, y`` binds like two assignments when the lengths agree."""
    if (
        isinstance(value, (ast.Tuple, ast.List))
        and len(value.elts) == len(target.elts)
        and not any(isinstance(e, ast.Starred) for e in (*value.elts, *target.elts))
    ):
        return list(zip(target.elts, value.elts, strict=True))
    return [(element, None) for element in target.elts]


def declare(scope: Scope, node: ast.Global | ast.Nonlocal) -> None:
    for name in node.names:
        if isinstance(node, ast.Global):
            scope.declared[name] = scope.module()
        elif scope.parent is not None:
            found = scope.parent.find(name)
            scope.declared[name] = found[0] if found else scope.parent


def bind_pattern(scope: Scope, pattern: ast.AST) -> None:
    """Bind the names that a ``case`` pattern captures."""
    for node in ast.walk(pattern):
        name = getattr(node, "name", None) or getattr(node, "rest", None)
        if isinstance(name, str):
            scope.bind(name, OPAQUE)

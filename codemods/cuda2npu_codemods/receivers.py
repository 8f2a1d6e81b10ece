"""What ``x.cuda()`` is called on, when a class of the project has a ``cuda`` of its own.

One odd class among three hundred files must not forbid every edit, and must not be edited
away either. So a call is judged by its receiver:

* proven to be torch's (a tensor, a module of torch, what ``torch.…`` returns, an object of
  another class): edited, whatever the project defines;
* proven to be of the class: left as it is, since the class's own method is what is converted;
* unknown: edited only with ``--unsafe`` where one may turn up, which is in the files that
  define, import or subclass the class, and wherever a variable goes by a name that holds one
  somewhere in the project, or that the class suggests (``batch`` for ``SparseBatch``).

Files that import the defining module by way of others are not all suspected: in a package
whose modules import each other those are nearly all files, and nearly all of their calls are
about tensors. A class with a twin (``npu = cuda``) is no danger, nor is a method that only
checks something and calls the one it overrides.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum

import libcst as cst

from cuda2npu.rule import OwnClass, Site
from cuda2npu_codemods.expressions import meaning_of, terminal


class Kind(Enum):
    """What an expression is proven to be."""

    TORCH = "torch"
    """A tensor or something else of torch's."""
    OTHER = "other"
    """An object of a class that answers as torch's do."""
    OWN = "own"
    """An object of a class with a method of its own."""


_ANY_OBJECT = frozenset("torch.load torch.jit.load torch.hub.load torch.compile".split())
"""Functions of torch that hand back whatever they are given."""
_TENSOR_METHODS = frozenset(
    "view reshape unsqueeze squeeze permute transpose contiguous expand expand_as repeat flatten "
    "long int bool byte unsqueeze_ view_as masked_fill index_select".split()
)
"""Methods that only tensors have; a class of the project may have them, too."""
_SAME_METHODS = frozenset(
    "to cuda npu cpu float half double bfloat16 eval train requires_grad_ apply share_memory "
    "clone detach type pin_memory".split()
)
"""Methods that hand back an object of the same kind."""
_TENSOR_TYPES = frozenset("Tensor LongTensor FloatTensor HalfTensor IntTensor BoolTensor".split())
_TENSOR_PARTS = frozenset("data grad T mT real imag".split())
_MAKERS = ("from_", "load_from_", "build", "create")
_DEPTH = 6


def may_be_own(site: Site, method: str, node: cst.BaseExpression) -> OwnClass | None:
    """The class whose own ``method`` a call on this receiver may mean, if there is one."""
    classes = [each for each in site.file.project.classes if method in each.own]
    if not classes:
        return None
    judge = _Judge(site, classes)
    kind = judge.kind(_expression(site, node))
    if kind in (Kind.TORCH, Kind.OTHER):
        return None
    name, here = terminal(node), site.file.project.here
    by_name = [each for each in classes if name in each.holders]
    near = [each for each in classes if here in each.users]
    return next(iter((*by_name, *near, *(classes if kind is Kind.OWN else ()))), None)


def is_own(site: Site, method: str, node: cst.BaseExpression) -> bool:
    """Whether the receiver is proven to be of a class with such a method of its own."""
    classes = [each for each in site.file.project.classes if method in each.own]
    return bool(classes) and _Judge(site, classes).kind(_expression(site, node)) is Kind.OWN


def is_torch(site: Site, node: cst.BaseExpression) -> bool:
    """Whether the receiver is proven to be torch's, or of a class without such a method."""
    return _Judge(site, []).kind(_expression(site, node)) is Kind.TORCH


def _expression(site: Site, node: cst.BaseExpression) -> ast.expr:
    return ast.parse(f"({site.code(node)})", mode="eval").body


class _Judge:
    """Proves what an expression is, from its own form and from what variables are bound to."""

    def __init__(self, site: Site, classes: list[OwnClass]) -> None:
        self._site = site
        self._own = frozenset().union(*(each.names for each in classes))
        self._methods = frozenset().union(*(each.methods for each in classes))

    def kind(self, node: ast.expr | None, depth: int = _DEPTH) -> Kind | None:
        if node is None or not depth:
            return None
        if isinstance(node, ast.Call):
            return self._call(node, depth - 1)
        if isinstance(node, ast.Name):
            return self._variable(node.id, depth - 1)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, depth - 1)
        if isinstance(node, ast.Subscript):
            return _if_torch(self.kind(node.value, depth - 1))
        if isinstance(node, ast.IfExp):
            return _common([self.kind(node.body, depth - 1), self.kind(node.orelse, depth - 1)])
        if isinstance(node, ast.BinOp):
            sides = (self.kind(node.left, depth - 1), self.kind(node.right, depth - 1))
            return Kind.TORCH if Kind.TORCH in sides and Kind.OWN not in sides else None
        return None

    def _call(self, node: ast.Call, depth: int) -> Kind | None:
        made = self._dotted(node.func)
        if made is not None and made.startswith("torch."):
            return None if made in _ANY_OBJECT else Kind.TORCH
        if made is not None:
            head, _, last = made.rpartition(".")
            if _is_class(last):
                return self._object(last)
            owner = head.rpartition(".")[2]
            if last.startswith(_MAKERS) and _is_class(owner) and not owner.startswith("Auto"):
                return self._object(owner)
        if not isinstance(node.func, ast.Attribute):
            return None
        method, inner = node.func.attr, self.kind(node.func.value, depth)
        if method in _SAME_METHODS or inner is Kind.TORCH:
            return inner
        fits = method in _TENSOR_METHODS and method not in self._methods
        return Kind.TORCH if fits and inner is None else None

    def _object(self, name: str) -> Kind:
        return Kind.OWN if name in self._own else Kind.OTHER

    def _dotted(self, node: ast.expr) -> str | None:
        """The dotted name of what is called: an import's, or a class of this file."""
        meaning = meaning_of(node, self._site)
        if meaning is None and isinstance(node, ast.Name) and _is_class(node.id):
            return node.id  # defined here
        return meaning

    def _variable(self, name: str, depth: int) -> Kind | None:
        if name == "self":
            return self._self()
        values = self._site.bindings(name)
        kinds = [
            self._annotated(name) if value is None else self.kind(value, depth)
            for value in values
            if value is None or _root(value) != name  # x = x.cuda()
        ]
        return _common(kinds)

    def _self(self) -> Kind | None:
        around = next((n for n in self._site.enclosing if isinstance(n, ast.ClassDef)), None)
        return self._object(around.name) if around else None

    def _annotated(self, name: str) -> Kind | None:
        for around in self._site.enclosing:
            if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef)):
                arguments = around.args
                every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
                for argument in every:
                    if argument.arg == name:
                        return self._type(argument.annotation)
        return None

    def _type(self, node: ast.expr | None) -> Kind | None:
        """``Tensor``, ``torch.Tensor | None``, ``Optional[Tensor]``; a class of the project."""
        names = {n for n in _names(node) if n not in ("Optional", "None", "Union", "torch")}
        if names and names <= _TENSOR_TYPES:
            return Kind.TORCH
        return Kind.OWN if len(names) == 1 and names & self._own else None

    def _attribute(self, node: ast.Attribute, depth: int) -> Kind | None:
        if node.attr in _TENSOR_PARTS:
            return _if_torch(self.kind(node.value, depth))
        around = next((n for n in self._site.enclosing if isinstance(n, ast.ClassDef)), None)
        if not isinstance(node.value, ast.Name) or node.value.id != "self" or around is None:
            return None
        kinds = [
            self._type(field.annotation)
            for field in around.body
            if isinstance(field, ast.AnnAssign) and getattr(field.target, "id", "") == node.attr
        ]
        for inner in ast.walk(around):
            targets = inner.targets if isinstance(inner, ast.Assign) else []
            if any(_is_part_of_self(target, node.attr) for target in targets):
                value = inner.value  # type: ignore[attr-defined]
                if not _is_from(value, node.attr):  # self.x = self.x.cuda()
                    # A variable of another method means nothing here.
                    kinds.append(self.kind(value, depth) if isinstance(value, ast.Call) else None)
        return _common(kinds)


def _common(kinds: list[Kind | None]) -> Kind | None:
    """What all values have in common; one that may be own makes all of them doubtful."""
    found = set(kinds)
    if len(found) == 1:
        return found.pop()
    return Kind.OTHER if found and found <= {Kind.TORCH, Kind.OTHER} else None


def _if_torch(kind: Kind | None) -> Kind | None:
    return kind if kind is Kind.TORCH else None


def _is_class(name: str) -> bool:
    return name[:1].isupper() and not name.isupper()


def _root(node: ast.expr) -> str | None:
    """The variable that a chain of calls and attributes begins with."""
    while isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def _is_from(node: ast.expr, name: str) -> bool:
    """Whether a chain of calls and attributes begins with ``self.name``."""
    while isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)):
        if _is_part_of_self(node, name):
            return True
        node = node.func if isinstance(node, ast.Call) else node.value
    return False


def _is_part_of_self(target: ast.expr, name: str) -> bool:
    return (
        isinstance(target, ast.Attribute)
        and target.attr == name
        and isinstance(target.value, ast.Name)
        and target.value.id == "self"
    )


def _names(node: ast.expr | None) -> Iterator[str]:
    """The names that an annotation consists of, quoted or not."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        with suppress(SyntaxError):
            yield from _names(ast.parse(node.value.strip(), mode="eval").body)
    elif isinstance(node, ast.Constant):
        yield "None"
    elif isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.Subscript):
        yield from _names(node.value)
        yield from _names(node.slice)
    elif isinstance(node, ast.BinOp):
        yield from _names(node.left)
        yield from _names(node.right)
    elif isinstance(node, ast.Tuple):
        for element in node.elts:
            yield from _names(element)

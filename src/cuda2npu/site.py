"""The place a rule is asked about: one unit of a file, parsed by LibCST."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import libcst as cst

from cuda2npu.facts import FileFacts
from cuda2npu.model import Options
from cuda2npu.releases import exists
from cuda2npu.rule import Site
from cuda2npu.statements import Unit
from cuda2npu.trees import parents


class UnitSite(Site):
    """Answers the questions of :class:`cuda2npu.rule.Site` for one unit."""

    def __init__(self, unit: Unit, module: cst.Module, file: FileFacts, options: Options) -> None:
        self.unit = unit
        self.module = module
        self._file = file
        self._options = options
        self.tree = parents(module)
        self.needs: set[str] = set()
        """Modules that ``spell`` had to take for granted; the engine imports them."""
        self._names: dict[cst.CSTNode, str | None] = {}

    @property
    def file(self) -> FileFacts:
        return self._file

    @property
    def options(self) -> Options:
        return self._options

    @property
    def statement(self) -> ast.AST:
        return self.unit.statement

    @property
    def enclosing(self) -> tuple[ast.AST, ...]:
        return self.unit.scope.enclosing()

    @property
    def following(self) -> tuple[ast.stmt, ...]:
        return self.unit.following

    def name(self, node: cst.CSTNode) -> str | None:
        if node not in self._names:
            self._names[node] = self._name(node)
        return self._names[node]

    def _name(self, node: cst.CSTNode) -> str | None:
        if isinstance(node, cst.Attribute):
            head = self.name(node.value)
            return f"{head}.{node.attr.value}" if head else None
        if not isinstance(node, cst.Name) or self._is_local_to_expression(node):
            return None
        return self.unit.scope.meaning(node.value)

    def _is_local_to_expression(self, node: cst.Name) -> bool:
        """Whether a lambda or comprehension around the name binds it."""
        for ancestor in self.ancestors(node):
            if isinstance(ancestor, cst.Lambda):
                params = ancestor.params
                every = (*params.params, *params.kwonly_params, *params.posonly_params)
                if any(parameter.name.value == node.value for parameter in every):
                    return True
            elif isinstance(ancestor, cst.BaseComp):
                loop: cst.CompFor | None = ancestor.for_in
                while loop is not None:
                    if node.value in _target_names(loop.target):
                        return True
                    loop = loop.inner_for_in
        return False

    def binding(self, name: str) -> ast.expr | None:
        return self.unit.scope.value(name)

    def bindings(self, name: str) -> tuple[ast.expr | None, ...]:
        found = self.unit.scope.find(name)
        return tuple(binding.value for binding in found[1]) if found else ()

    def meaning(self, name: str) -> str | None:
        return self.unit.scope.meaning(name)

    def is_bound(self, name: str) -> bool:
        return self.unit.scope.find(name) is not None

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        return self.tree.get(node)

    def ancestors(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        parent = self.tree.get(node)
        while parent is not None:
            yield parent
            parent = self.tree.get(parent)

    def argument(self, call: cst.Call, keyword: str, position: int | None = None) -> cst.Arg | None:
        for index, arg in enumerate(call.args):
            if arg.keyword is not None:
                if arg.keyword.value == keyword:
                    return arg
            elif arg.star:
                position = None
            elif index == position:
                return arg
        return None

    def code(self, node: cst.CSTNode) -> str:
        return self.module.code_for_node(node)

    def spell(self, dotted: str) -> cst.BaseExpression:
        head, _, rest = dotted.partition(".")
        local = self._local_name(head)
        if local is None and dotted.startswith("torch.npu."):
            head, rest = "torch_npu", dotted[len("torch.") :]
            local = self._local_name(head)
        if local is None:
            self.needs.add(head)
            local = head
        expression: cst.BaseExpression = cst.Name(local)
        for part in rest.split("."):
            expression = cst.Attribute(expression, cst.Name(part))
        return expression

    def _local_name(self, module: str) -> str | None:
        """A name that stands for this module here, the plain one first."""
        scope = self.unit.scope
        if scope.meaning(module) == module and (scope.find(module) or self._comes_by_star(module)):
            return module
        for node, _, _ in self._file.statements.imports:
            for alias in node.names if isinstance(node, ast.Import) else ():
                if alias.name == module and alias.asname and scope.meaning(alias.asname) == module:
                    return alias.asname
        return None

    def _comes_by_star(self, module: str) -> bool:
        """Whether the file uses ``torch`` without any import of it: a star import brought it."""
        return module == "torch" and not self._file.names("torch")

    def exists(self, dotted: str) -> bool:
        return exists(dotted, self._options.torch_npu)


def _target_names(target: cst.CSTNode) -> set[str]:
    if isinstance(target, cst.Name):
        return {target.value}
    elements = getattr(target, "elements", ())
    return set().union(*(_target_names(element.value) for element in elements))

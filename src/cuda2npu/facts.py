"""Facts about a whole file, complete before the first rule runs."""

from __future__ import annotations

import ast
from functools import cached_property

from cuda2npu.knowledge import Knowledge
from cuda2npu.rule import OTHER_RUNTIMES, FileView
from cuda2npu.scopes import Function, attribute_chain
from cuda2npu.source import Source
from cuda2npu.statements import Statements


class FileFacts(FileView):
    """What the rules may ask about the file; see :class:`cuda2npu.rule.FileView`."""

    def __init__(
        self,
        path: str,
        tree: ast.Module,
        source: Source,
        hits: list[int],
        project: Knowledge,
    ) -> None:
        self._path = path
        self._tree = tree
        self._project = project
        self.source = source
        self.statements = Statements(tree, source, hits)

    @property
    def path(self) -> str:
        return self._path

    @property
    def text(self) -> str:
        return self.source.text

    @property
    def tree(self) -> ast.Module:
        return self._tree

    @property
    def project(self) -> Knowledge:
        return self._project

    @cached_property
    def _modules(self) -> frozenset[str]:
        """Every module imported, and each name imported from one, with all their parents."""
        found: set[str] = set()
        for node, _, _ in self.statements.imports:
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                module = "." * node.level + (node.module or "")
                names = [module, *(f"{module}.{alias.name}" for alias in node.names)]
            for name in names:
                parts = name.split(".")
                found.update(".".join(parts[: i + 1]) for i in range(len(parts)))
        return frozenset(found)

    @cached_property
    def is_foreign(self) -> bool:
        """Whether the file speaks to CUDA through other packages and never through torch."""
        tops = {name.partition(".")[0] for name in self._modules if name}
        return bool(tops & OTHER_RUNTIMES) and not any(top.startswith("torch") for top in tops)

    def imports(self, module: str) -> bool:
        # What took its names from torch.cuda takes them from torch_npu once it is converted.
        return self.names(module) or (module == "torch" and self.names("torch_npu"))

    def names(self, module: str) -> bool:
        """Whether an import of the file names this module or something in it."""
        return module in self._modules

    def defines_method(self, name: str) -> bool:
        return name in self.statements.methods

    def stores_attribute(self, name: str) -> bool:
        return name in self.statements.stored_attributes

    def functions(self, name: str) -> tuple[Function, ...]:
        return tuple(self.statements.functions.get(name, ()))

    @cached_property
    def _flows(self) -> dict[str, set[str]]:
        flows: dict[str, set[str]] = {}
        for node in ast.walk(self._tree):
            if not isinstance(node, ast.Call):
                continue
            callee = _last_name(node.func) or "*"
            for position, argument in enumerate(node.args):
                _note(flows, argument, f"{callee}/{position}")
            for keyword in node.keywords:
                _note(flows, keyword.value, f"{callee}/{keyword.arg}=")
                _note(flows, keyword.value, f"*/{keyword.arg}=")
        return flows

    def flows(self, name: str) -> frozenset[str]:
        return frozenset(self._flows.get(name, ()))


def _last_name(node: ast.expr) -> str | None:
    chain = attribute_chain(node)
    if chain is not None:
        return chain[-1]
    return node.attr if isinstance(node, ast.Attribute) else None


def _note(flows: dict[str, set[str]], argument: ast.expr, place: str) -> None:
    name = _last_name(argument)
    if name is not None:
        flows.setdefault(name, set()).add(place)

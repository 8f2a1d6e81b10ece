"""Checkpoints that only fill a module or an optimizer, where the device they come from is lost.

``load_state_dict`` of a module copies into its parameters, and an optimizer's moves what it is
given to the device of its parameters (torch.nn.Module, torch.optim.Optimizer), so that such a
checkpoint may be loaded on any device. Classes with a ``load_state_dict`` of their own, moving
averages for example, may keep the tensors as they are.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from cuda2npu.rule import Site
from cuda2npu_codemods.expressions import last_name

_OF_MODULES = frozenset("eval train parameters named_parameters zero_grad".split())
"""Methods that modules and optimizers have, and that show that a variable holds one."""
_OF_TORCH = ("torch.nn.", "nn.", "torch.optim.", "optim.", "torchvision.models.")
_PARTS = ("get", "pop")


def only_restores(site: Site) -> bool:
    """Whether all that is done with what the statement loads is to fill modules with it."""
    loads = [
        node
        for node in ast.walk(site.statement)
        if isinstance(node, ast.Call) and last_name(node.func) == "load"
    ]
    if len(loads) != 1 or site.file.defines_method("load_state_dict"):
        return False
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    scope = next((node for node in site.enclosing if isinstance(node, functions)), site.file.tree)
    parents = {child: node for node in ast.walk(scope) for child in ast.iter_child_nodes(node)}
    return _Flow(site.file.tree, scope, parents).is_restored(loads[0], frozenset())


@dataclass(frozen=True, slots=True)
class _Flow:
    tree: ast.Module
    scope: ast.AST
    parents: dict[ast.AST, ast.AST]

    def is_restored(self, node: ast.AST, names: frozenset[str]) -> bool:
        """Whether a value, or an entry of it, ends in ``load_state_dict`` and nowhere else."""
        parent = self.parents.get(node)
        if isinstance(parent, ast.Subscript) and parent.value is node:
            return self.is_restored(parent, names)
        if isinstance(parent, ast.Attribute):
            call = self.parents.get(parent)
            is_part = isinstance(call, ast.Call) and parent.attr in _PARTS
            return is_part and call is not None and self.is_restored(call, names)
        if isinstance(parent, ast.Call) and node in parent.args[:1]:
            return self._fills(parent)
        if isinstance(parent, ast.Compare):
            return isinstance(parent.ops[0], ast.In) and node in parent.comparators
        if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name):
            return len(parent.targets) == 1 and self._all_restored(parent.targets[0].id, names)
        return False

    def _all_restored(self, name: str, names: frozenset[str]) -> bool:
        if name in names:
            return True  # state = state["model"]
        uses = [
            node
            for node in ast.walk(self.scope)
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
        ]
        return bool(uses) and all(self.is_restored(use, names | {name}) for use in uses)

    def _fills(self, call: ast.Call) -> bool:
        if last_name(call.func) != "load_state_dict" or not isinstance(call.func, ast.Attribute):
            return False
        if any(keyword.arg in ("assign", None) for keyword in call.keywords):
            return False
        filled = ast.unparse(call.func.value).removesuffix(".module")
        around = self.tree if "." in filled else self.scope
        nodes = [*ast.walk(around)]
        used = (
            isinstance(node, ast.Attribute)
            and node.attr in _OF_MODULES
            and ast.unparse(node.value) == filled
            for node in nodes
        )
        made = [
            node.value
            for node in nodes
            if isinstance(node, ast.Assign) and filled in map(ast.unparse, node.targets)
        ]
        return any(used) or (bool(made) and all(map(self._is_module, made)))

    def _is_module(self, value: ast.expr) -> bool:
        """``Net()`` of a module that the file defines, ``optim.SGD(…)``, ``Any(…).eval()``."""
        while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
            if value.func.attr in _OF_MODULES or ast.unparse(value.func).startswith(_OF_TORCH):
                return True
            value = value.func.value
        name = ast.unparse(value.func) if isinstance(value, ast.Call) else ""
        return any(
            isinstance(node, ast.ClassDef)
            and node.name == name
            and any(last_name(base) == "Module" for base in node.bases)
            for node in ast.walk(self.tree)
        )

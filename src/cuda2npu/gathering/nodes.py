"""The nodes of a syntax tree by their class, for the many questions that each ask for one."""

from __future__ import annotations

import ast
from collections import defaultdict
from typing import Any, TypeVar

Node = TypeVar("Node", bound=ast.AST)


class Nodes:
    """All nodes of a tree, walked through once; those of a class in the order of ``ast.walk``."""

    def __init__(self, tree: ast.AST) -> None:
        self._by_class: defaultdict[type[ast.AST], list[Any]] = defaultdict(list)
        for node in ast.walk(tree):
            self._by_class[type(node)].append(node)

    def of(self, kind: type[Node]) -> list[Node]:
        """Those of exactly this class."""
        return self._by_class.get(kind, [])

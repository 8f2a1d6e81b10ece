"""Code that somebody has already ported, or that another tool looks after."""

from __future__ import annotations

import ast
import re
from functools import cached_property

from cuda2npu.statements import Unit

_NPU = re.compile(r"(?<![A-Za-z])npu(?![a-z])|(?<![A-Za-z])NPU|HCCL|hccl")
_TRANSFER = re.compile(r"^[ \t]*(from|import)[ \t][^#\n]*\btransfer_to_npu\b", re.M)
_SHIM = re.compile(
    r"^[ \t]*torch\.cuda\.[\w.]+[ \t]*=[ \t]*(torch\.|\w+\.)?(xpu|mlu|musa|hpu|mps|ipex|intel)\b",
    re.M,
)


class Ported:
    """Answers for one file which of its units are to be left alone."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._chooses: dict[ast.AST, bool] = {}

    @cached_property
    def mentions_npu(self) -> bool:
        return _NPU.search(self._text) is not None

    @cached_property
    def uses_transfer(self) -> bool:
        """``transfer_to_npu`` is imported: torch.cuda is patched when the file runs."""
        return _TRANSFER.search(self._text) is not None

    @cached_property
    def is_shim(self) -> bool:
        """The file itself puts another accelerator's functions into torch.cuda."""
        return _SHIM.search(self._text) is not None

    def covers(self, unit: Unit) -> bool:
        """Whether the unit stands in code that already chooses between devices.

        That is a function, or an ``if`` chain, with a test that asks for an NPU.
        """
        if not self.mentions_npu:
            return False
        around = [*unit.blocks, unit.statement]
        functions = [n for n in around if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
        chains = [n for n in around if isinstance(n, ast.If)]
        return any(map(self._chooses_npu, [*functions[-1:], *chains]))

    def _chooses_npu(self, node: ast.AST) -> bool:
        if node not in self._chooses:
            if isinstance(node, ast.If):
                self._chooses[node] = any(map(_asks_for_npu, _chain(node)))
            else:
                tests = (n for n in ast.walk(node) if isinstance(n, (ast.If, ast.IfExp)))
                self._chooses[node] = any(_asks_for_npu(test.test) for test in tests)
        return self._chooses[node]


def _chain(node: ast.If) -> list[ast.expr]:
    """The tests of ``if``, ``elif``, ``elif`` …, and of what ``else`` nests."""
    tests = [node.test]
    while len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
        node = node.orelse[0]
        tests.append(node.test)
    return tests


def _asks_for_npu(test: ast.expr) -> bool:
    """``torch.npu.is_available()``, ``is_torch_npu_available()``, ``device == "npu"``."""
    for node in ast.walk(test):
        word = getattr(node, "attr", None) or getattr(node, "id", None)
        if isinstance(node, ast.Constant):
            word = node.value
        if isinstance(word, str) and _NPU.search(word):
            return True
    return False

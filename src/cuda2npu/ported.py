"""Code that somebody has already ported, or that another tool looks after."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from enum import Enum
from functools import cached_property

from cuda2npu.statements import Unit

RUNTIMES = frozenset(["tensorrt", "onnxruntime", "pycuda", "torch_tensorrt", "torch2trt"])
_NPU = (
    re.compile(r"npu(?<![A-Za-z]npu)(?![a-z])"),
    re.compile(r"NPU(?<![A-Za-z]NPU)"),
    re.compile(r"hccl|HCCL"),
)
"""Each by itself begins with a letter that is fixed, which makes the search many times faster."""
_NPU_QUESTION = re.compile(r"npu|(is|has|use)_(\w+_)?npu(_\w+)?|(IS|HAS|USE)_(\w+_)?NPU(_\w+)?")
_QUESTION = re.compile(r"\b(?:is|has|use|IS|HAS|USE)_\w*(?:npu|NPU)\w*")
_CUDA_QUESTION = re.compile(r"cuda|(is|has|use)_(\w+_)?cuda(_\w+)?|(IS|HAS|USE)_(\w+_)?CUDA(_\w+)?")
_CUDA_DEVICE = re.compile(r"cuda(:\d*)?")
_NPU_DEVICE = re.compile(r"npu(:\d*)?")
_TRANSFER = re.compile(r"(?:^|\r)[ \t]*(from|import)[ \t][^#\r\n]*\btransfer_to_npu\b", re.M)
_PATCH = r"torch\.cuda\.[\w.]+[ \t]*=[ \t]*(torch\.|\w+\.)?(xpu|mlu|musa|hpu|mps|ipex|intel)\b"
_MAYBE_SHIM = re.compile(_PATCH)
_SHIM = re.compile(r"(?:^|\r)[ \t]*" + _PATCH, re.M)


class Cover(Enum):
    """Why a unit is not for this tool to change."""

    HAND = "hand"
    """It belongs to a choice between CUDA and the NPU that somebody made by hand."""
    DOUBT = "doubt"
    """The same, or this tool made it of a choice between CUDA and the CPU.

    What a safe edit is left for is no work of the tool's, which would have made it.
    """
    RUNTIME = "runtime"
    """It serves another runtime, with a CUDA interface of its own."""


class Ported:
    """Answers for one file which of its units are to be left alone."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._asks: dict[ast.AST, bool] = {}
        self._by_hand: dict[ast.AST, bool] = {}

    @cached_property
    def mentions_npu(self) -> bool:
        return any(pattern.search(self._text) for pattern in _NPU)

    @cached_property
    def mentions_runtime(self) -> bool:
        return any(name in self._text for name in RUNTIMES)

    @cached_property
    def uses_transfer(self) -> bool:
        """``transfer_to_npu`` is imported: torch.cuda is patched when the file runs."""
        return "transfer_to_npu" in self._text and _TRANSFER.search(self._text) is not None

    @cached_property
    def is_shim(self) -> bool:
        """The file itself puts another accelerator's functions into torch.cuda."""
        found = _MAYBE_SHIM.search(self._text) is not None
        return found and _SHIM.search(self._text) is not None

    @cached_property
    def _has_own_question(self) -> bool:
        """Whether the file asks for the NPU by a name of its own, ``is_torch_npu_available``."""
        return any(map(_is_own_question, _QUESTION.findall(self._text)))

    def covers(self, unit: Unit) -> Cover | None:
        """Why the unit is to be left alone, if it is.

        Either the code already chooses between CUDA and the NPU, and the unit belongs to the
        choice. Or its branch runs another runtime with a CUDA interface of its own.
        """
        if self.mentions_runtime and any(_is_foreign_branch(b, unit) for b in unit.blocks):
            return Cover.RUNTIME
        choice = self._choice(unit) if self.mentions_npu else None
        if choice is None:
            return None
        by_name = _asks_by_name(choice) and self._has_own_question
        return Cover.HAND if by_name or self._is_by_hand(choice) else Cover.DOUBT

    def _choice(self, unit: Unit) -> ast.AST | None:
        """The statement that chooses between CUDA and the NPU, when the unit belongs to it."""
        around = [*unit.blocks, unit.statement]
        functions = [n for n in around if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
        classes = [node for node in around if isinstance(node, ast.ClassDef)]
        named = next(filter(_asks_by_name, functions), None)
        if named is not None:
            return named  # is_cuda_available() beside is_npu_available()
        arm = next((block for block in unit.blocks if _is_other_arm(block, unit)), None)
        if arm is not None:
            return arm
        if _chooses(unit.statement) or _is_mapped(unit):
            return unit.statement
        if not _is_arm_for_cuda(unit):
            return None
        if functions and self._asks_for_npu(functions[-1]):
            return functions[-1]
        return next(filter(self._is_by_hand, classes), None)

    def _is_by_hand(self, choice: ast.AST) -> bool:
        if choice not in self._by_hand:
            self._by_hand[choice] = _is_by_hand(choice)
        return self._by_hand[choice]

    def _asks_for_npu(self, function: ast.AST) -> bool:
        if function not in self._asks:
            self._asks[function] = any(map(_asks_for_npu, _tests(function)))
        return self._asks[function]


def _tests(node: ast.AST) -> Iterator[ast.expr]:
    """Conditions, comparisons and ``is_available()`` calls below a node."""
    for inner in ast.walk(node):
        if isinstance(inner, (ast.If, ast.IfExp)):
            yield inner.test
        elif isinstance(inner, ast.Compare) or (
            isinstance(inner, ast.Call) and "available" in ast.unparse(inner.func)
        ):
            yield inner


def _chooses(statement: ast.AST) -> bool:
    """Whether the statement itself decides for the NPU or for something else."""
    if not hasattr(statement, "body"):
        choices = (n.test for n in ast.walk(statement) if isinstance(n, ast.IfExp))
        if any(map(_asks_for_npu, choices)):
            return True
    return _asks_for_both(_own_tests(statement))


def _own_tests(statement: ast.AST) -> list[ast.expr]:
    """The tests of an ``if`` and its other arms, or those inside a simple statement."""
    if isinstance(statement, ast.If):
        return _chain(statement)
    return [] if hasattr(statement, "body") else list(_tests(statement))


def _is_other_arm(block: ast.AST, unit: Unit) -> bool:
    """Whether the unit is in one arm of an ``if``, and another arm is the one for the NPU."""
    if not isinstance(block, ast.If):
        return False
    in_body = any(_is_inside(unit.statement, node) for node in block.body)
    if _asks_for_npu(block.test):
        return in_body == _is_negated(block.test)
    return in_body and any(map(_asks_for_npu, _chain(block)[1:]))


def _is_mapped(unit: Unit) -> bool:
    """``if kind == "npu": kind = "cuda"``, or the same by ``replace("npu", "cuda")``."""
    statement = unit.statement
    if hasattr(statement, "body"):
        return False
    if any(map(_replaces_npu, ast.walk(statement))):
        return True
    value = getattr(statement, "value", None)
    names_cuda = isinstance(value, ast.Constant) and _CUDA_DEVICE.fullmatch(str(value.value))
    return bool(names_cuda) and any(_is_arm_for_npu(block, unit) for block in unit.blocks)


def _replaces_npu(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") != "replace":
        return False
    return bool(node.args) and _says_npu(node.args[0])


def _is_arm_for_npu(block: ast.AST, unit: Unit) -> bool:
    """Whether the unit is in the arm for what is called npu."""
    if isinstance(block, ast.Match):
        cases = [case for case in block.cases if _says_npu(case.pattern)]
        return any(_is_inside(unit.statement, node) for case in cases for node in case.body)
    if not isinstance(block, ast.If) or not _says_npu(block.test) or _is_negated(block.test):
        return False
    return any(_is_inside(unit.statement, node) for node in block.body)


def _says_npu(node: ast.AST) -> bool:
    constants = (inner for inner in ast.walk(node) if isinstance(inner, ast.Constant))
    return any(isinstance(c.value, str) and _NPU_DEVICE.fullmatch(c.value) for c in constants)


def _is_negated(test: ast.expr) -> bool:
    """``if not is_npu_available():``, ``if device.type != "npu":``."""
    if isinstance(test, ast.Compare):
        return isinstance(test.ops[0], (ast.NotEq, ast.NotIn))
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)


def _is_arm_for_cuda(unit: Unit) -> bool:
    """Whether the unit asks for CUDA or stands below an ``if`` that does.

    A body that already speaks of the NPU is half edited, and no arm for CUDA.
    """
    if any(map(_asks_for_cuda, _own_tests(unit.statement))):
        return not _body_is_for_npu(unit.statement)
    return any(
        isinstance(block, ast.If) and _asks_for_cuda(block.test) and not _body_is_for_npu(block)
        for block in unit.blocks
    )


def _body_is_for_npu(statement: ast.AST) -> bool:
    body: list[ast.stmt] = getattr(statement, "body", [])
    return any(word == "npu" for node in body for word in _words(node))


def _is_foreign_branch(block: ast.AST, unit: Unit) -> bool:
    """``if engine: import tensorrt; device = torch.device("cuda:0")``: left with its runtime."""
    if not isinstance(block, ast.If):
        return False
    for branch in (block.body, block.orelse):
        if any(_is_inside(unit.statement, node) for node in branch):
            nested = len(branch) == 1 and isinstance(branch[0], ast.If)
            return not nested and any(map(_imports_runtime, branch))
    return False


def _is_inside(node: ast.AST, outer: ast.stmt) -> bool:
    line = getattr(node, "lineno", None)
    return line is not None and outer.lineno <= line <= (outer.end_lineno or 0)


def _imports_runtime(node: ast.stmt) -> bool:
    names: list[str] = []
    for inner in ast.walk(node):
        if isinstance(inner, ast.Import):
            names += [alias.name for alias in inner.names]
        elif isinstance(inner, ast.ImportFrom):
            names.append(inner.module or "")
    return any(name.partition(".")[0] in RUNTIMES for name in names)


def _asks_for_both(tests: list[ast.expr]) -> bool:
    return any(map(_asks_for_npu, tests)) and any(map(_asks_for_cuda, tests))


def _chain(node: ast.If) -> list[ast.expr]:
    """The tests of ``if``, ``elif``, ``elif`` …, and of what ``else`` nests."""
    tests = [node.test]
    while len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
        node = node.orelse[0]
        tests.append(node.test)
    return tests


def _asks_by_name(node: ast.AST) -> bool:
    name = node.name if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else "cuda"
    return name != "cuda" and _CUDA_QUESTION.fullmatch(name) is not None


def _is_own_question(word: str) -> bool:
    """Whether somebody gave a question for the NPU this name: no name of torch_npu's."""
    return word not in ("npu", "is_npu") and _NPU_QUESTION.fullmatch(word) is not None


def _asks_for_npu(test: ast.expr) -> bool:
    """``torch.npu.is_available()``, ``is_torch_npu_available()``, ``device == "npu"``.

    A user's own flag or count (``args.no_npu``, ``n_npu > 0``) is no such question.
    """
    return any(_NPU_QUESTION.fullmatch(word) for word in _words(test))


def _is_by_hand(choice: ast.AST) -> bool:
    """Whether a choice speaks of the NPU in words that this tool does not write.

    It writes ``torch.npu``, ``"npu"`` and ``x.is_npu``, and not beside the same for CUDA: that
    would have become the NPU's, too. ``torch.cuda.is_available()`` alone is also left as it is,
    where it guards a kernel; there it shares no ``if`` with the question for an NPU.
    """
    words = set(_asked(choice))
    if any(_is_own_question(word.rpartition(".")[2]) for word in words):
        return True
    twins = {word for word in words if "npu" in word and word.replace("npu", "cuda") in words}
    if not all(word.endswith(".npu.is_available") for word in twins):
        return True
    ifs = (node for node in ast.walk(choice) if isinstance(node, ast.If))
    return bool(twins) and any(map(_asks_for_either, ifs))


def _asks_for_either(node: ast.If) -> bool:
    """``if torch.npu.is_available(): … elif torch.cuda.is_available(): …``"""
    words = {word for test in _chain(node) for word in _asked(test)}
    return any(word.replace("npu", "cuda") in words for word in words if "npu" in word)


def _asked(choice: ast.AST) -> Iterator[str]:
    """The whole names, comparisons and calls with a text in a statement, as source."""
    parts: set[ast.AST] = set()
    for node in ast.walk(choice):
        if isinstance(node, ast.Attribute):
            parts.add(node.value)
        if isinstance(node, (ast.Name, ast.Attribute)) and node not in parts:
            yield ast.unparse(node)
        elif isinstance(node, ast.Compare):
            left, right = ast.unparse(node.left), node.comparators[0]
            listed = right.elts if isinstance(right, (ast.Tuple, ast.List, ast.Set)) else [right]
            yield from (f"{left} == {ast.unparse(each)}" for each in listed)
        elif isinstance(node, ast.Call) and any(isinstance(a, ast.Constant) for a in node.args):
            yield ast.unparse(node)


def _asks_for_cuda(test: ast.expr) -> bool:
    return any(_CUDA_QUESTION.fullmatch(word) for word in _words(test))


def _words(test: ast.AST) -> Iterator[str]:
    for node in ast.walk(test):
        word = getattr(node, "attr", None) or getattr(node, "id", None)
        if isinstance(node, ast.Constant):
            word = node.value
        if isinstance(word, str):
            yield word

"""Whether a device test guards a CUDA kernel.

``if x.is_cuda: x = x.half()`` is about placement and must hold on the NPU as well;
``if x.is_cuda: return ext_cuda.forward(x)`` keeps the portable branch for everything that has
no CUDA kernel, and must stay false on the NPU.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from cuda2npu.rule import OTHER_RUNTIMES, Site
from cuda2npu_codemods.expressions import last_name
from cuda2npu_codemods.extension_builders import builds_extension
from cuda2npu_codemods.kernels import (
    defines_numba_kernel,
    imported,
    is_library_flag,
    uses_kernel,
    uses_package,
    wraps_kernel,
)

Test = Callable[[ast.expr], bool]


def guards_kernel(site: Site, negated: bool = False) -> bool:
    """Whether the code that runs when the statement's device test holds uses a CUDA kernel.

    ``negated`` says that the test is for anything but CUDA, so that the code after the
    statement (when its body leaves) and its ``else`` are what runs on CUDA.
    """
    statement, tree = site.statement, site.file.tree
    if isinstance(statement, ast.Assert):
        return uses_kernel(site.following, tree)
    if _asks_for_library(statement, tree) or defines_numba_kernel(tree) or _keeps_kernel(site):
        return True
    if _is_kernel_flag(statement) or _drives_foreign(site):
        return True
    if isinstance(statement, ast.If):
        if negated and wraps_kernel(site.following, tree):
            return True  # what CUDA's kernel does by itself is done here for all others
        if not negated and _asks_for_kernel(statement.test):
            return True
        chosen = selected(statement, site.following, negated)
        return uses_kernel(chosen, tree) or _collects(chosen, site)
    if isinstance(statement, (ast.Return, ast.Assign, ast.Expr)) and statement.value is not None:
        if any(uses_kernel([arm], tree) for arm in _arms(statement.value, negated)):
            return True
        if _is_answer_for_faiss(statement.value):
            return True
        return any(uses_kernel(arm, tree) for arm in flagged(site))
    return False


def selected(statement: ast.If, following: Iterable[ast.stmt], negated: bool) -> list[ast.stmt]:
    """What runs on CUDA: the body, or behind a negated test all that the body keeps others from."""
    if not negated:
        return statement.body
    return [*statement.orelse, *(following if _leaves(statement.body[-1]) else ())]


_CPU_FUNCTION = re.compile(r"\w+_cpu(_\w+)?|cpu_\w+")


def strands(site: Site, negated: bool) -> bool:
    """Whether what runs for all other devices raises, or is compiled for the CPU.

    A tensor on the NPU gets there when the test stays, so that this is not quiet.
    """
    statement = site.statement
    if not isinstance(statement, ast.If):
        return isinstance(statement, ast.Assert)
    return _strand(selected(statement, site.following, not negated))


def _strand(block: list[ast.stmt]) -> bool:
    for index, statement in enumerate(block):
        if isinstance(statement, ast.Raise):
            return True
        if isinstance(statement, ast.If):
            negated = _polarity(statement.test, _is_device_test)
            rest = block[index + 1 :]
            if negated is not None and _strand(selected(statement, rest, not negated)):
                return True
        elif _calls_cpu_code(statement):
            return True
        if _leaves(statement):
            return False
    return False


def _calls_cpu_code(statement: ast.stmt) -> bool:
    """``deform_conv_cpu.conv_forward_cpu(x)``, ``ext.nms_cpu(x)``: no method of a class."""
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and _CPU_FUNCTION.fullmatch(node.func.attr)
        and getattr(node.func.value, "id", "self") not in ("self", "cls", "torch")
        for node in ast.walk(statement)
    )


def _collects(branch: Iterable[ast.stmt], site: Site) -> bool:
    """Whether a branch puts tensors into a list that the function hands to a kernel."""
    scope = next(iter(site.enclosing), None)
    if scope is None:
        return False
    calls = [statement.value for statement in branch if isinstance(statement, ast.Expr)]
    filled = {
        ast.unparse(call.func.value)
        for call in calls
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "append"
    }
    return bool(filled) and any(
        uses_kernel([node], site.file.tree)
        and any(isinstance(n, ast.Name) and n.id in filled for n in ast.walk(node))
        for node in ast.walk(scope)
        if isinstance(node, ast.Call)
    )


_EXITS = ("exit", "_exit", "skip", "skipTest")


def _leaves(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return last_name(statement.value.func) in _EXITS
    return isinstance(statement, (ast.Return, ast.Raise, ast.Continue, ast.Break))


def _keeps_kernel(site: Site) -> bool:
    """Whether the class keeps an object of CUDA that it makes behind such a test.

    ``if device.type == "cuda": self.tree = CudaTree(device)``: the class's other tests of the
    device ask which kind of object it has.
    """
    owner = next((scope for scope in site.enclosing if isinstance(scope, ast.ClassDef)), None)
    return owner is not None and _makes_kernel(owner, site.file.tree)


@lru_cache(maxsize=4)
def _makes_kernel(owner: ast.ClassDef, tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.If)
        and _polarity(node.test, _is_device_test) is False
        and any(_keeps_package(inner, tree) for part in node.body for inner in ast.walk(part))
        for node in ast.walk(owner)
    )


def _keeps_package(node: ast.AST, tree: ast.Module) -> bool:
    if not isinstance(node, ast.Assign):
        return False
    if not any(ast.unparse(target).startswith("self.") for target in node.targets):
        return False
    if isinstance(node.value, ast.Attribute):
        return uses_kernel([node.value], tree)  # fused_optim.multi_tensor_adam
    return isinstance(node.value, ast.Call) and uses_package([node.value.func], tree)


def _is_answer_for_faiss(value: ast.AST) -> bool:
    """``FaissKMeans(gpu=x.device.type == "cuda")``: faiss has its own kernels or none."""
    return any(
        isinstance(call, ast.Call)
        and "faiss" in ast.unparse(call.func).lower()
        and any(_polarity(keyword.value, _is_device_test) is not None for keyword in call.keywords)
        for call in ast.walk(value)
    )


def _drives_foreign(site: Site) -> bool:
    """``use_cuda = "cuda" in str(device)`` and then ``faiss.Kmeans(gpu=use_cuda)``."""
    statement, tree = site.statement, site.file.tree
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    if not isinstance(target, ast.Name) or not isinstance(statement, ast.Assign):
        return False
    if _polarity(_without_choice(statement.value), _is_device_test) is None:
        return False
    takers = [
        imported(tree).get(ast.unparse(call.func).partition(".")[0], "").partition(".")[0]
        for call in ast.walk(function_around(site))
        if isinstance(call, ast.Call)
        for given in (*call.args, *(keyword.value for keyword in call.keywords))
        if isinstance(given, ast.Name) and given.id == target.id
    ]
    foreign = bool(takers) and OTHER_RUNTIMES.issuperset(takers)
    return foreign and not any(map(_moves, flagged(site)))


_FLAG = re.compile(r"(\w+_)?(cuda|fused|custom|triton)_kernels?|(use|enable|with)_(\w+_)?kernels?")


def _is_kernel_flag(statement: ast.AST) -> bool:
    """``use_cuda_kernel = x.device.type == "cuda"``: the name says what the test is for."""
    if not isinstance(statement, ast.Assign):
        return False
    named = any(_FLAG.fullmatch(last_name(target) or "") for target in statement.targets)
    return named and _polarity(_without_choice(statement.value), _is_device_test) is not None


def _without_choice(value: ast.expr) -> ast.expr:
    """``True if test else False`` is ``test``."""
    arms = (value.body, value.orelse) if isinstance(value, ast.IfExp) else ()
    values = [getattr(arm, "value", None) for arm in arms]
    return value.test if isinstance(value, ast.IfExp) and values == [True, False] else value


_KERNEL_FLAG = re.compile(r"(\w+_)?(fused|kernel|triton|flash|custom_op)(_\w+)?")


def _asks_for_kernel(test: ast.expr) -> bool:
    """The same test asks for an implementation: ``impl == "cuda" and …``, ``self.fused and …``."""
    if not isinstance(test, ast.BoolOp):
        return False
    for part in test.values:
        if isinstance(part, ast.Compare) and _names_implementation(part):
            return True
        name = getattr(part, "attr", None) or getattr(part, "id", None)
        if name is not None and _KERNEL_FLAG.fullmatch(name):
            return True
    return False


def _names_implementation(comparison: ast.Compare) -> bool:
    sides = [comparison.left, *comparison.comparators]
    names = [getattr(side, "attr", None) or getattr(side, "id", None) for side in sides]
    literal = any(isinstance(side, ast.Constant) and side.value == "cuda" for side in sides)
    return literal and any(name in ("impl", "implementation", "kernel", "method") for name in names)


def guards_kernel_import(site: Site) -> bool:
    """``if torch.cuda.is_available(): import ext_cuda``, ``… and has_fused_norm``."""
    statement, tree = site.statement, site.file.tree
    if _asks_for_library(statement, tree) or _is_kernel_flag(statement) or _drives_foreign(site):
        return True
    if builds_extension(site) and not _places(site):
        return True
    if isinstance(statement, (ast.Return, ast.Assign, ast.Expr)) and statement.value is not None:
        negated = _polarity(statement.value, _is_device_test) is True
        if any(uses_package([arm], tree) for arm in _arms(statement.value, negated)):
            return True
        arms = list(flagged(site))
        return any(uses_package(arm, tree) for arm in arms) and not any(map(_moves, arms))
    if not isinstance(statement, ast.If):
        return False
    imports = [node for node in statement.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    if uses_kernel(imports, tree) or _asks_for_kernel(statement.test):
        return True
    arm = selected(statement, (), _polarity(statement.test, _is_device_test) is True)
    return uses_package(arm, tree) and not _moves(arm)


def _places(site: Site) -> bool:
    """Whether the statement, or what it selects, places something on the device."""
    statement = site.statement
    if isinstance(statement, ast.If):
        negated = _polarity(statement.test, _is_device_test) is True
        return _moves([statement, *selected(statement, site.following, negated)])
    return _moves([statement]) or any(map(_moves, flagged(site)))


def _moves(nodes: Iterable[ast.AST]) -> bool:
    """Whether the code places something on the device, so that it is not about kernels alone."""
    return any(
        (isinstance(inner, ast.Call) and getattr(inner.func, "attr", None) in _PLACES)
        or (isinstance(inner, ast.Constant) and inner.value == "cuda")
        for node in nodes
        for inner in ast.walk(node)
    )


_PLACES = ("cuda", "to", "set_device", "device")


def _arms(value: ast.AST, negated: bool) -> Iterable[ast.AST]:
    """The conditional expressions' arms that a true device test selects."""
    for node in ast.walk(value):
        if isinstance(node, ast.IfExp):
            yield node.orelse if negated else node.body


def _asks_for_library(statement: ast.AST, tree: ast.Module) -> bool:
    """``HAS_TRITON and x.is_cuda``, or ``not HAS_TRITON or not x.is_cuda``, wherever it stands."""
    parts: list[ast.AST | None] = [getattr(statement, "test", None)]
    if isinstance(statement, (ast.Return, ast.Assign, ast.AnnAssign, ast.Expr)):
        parts = [statement.value]
    parts.extend(getattr(statement, "decorator_list", ()))
    inner = [node for part in parts if part is not None for node in ast.walk(part)]
    return any(
        isinstance(node, ast.BoolOp) and _joins(node, _is_device_test, tree) for node in inner
    )


def _joins(node: ast.BoolOp, is_test: Test, tree: ast.Module) -> bool:
    """Whether a conjunction (or the negation of one) has a library's flag and a device test."""
    either = isinstance(node.op, ast.Or)
    tests = [_polarity(side, is_test) for side in node.values]
    flags = [_polarity(side, lambda part: is_library_flag(part, tree)) for side in node.values]
    return either in tests and any(
        flag is either and test is None for flag, test in zip(flags, tests, strict=True)
    )


def _polarity(node: ast.AST, is_test: Test) -> bool | None:
    """Whether an expression holds when the test in it does not; None without such a test."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = _polarity(node.operand, is_test)
        return None if inner is None else not inner
    if isinstance(node, ast.expr) and is_test(node):
        return isinstance(node, ast.Compare) and isinstance(
            node.ops[0], (ast.NotEq, ast.NotIn, ast.Is)
        )
    inner_parts: Iterable[ast.AST] = ()
    if isinstance(node, ast.BoolOp):
        inner_parts = node.values
    elif isinstance(node, ast.IfExp):
        inner_parts = [node.test]
    elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("any", "all", "bool"):
        inner_parts = node.args
    elif isinstance(node, (ast.GeneratorExp, ast.ListComp)):
        inner_parts = [node.elt]
    found = (_polarity(part, is_test) for part in inner_parts)
    return next((one for one in found if one is not None), None)


def _is_device_test(node: ast.expr) -> bool:
    """``x.is_cuda``, ``x.device.type == "cuda"``, ``torch.cuda.is_available()``."""
    if isinstance(node, ast.Call):
        node = node.func
        if isinstance(node, ast.Attribute) and node.attr == "is_available":
            return "cuda" in ast.unparse(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr == "is_cuda"
    return isinstance(node, ast.Compare) and any(
        isinstance(side, ast.Constant) and side.value == "cuda"
        for side in (node.left, *node.comparators)
    )


def flagged(site: Site) -> Iterator[list[ast.AST]]:
    """What a variable selects to which the statement assigns a device test."""
    statement = site.statement
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    if not isinstance(statement, ast.Assign) or not isinstance(target, (ast.Name, ast.Attribute)):
        return
    name = ast.unparse(target)
    value = _without_choice(statement.value)
    first = _polarity(value, _is_device_test)
    if first is None or isinstance(value, ast.IfExp):
        return

    def reads(node: ast.expr) -> bool:
        return isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node) == name

    for node in ast.walk(function_around(site)):
        if isinstance(node, ast.IfExp):
            second = _polarity(node.test, reads)
            if second is not None:
                yield [node.body if second is first else node.orelse]
        for block in _blocks(node):
            for index, inner in enumerate(block):
                second = _polarity(inner.test, reads) if isinstance(inner, ast.If) else None
                if isinstance(inner, ast.If) and second is not None:
                    yield [*selected(inner, block[index + 1 :], second is not first)]


def function_around(site: Site) -> ast.AST:
    """The innermost function around the statement, or the module."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return next((node for node in site.enclosing if isinstance(node, functions)), site.file.tree)


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for field in ("body", "orelse", "finalbody"):
        block = getattr(node, field, None)
        if isinstance(block, list):
            yield block

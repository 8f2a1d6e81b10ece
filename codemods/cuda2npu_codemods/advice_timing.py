"""Advice on measuring, and on steps that wait for the device."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import libcst as cst

from cuda2npu.rule import Report, Site, leave, report
from cuda2npu_codemods.advice import advice
from cuda2npu_codemods.expressions import last_name, terminal
from cuda2npu_codemods.training_loops import (
    Loop,
    calls,
    file_trains,
    gradients,
    inside,
    lines_of,
    loops_around,
    root,
    steps,
    trains,
    uses_device,
)

_TIMERS = frozenset("time perf_counter monotonic perf_counter_ns time_ns default_timer".split())
_TIMER_WORDS = ("time()", "perf_counter", "monotonic", "time_ns", "default_timer")
_WAITS = frozenset("synchronize item cpu numpy tolist elapsed_time decode batch_decode".split())
"""Methods after which the device has done what it was asked."""
_MODEL = re.compile(r"(model|net|network|unet|vae|pipe|pipeline|backbone)(_?\w)?")
_RUNS = frozenset("forward backward generate".split())


@dataclass(frozen=True)
class _Measurement:
    """The stretch of a function between two looks at the clock, and the calls in it, in order."""

    start: ast.Call
    end: ast.Call
    calls: tuple[ast.Call, ...]

    @property
    def runs(self) -> tuple[ast.Call, ...]:
        return tuple(filter(_runs_model, self.calls))

    @property
    def waits(self) -> bool:
        """Whether something waits for the device after the last work that is timed."""
        last = max(map(_place, self.runs))
        return any(last <= _place(call) for call in self.calls if last_name(call.func) in _WAITS)


def _place(node: ast.expr) -> tuple[int, int]:
    return node.end_lineno or 0, node.end_col_offset or 0


def _runs_model(call: ast.Call) -> bool:
    name = last_name(call.func) or ""
    return name in _RUNS or _MODEL.fullmatch(name) is not None


def _is_timer(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) in _TIMERS and not node.args


def _measurements(function: ast.AST) -> Iterator[_Measurement]:
    """The differences of two times in a function.

    One that is compared is no measurement, and one of an epoch needs no care.
    """
    nodes = list(inside(function))
    compared = {
        id(part) for node in nodes if isinstance(node, ast.Compare) for part in inside(node)
    }
    every = [node for node in nodes if isinstance(node, ast.Call)]
    loops = [node for node in nodes if isinstance(node, Loop)]
    for node in nodes:
        if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)):
            continue
        end, start = _looked(node.left, node, nodes), _looked(node.right, node, nodes)
        if start is None or end is None or id(node) in compared:
            continue
        if not any(_is_aside(loop, start, end) for loop in loops):
            between = (call for call in every if _place(start) < _place(call) < _place(end))
            yield _Measurement(start, end, tuple(between))


def _is_aside(loop: Loop, start: ast.Call, end: ast.Call) -> bool:
    """Whether a measurement around a loop has no need to wait for what the loop queued.

    An epoch takes long enough; a few runs beside many other things are not what is measured.
    """
    if not start.lineno < loop.lineno <= lines_of(loop)[1] < end.lineno:
        return False
    is_large = not _counts(loop) or (_repeats(loop) and not _is_timed(loop, start, end))
    return is_large and any(map(_runs_model, calls(loop)))


def _looked(node: ast.expr, before: ast.expr, nodes: list[ast.AST]) -> ast.Call | None:
    """The look at the clock that a side of a difference holds or was assigned before."""
    if _is_timer(node):
        return node  # type: ignore[return-value]
    last = None
    for other in nodes:
        if isinstance(other, ast.Assign) and _place(other.value) <= _place(before):
            names = map(ast.unparse, other.targets)
            if isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node) in names:
                last = other.value if isinstance(other.value, ast.Call) else None
    return last if _is_timer(last) else None


def _ending_here(site: Site) -> Iterator[_Measurement]:
    """The measurements of work on a device that the statement ends."""
    if not uses_device(site):
        return
    function = site.enclosing[0] if site.enclosing else site.file.tree
    first, last = lines_of(site.statement)
    for measured in _measurements(function):
        if first <= measured.end.lineno <= last and measured.runs:
            yield measured


def _first(node: cst.CSTNode, wanted: Callable[[cst.Call], bool]) -> cst.Call | None:
    """The first call below a node that is one of those wanted; the outer one of two."""
    for child in node.children:
        if isinstance(child, cst.Call) and wanted(child):
            return child
        if (found := _first(child, wanted)) is not None:
            return found
    return None


def _reads_clock(node: cst.Call) -> bool:
    return terminal(node.func) in _TIMERS and not node.args


_LINES_AROUND = 8
_TIMED = "import time, torch\nmodel = Net().npu()\n"


@advice(
    "NPU741",
    "timing-without-synchronize",
    on=cst.SimpleStatementLine,
    words=_TIMER_WORDS,
    why="the clock is read while the device still works: operators are only queued when a call "
    "returns, so that the time says how long queueing took. Call torch.npu.synchronize() before "
    "each look at the clock, or measure with torch.npu.Event(enable_timing=True)",
    source="https://docs.pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution",
    examples=(
        report(f"{_TIMED}t = time.time()\ny = model(x)\nprint(time.time() - t)"),
        report(
            f"{_TIMED}def f():\n    t0 = time.perf_counter()\n    for _ in range(9):\n"
            "        model(x)\n    t1 = time.perf_counter()\n    return t1 - t0"
        ),
        leave(
            f"{_TIMED}t = time.time()\ny = model(x)\ntorch.npu.synchronize()\n"
            "print(time.time() - t)"
        ),
        leave(f"{_TIMED}t = time.time()\nloss = model(x).item()\nprint(time.time() - t)"),
        leave(f"{_TIMED}t = time.time()\nload(x)\nprint(time.time() - t)"),
        leave(f"{_TIMED}t = time.time()\nfor x in loader:\n    model(x)\nprint(time.time() - t)"),
        leave(f"{_TIMED}t = time.time()\nbuild_model(x)\nprint(time.time() - t)"),
        leave(f"{_TIMED}t = time.time()\nwhile time.time() - t < 5:\n    model(x)"),
        leave("import time\nt = time.time()\nmodel(x)\nprint(time.time() - t)"),
    ),
)
def timing_without_synchronize(node: cst.SimpleStatementLine, site: Site) -> Report | None:
    clock = _first(node, _reads_clock)
    if clock is None or all(measured.waits for measured in _ending_here(site)):
        return None
    return Report(at=clock)


@advice(
    "NPU742",
    "measured-without-warm-up",
    on=cst.SimpleStatementLine,
    words=_TIMER_WORDS,
    why="the first runs are measured, too: in them memory is taken, and operators are loaded or "
    "compiled. Run the model some times before the clock is read first",
    source="https://docs.pytorch.org/tutorials/recipes/recipes/benchmark.html",
    examples=(
        report(
            f"{_TIMED}t = time.time()\nfor _ in range(100):\n    model(x)\n"
            "torch.npu.synchronize()\nprint(time.time() - t)"
        ),
        leave(
            f"{_TIMED}for _ in range(10):\n    model(x)\nt = time.time()\n"
            "for _ in range(100):\n    model(x)\ntorch.npu.synchronize()\nprint(time.time() - t)"
        ),
        leave(
            f"{_TIMED}t = time.time()\nfor x in loader:\n    model(x)\n"
            "torch.npu.synchronize()\nprint(time.time() - t)"
        ),
        leave(
            f"{_TIMED}t = time.time()\nfor _ in range(100):\n    model(x).backward()\n"
            "torch.npu.synchronize()\nprint(time.time() - t)"
        ),
    ),
)
def measured_without_warm_up(node: cst.SimpleStatementLine, site: Site) -> Report | None:
    clock = _first(node, _reads_clock)
    function = site.enclosing[0] if site.enclosing else site.file.tree
    if clock is None or "warm" in ast.unparse(function).lower():
        return None
    loops = [loop for loop in inside(function) if _repeats(loop)]
    runs = list(filter(_runs_model, calls(function)))
    for measured in _ending_here(site):
        is_warm = any(_place(run) <= _place(measured.start) for run in runs)
        repeated = {run for loop in loops for run in calls(loop)}
        if not is_warm and not repeated.isdisjoint(measured.runs):
            return Report(at=clock)
    return None


def _is_timed(loop: ast.AST, start: ast.Call, end: ast.Call) -> bool:
    """Whether a loop is what is measured: hardly anything else stands between the two looks."""
    first, last = lines_of(loop)
    return first - start.lineno + end.lineno - last <= _LINES_AROUND


def _repeats(loop: ast.AST) -> bool:
    """Whether this is a loop that runs the same thing again and again, and does not train."""
    return _counts(loop) and not trains(loop)


def _counts(loop: ast.AST) -> bool:
    over = getattr(loop, "iter", None)
    return isinstance(over, ast.Call) and last_name(over.func) in ("range", "trange")


_FETCHES = frozenset("item cpu tolist numpy print".split())
_STEP = "for x, y in loader:\n    loss = f(model(x), y)\n    loss.backward()\n    o.step()\n"


@advice(
    "NPU743",
    "host-waits-in-each-step",
    on=cst.SimpleStatementLine,
    words=(".item()", ".cpu()", ".tolist()", ".numpy()", "print("),
    why="each step of the training waits here until the device has done everything, and has "
    "nothing to do until the host goes on: add up on the device (loss.detach()) and fetch the sum "
    "every so many steps",
    source="https://www.hiascend.com/document/detail/zh/canncommercial/700/foundmodeldev/"
    "foundmodeltrain/PT_LMTMOG_000080.html and "
    "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide",
    examples=(
        report(f"import torch\n{_STEP}    total += loss.item()"),
        report(f"import torch\n{_STEP}    losses.append(loss.detach().cpu())"),
        leave(f"import torch\n{_STEP}    if step % 100 == 0:\n        print(loss.item())"),
        leave(f"import torch\n{_STEP}    total += loss.detach()"),
        leave("import torch\nfor x, y in loader:\n    total += f(model(x), y).item()"),
        report(f"import torch\n{_STEP}    print(f'loss: {{loss}}')"),
        leave(f"import torch\n{_STEP}    print(loss.shape)"),
        leave("import torch\nfor e in range(9):\n    train()\n    print(validate().item())"),
    ),
)
def host_waits_in_each_step(node: cst.SimpleStatementLine, site: Site) -> Report | None:
    if not file_trains(site.file.tree):
        return None
    loop = next(iter(loops_around(site)), None)
    if loop is None:
        return None
    losses = {root(call.func) for call in gradients(loop)}
    statement = next((step for step in steps(loop) if step is site.statement), None)
    if not losses or statement is None:
        return None
    if not any(_fetches(call, losses) for call in calls(statement)):
        return None
    return Report(at=_first(node, lambda call: terminal(call.func) in _FETCHES))


def _fetches(call: ast.Call, losses: set[str | None]) -> bool:
    """Whether a call needs a value of the device on the host."""
    name = last_name(call.func)
    if name == "print":
        return any(isinstance(part, ast.Name) and part.id in losses for part in _printed(call))
    return name in _FETCHES and isinstance(call.func, ast.Attribute) and not call.args


def _printed(call: ast.Call) -> Iterator[ast.AST]:
    """What is printed as it is, or put into a text as it is."""
    for argument in call.args:
        parts = argument.values if isinstance(argument, ast.JoinedStr) else [argument]
        yield from (part.value if isinstance(part, ast.FormattedValue) else part for part in parts)

"""Advice on how torch_npu runs operators: their compilation, its queue, memory formats."""

from __future__ import annotations

import libcst as cst

from cuda2npu.releases.chips import FAMILIES
from cuda2npu.rule import Report, Site, leave, report
from cuda2npu.tokens import Assignment, DocumentSite, Variable
from cuda2npu_codemods.advice import advice
from cuda2npu_codemods.environments import is_variable, value_of
from cuda2npu_codemods.expressions import string, terminal
from cuda2npu_codemods.training_loops import (
    file_trains,
    gradients,
    lines_of,
    loops_around,
    uses_device,
)

_COMPILED = ("A2", "A3")
"""The families for which operators are compiled before a program runs, unless it asks."""
_MAIN = 'if __name__ == "__main__":\n    main()\n'
_BACKWARD = "    for x in loader:\n        model(x.npu()).backward()\n"


@advice(
    "NPU731",
    "compile-mode-unset",
    on=(cst.If, cst.Call),
    words=("__main__", "backward("),
    why="the program does not say whether operators are compiled while it runs. That is off on "
    "Atlas A2 and A3 and on for the Atlas training and inference series (Ascend 910, 310P), where "
    "each new shape of an input then costs a compilation: with inputs of several shapes call "
    "torch.npu.set_compile_mode(jit_compile=False) first, in each worker that is spawned",
    chips=tuple(set(FAMILIES) - set(_COMPILED)),
    source="https://www.hiascend.com/document/detail/zh/Pytorch/700/apiref/apilist/"
    "ptaoplist_000610.html and https://www.hiascend.com/document/detail/zh/canncommercial/700/"
    "modeldevpt/ptmigr/AImpug_000060.html",
    examples=(
        report(f"import torch\ndef main():\n{_BACKWARD}{_MAIN}"),
        report("import torch\nfor x in loader:\n    model(x.cuda()).backward()"),
        leave(
            f"import torch\ndef main():\n{_BACKWARD}"
            'if __name__ == "__main__":\n'
            "    torch.npu.set_compile_mode(jit_compile=False)\n    main()"
        ),
        leave(f"import torch\ndef train():\n{_BACKWARD}"),
        leave(f"import torch\ndef main():\n{_BACKWARD}{_MAIN}", chip="A2"),
        leave(f"import torch\nprint(torch.ones(2).npu())\n{_MAIN}"),
        leave(
            f"import torch\ndef main():\n    for x in loader:\n        model(x).backward()\n{_MAIN}"
        ),
    ),
)
def compile_mode_unset(node: cst.If | cst.Call, site: Site) -> Report | None:
    text = site.file.text
    if "set_compile_mode" in text or not uses_device(site):
        return None
    if isinstance(node, cst.If):
        is_program = "__main__" in site.code(node.test) and file_trains(site.file.tree)
        return Report(at=node.test) if is_program else None
    if terminal(node.func) != "backward" or "__main__" in text or site.enclosing:
        return None
    around = loops_around(site)
    first = next((call.lineno for call in gradients(around[0])), 0) if around else 0
    return Report() if lines_of(site.statement)[0] <= first <= lines_of(site.statement)[1] else None


@advice(
    "NPU732",
    "operators-compiled-at-run-time",
    on=cst.Call,
    words=("jit_compile",),
    why="jit_compile=True compiles operators while the program runs, for each new shape of an "
    "input. It can be worth its time for inputs of one shape on the Atlas training series "
    "(Ascend 910); Atlas A2 and A3 have compiled operators, which is their default",
    source="https://www.hiascend.com/document/detail/zh/canncommercial/700/modeldevpt/ptmigr/"
    "AImpug_000060.html",
    examples=(
        report("import torch\ntorch.npu.set_compile_mode(jit_compile=True)"),
        leave("import torch\ntorch.npu.set_compile_mode(jit_compile=False)"),
        leave("import torch\ntorch.npu.set_compile_mode(jit_compile=args.jit)"),
        leave("import tensorflow as tf\nf = tf.function(f, jit_compile=True)"),
    ),
)
def operators_compiled_at_run_time(node: cst.Call, site: Site) -> Report | None:
    mode = site.argument(node, "jit_compile", 0)
    if terminal(node.func) != "set_compile_mode" or mode is None:
        return None
    return Report() if site.code(mode.value) == "True" else None


_QUEUE = "TASK_QUEUE_ENABLE"
_BLOCKING = ("ASCEND_LAUNCH_BLOCKING", "CUDA_LAUNCH_BLOCKING")
_LEVELS = {
    "0": f"{_QUEUE}=0 switches the queue of operators off, so that the host waits for the launch "
    "of each: leave it out (1 is the default), or try 2",
    "1": f"{_QUEUE}=1 is the default: level 2 moves more of the work to the queue's thread, and is "
    "what Huawei recommends where the host cannot keep up. It needs operators that are not "
    "compiled at run time and more memory, and NPUGraph refuses to capture with it",
}
_SYNCHRONOUS = (
    "{} makes the host wait for every operator, and switches the queue of operators off: it is "
    "for finding an error, so leave it out of what is to be fast"
)
_QUEUE_SOURCE = (
    "https://hiascend.com/document/detail/zh/Pytorch/600/apiref/Envvariables/Envir_019.html and, "
    "on NPUGraph, the tests of torch_npu (test/test_task_queue_enable.py)"
)


def _advice(name: str, value: str) -> Report | None:
    """What to say of a variable with this value."""
    if name in _BLOCKING:
        return Report(_SYNCHRONOUS.format(f"{name}=1")) if value == "1" else None
    level = _LEVELS.get(value) if name == _QUEUE else None
    return Report(level) if level else None


@advice(
    "NPU733",
    "operator-queue-setting",
    on=cst.SimpleString,
    words=(_QUEUE, *_BLOCKING),
    why="an environment variable that slows down how operators are launched",
    source=_QUEUE_SOURCE,
    examples=(
        report("import os\nos.environ['TASK_QUEUE_ENABLE'] = '0'"),
        report("import os\nos.environ.setdefault('TASK_QUEUE_ENABLE', '1')"),
        report("import os\nos.environ['CUDA_LAUNCH_BLOCKING'] = '1'"),
        leave("import os\nos.environ['TASK_QUEUE_ENABLE'] = '2'"),
        leave("import os\ndef debug():\n    os.environ['ASCEND_LAUNCH_BLOCKING'] = '1'"),
        leave("import os\nos.environ['TASK_QUEUE_ENABLE'] = args.queue"),
        leave("import os\nos.environ['ASCEND_LAUNCH_BLOCKING'] = '0'"),
        leave("import os\non = os.environ.get('TASK_QUEUE_ENABLE', '1')"),
    ),
)
def operator_queue_setting(node: cst.SimpleString, site: Site) -> Report | None:
    name, value = string(node), string(value_of(site, node))
    if name is None or value is None or not is_variable(site, node, None):
        return None
    purposes = [getattr(around, "name", "").lower() for around in site.enclosing]
    is_meant = any("determin" in purpose or "debug" in purpose for purpose in purposes)
    return None if is_meant else _advice(name, value)


@advice(
    "NPU734",
    "launcher-operator-queue",
    on=(Assignment, Variable),
    words=(_QUEUE, *_BLOCKING),
    why="an environment variable that slows down how operators are launched",
    source=_QUEUE_SOURCE,
    examples=(
        report("export TASK_QUEUE_ENABLE=0\npython train.py\n", path="train.sh"),
        report("TASK_QUEUE_ENABLE=1 torchrun train.py\n", path="train.sh"),
        report("export ASCEND_LAUNCH_BLOCKING=1\n", path="train.sh"),
        report("ENV TASK_QUEUE_ENABLE=0\n", path="Dockerfile"),
        leave("export TASK_QUEUE_ENABLE=2\n", path="train.sh"),
        leave("export TASK_QUEUE_ENABLE=${QUEUE:-2}\n", path="train.sh"),
        leave("unset ASCEND_LAUNCH_BLOCKING\n", path="train.sh"),
        leave("echo TASK_QUEUE_ENABLE=0\n", path="train.sh"),
    ),
)
def launcher_operator_queue(token: Assignment | Variable, site: DocumentSite) -> Report | None:
    if isinstance(token, Assignment):
        name, is_set = token.name, token.literal and not (token.unset or token.in_string)
    else:
        name, is_set = token.text, True
    return _advice(name, (token.value or "").strip("\"' ")) if is_set else None


_LAYS_OUT = frozenset("to contiguous clone empty empty_like zeros_like ones_like to_empty".split())
"""What makes a tensor or module of the memory format that it is given."""


@advice(
    "NPU735",
    "channels-last",
    on=cst.Arg,
    words=("channels_last",),
    why="channels_last is how cuDNN likes its images. The NPU's convolutions have a format of "
    "their own (NC1HWC0), to which torch_npu and CANN bring what they need; Huawei's guide to "
    "moving code asks for contiguous tensors, and torch_npu refuses to create others",
    source="https://www.hiascend.com/document/detail/zh/mindstudio/830/T&ITools/MigrationTool/"
    "atlasfmkt_16_0035.html; the refusal: torch.empty(…, device='npu', memory_format=…) of the "
    "wheel of torch_npu 2.13",
    examples=(
        report("import torch\nmodel = model.to(memory_format=torch.channels_last)"),
        report("import torch\nx = x.contiguous(memory_format=torch.channels_last_3d)"),
        leave("import torch\nif x.is_contiguous(memory_format=torch.channels_last): pass"),
        leave("import torch\nx = x.to(memory_format=torch.contiguous_format)"),
        leave("channels_last = True\nbuild(memory_format=channels_last)"),
    ),
)
def channels_last(node: cst.Arg, site: Site) -> Report | None:
    name = site.name(node.value) or ""
    call = site.parent(node)
    if not name.startswith("torch.channels_last") or not isinstance(call, cst.Call):
        return None
    return Report() if terminal(call.func) in _LAYS_OUT else None

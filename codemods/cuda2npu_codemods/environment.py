"""Environment variables of CUDA and NCCL, where Python reads, sets or passes them."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from cuda2npu.rule import Fix, FixLevel, Report, Site, leave, report, rewrite, rule
from cuda2npu_codemods.environments import (
    is_chosen_by_device,
    is_variable,
    removes,
    value_of,
    variable_keyword,
)
from cuda2npu_codemods.expressions import string, with_value
from cuda2npu_codemods.variables import (
    ALLOCATOR,
    COUNTERPARTS,
    NPU_ALLOCATOR,
    NPU_VISIBLE,
    VISIBLE,
    WORDS,
    replaced,
    value_problem,
    variable,
    variable_advice,
)

_WITH_COUNTERPART = tuple(COUNTERPARTS)


@rule(
    "NPU320",
    "cuda-environment-variable",
    on=cst.SimpleString,
    words=_WITH_COUNTERPART,
    fix=FixLevel.SAFE,
    missed_by_shim=True,
    why="an environment variable of CUDA or NCCL that has a counterpart on the NPU",
    quiet=True,
    examples=(
        rewrite(
            "os.environ['CUDA_VISIBLE_DEVICES'] = args.gpus",
            "os.environ['ASCEND_RT_VISIBLE_DEVICES'] = args.gpus",
        ),
        rewrite(
            'ids = os.environ.get("CUDA_VISIBLE_DEVICES", "0")',
            'ids = os.environ.get("ASCEND_RT_VISIBLE_DEVICES", "0")',
        ),
        rewrite(
            'del os.environ["CUDA_VISIBLE_DEVICES"]', 'del os.environ["ASCEND_RT_VISIBLE_DEVICES"]'
        ),
        rewrite(
            'ok = "CUDA_VISIBLE_DEVICES" in os.environ',
            'ok = "ASCEND_RT_VISIBLE_DEVICES" in os.environ',
        ),
        rewrite(
            'ids = os.getenv("CUDA_VISIBLE_DEVICES")',
            'ids = os.getenv("ASCEND_RT_VISIBLE_DEVICES")',
        ),
        rewrite(
            'run(cmd, env={**os.environ, "CUDA_VISIBLE_DEVICES": ids})',
            'run(cmd, env={**os.environ, "ASCEND_RT_VISIBLE_DEVICES": ids})',
        ),
        rewrite(
            "env = os.environ.copy()\nenv['CUDA_LAUNCH_BLOCKING'] = '1'",
            "env = os.environ.copy()\nenv['ASCEND_LAUNCH_BLOCKING'] = '1'",
        ),
        rewrite(
            'monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")',
            'monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "0")',
        ),
        rewrite(
            'with mock.patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": "0"}): pass',
            'with mock.patch.dict(os.environ, {"ASCEND_RT_VISIBLE_DEVICES": "0"}): pass',
        ),
        rewrite(
            'import torch\nos.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"',
            'import torch\nos.environ["PYTORCH_NPU_ALLOC_CONF"] = "expandable_segments:True"',
        ),
        rewrite(
            'os.environ["TORCH_NCCL_BLOCKING_WAIT"] = "1"',
            'os.environ["HCCL_BLOCKING_WAIT"] = "1"',
            release="2.6.0",
        ),
        rewrite(
            'os.environ["NCCL_ASYNC_ERROR_HANDLING"] = "1"',
            'os.environ["TORCH_HCCL_ASYNC_ERROR_HANDLING"] = "1"',
        ),
        rewrite(
            'NAME = "CUDA_VISIBLE_DEVICES"\nids = os.getenv(NAME)',
            'NAME = "ASCEND_RT_VISIBLE_DEVICES"\nids = os.getenv(NAME)',
        ),
        rewrite(
            'conf = {"CUDA_VISIBLE_DEVICES": "0"}\nos.environ.update(conf)',
            'conf = {"ASCEND_RT_VISIBLE_DEVICES": "0"}\nos.environ.update(conf)',
        ),
        rewrite(
            'worker_env = {"CUDA_VISIBLE_DEVICES": "0"}',
            'worker_env = {"ASCEND_RT_VISIBLE_DEVICES": "0"}',
        ),
        leave('p.add_argument("--CUDA_VISIBLE_DEVICES")'),
        leave('print("CUDA_VISIBLE_DEVICES")'),
        leave('VISIBLE = {"cuda": "CUDA_VISIBLE_DEVICES", "npu": "ASCEND_RT_VISIBLE_DEVICES"}'),
        leave('keys = ["CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"]'),
        leave('import tensorflow\nos.environ["CUDA_VISIBLE_DEVICES"] = "0"'),
        leave('os.environ["CUDA_HOME"]'),
        leave(
            "def f(env):\n    if npu:\n        env['ASCEND_RT_VISIBLE_DEVICES'] = ids\n"
            "    else:\n        env['CUDA_VISIBLE_DEVICES'] = ids"
        ),
    ),
)
def cuda_environment_variable(node: cst.SimpleString, site: Site) -> Fix | None:
    old = string(node) or ""
    new = variable(old, site.options.torch_npu)
    proven = is_variable(site, node, new) if new else None
    if new is None or proven is None or is_chosen_by_device(site, new):
        return None
    edits = {node: with_value(node, old, new)}
    if proven:
        return Fix(edits, replaced(old, new), imports=())
    message = (
        f"{old} is named, and nothing here shows that it is an environment variable: if it is, "
        f"write {new}, or run with --unsafe"
    )
    return Fix(edits, message, level=FixLevel.UNSAFE, imports=())


@rule(
    "NPU321",
    "cuda-environment-keyword",
    on=cst.Arg,
    words=_WITH_COUNTERPART,
    fix=FixLevel.SAFE,
    missed_by_shim=True,
    why="an environment variable of CUDA or NCCL, given as a keyword, that has a counterpart",
    quiet=True,
    examples=(
        rewrite(
            "env = dict(os.environ, CUDA_VISIBLE_DEVICES=ids)",
            "env = dict(os.environ, ASCEND_RT_VISIBLE_DEVICES=ids)",
        ),
        rewrite(
            'os.environ.update(CUDA_VISIBLE_DEVICES="0")',
            'os.environ.update(ASCEND_RT_VISIBLE_DEVICES="0")',
        ),
        leave("train(CUDA_VISIBLE_DEVICES=ids)"),
    ),
)
def cuda_environment_keyword(node: cst.Arg, site: Site) -> Fix | None:
    old = variable_keyword(site, node)
    new = variable(old, site.options.torch_npu) if old else None
    if old is None or new is None or node.keyword is None:
        return None
    return Fix({node.keyword: cst.Name(new)}, replaced(old, new), imports=())


@rule(
    "NPU323",
    "visible-devices-value",
    on=(cst.SimpleString, cst.Arg),
    words=(VISIBLE, NPU_VISIBLE, ALLOCATOR, NPU_ALLOCATOR),
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="the NPU's variable takes other values than CUDA's",
    quiet=True,
    examples=(
        report('os.environ["CUDA_VISIBLE_DEVICES"] = "-1"'),
        report('os.environ["CUDA_VISIBLE_DEVICES"] = "" if args.cpu else args.gpus'),
        report('os.environ.setdefault("CUDA_VISIBLE_DEVICES", "1,0")'),
        report('os.environ["ASCEND_RT_VISIBLE_DEVICES"] = "-1"'),
        report('import os\nenv = dict(os.environ, ASCEND_RT_VISIBLE_DEVICES="")'),
        leave('os.environ["ASCEND_RT_VISIBLE_DEVICES"] = "0,1"'),
        report('env = dict(os.environ, CUDA_VISIBLE_DEVICES="0, 1")'),
        report('run(cmd, env={**os.environ, "CUDA_VISIBLE_DEVICES": "GPU-8f1c"})'),
        report('os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync"'),
        report('os.environ["PYTORCH_NPU_ALLOC_CONF"] = "backend:cudaMallocAsync"'),
        leave('os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"'),
        leave('ids = os.environ.get("CUDA_VISIBLE_DEVICES", "")'),
        leave('os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_size_mb:128"'),
    ),
)
def visible_devices_value(node: cst.SimpleString | cst.Arg, site: Site) -> Report | None:
    name = string(node) if isinstance(node, cst.SimpleString) else variable_keyword(site, node)
    if name not in (VISIBLE, NPU_VISIBLE, ALLOCATOR, NPU_ALLOCATOR):
        return None
    if isinstance(node, cst.SimpleString) and not is_variable(site, node, None):
        return None
    for literal in _literals(value_of(site, node)):
        value = string(literal) or ""
        problem = value_problem(name, value)
        if problem:
            return Report(problem, at=literal)
    return None


def _literals(value: cst.CSTNode | None) -> Iterator[cst.SimpleString]:
    if isinstance(value, cst.SimpleString):
        yield value
    elif isinstance(value, cst.IfExp):
        yield from _literals(value.body)
        yield from _literals(value.orelse)


@rule(
    "NPU324",
    "environment-variable-without-counterpart",
    on=(cst.SimpleString, cst.Arg),
    words=WORDS,
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="an environment variable of CUDA or NCCL that nothing on the NPU reads",
    quiet=True,
    examples=(
        report('os.environ["NCCL_DEBUG"] = "INFO"'),
        report('os.environ.setdefault("NCCL_IB_DISABLE", "1")'),
        report('os.environ["NCCL_DEBUG"] = os.environ.get("NCCL_DEBUG", "WARN")'),
        report('if "TORCH_CUDA_ARCH_LIST" not in os.environ: pass'),
        report('os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"'),
        report("env = dict(os.environ, NCCL_P2P_DISABLE='1')"),
        report('os.environ["TORCH_NCCL_HIGH_PRIORITY"] = "1"', release="2.5.1"),
        leave('os.environ["CUDA_VISIBLE_DEVICES"] = "0"'),
        leave('print("NCCL_DEBUG")'),
        leave('os.environ.pop("NCCL_DEBUG", None)'),
        leave("env_info['CUDA_HOME'] = CUDA_HOME"),
        leave('limits["NCCL_DEBUG"] = 3'),
        leave("from torch.utils.cpp_extension import CUDA_HOME"),
    ),
)
def environment_variable_without_counterpart(
    node: cst.SimpleString | cst.Arg, site: Site
) -> Report | None:
    name = string(node) if isinstance(node, cst.SimpleString) else variable_keyword(site, node)
    if name is None or variable(name, site.options.torch_npu):
        return None
    advice = variable_advice(name)
    if advice is None or (isinstance(node, cst.SimpleString) and not is_variable(site, node, None)):
        return None
    if removes(site, node) or _is_repeated(node, name, site):
        return None
    return Report(f"nothing on the NPU reads {name}: {advice}")


def _is_repeated(node: cst.CSTNode, name: str, site: Site) -> bool:
    """Whether the statement names the variable before: ``e[NAME] = e.get(NAME, …)``."""
    top = list(site.ancestors(node))[-1:]
    for literal in (found for root in top for found in _named(root, name)):
        if literal is node:
            return False
        if is_variable(site, literal, None):
            return True
    return False


def _named(node: cst.CSTNode, name: str) -> Iterator[cst.SimpleString]:
    if isinstance(node, cst.SimpleString) and string(node) == name:
        yield node
    for child in node.children:
        yield from _named(child, name)

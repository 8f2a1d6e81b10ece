"""Dotted names in strings that code resolves: patches of tests and dynamic access."""

from __future__ import annotations

import re

import libcst as cst

from cuda2npu.rule import Fix, FixLevel, Report, Site, leave, report, rewrite, rule
from cuda2npu_codemods.counterparts import advice, counterpart
from cuda2npu_codemods.expressions import string, terminal, with_value
from cuda2npu_codemods.triggers import GETATTR_WORDS, MOCK_WORDS

_DOTTED = re.compile(r"((?:\w+\.)*?)(torch\.cuda(?:\.\w+)*)")
_PATCHES = ("patch", "setattr", "delattr", "import_module", "spy", "stub", "object", "resolve_name")


def _patched(node: cst.SimpleString, site: Site) -> tuple[str, str] | None:
    """What stands before ``torch.cuda.…`` in a string that a call resolves, and that name."""
    match = _DOTTED.fullmatch(string(node) or "")
    arg = site.parent(node)
    call = site.parent(arg) if isinstance(arg, cst.Arg) else None
    if match is None or not isinstance(call, cst.Call) or call.args[0] is not arg:
        return None
    return (match[1], match[2]) if terminal(call.func) in _PATCHES else None


def _new_name(prefix: str, name: str, site: Site) -> str | None:
    new = counterpart(name, site.options.torch_npu)
    if (new is not None and not prefix and new.count(".") > 2) or name == "torch.cuda.amp":
        # Importing below torch.npu would load a second copy of the package.
        return new and new.replace("torch.npu", "torch_npu.npu", 1)
    return new


@rule(
    "NPU160",
    "patched-name",
    on=cst.SimpleString,
    words=MOCK_WORDS,
    fix=FixLevel.SAFE,
    quiet=True,
    why="a string names a function of torch.cuda that the rewritten code calls in torch.npu: "
    "the patch would change nothing",
    examples=(
        rewrite(
            "@mock.patch('torch.cuda.is_available', return_value=True)\ndef test(m): pass",
            "@mock.patch('torch.npu.is_available', return_value=True)\ndef test(m): pass",
        ),
        rewrite(
            "monkeypatch.setattr('torch.cuda.device_count', lambda: 2)",
            "monkeypatch.setattr('torch.npu.device_count', lambda: 2)",
        ),
        rewrite(
            "with patch('pkg.train.torch.cuda.synchronize'): pass",
            "with patch('pkg.train.torch.npu.synchronize'): pass",
        ),
        rewrite(
            "amp = import_module('torch.cuda.amp')", "amp = import_module('torch_npu.npu.amp')"
        ),
        leave("patch('torch.cuda.nccl.version')"),
        leave("patch('pkg.train.cuda.synchronize')"),
        leave("print('torch.cuda.is_available')"),
    ),
)
def patched_name(node: cst.SimpleString, site: Site) -> Fix | None:
    found = _patched(node, site)
    new = _new_name(*found, site) if found else None
    if found is None or new is None:
        return None
    return Fix({node: with_value(node, found[1], new)})


@rule(
    "NPU161",
    "patched-name-without-counterpart",
    on=cst.SimpleString,
    words=MOCK_WORDS,
    fix=FixLevel.NONE,
    why="a string names something of torch.cuda that torch.npu has no counterpart for",
    examples=(
        report("patch('torch.cuda.nccl.version')"),
        leave("patch('torch.cuda.is_available')"),
    ),
)
def patched_name_without_counterpart(node: cst.SimpleString, site: Site) -> Report | None:
    found = _patched(node, site)
    if found is None or counterpart(found[1], site.options.torch_npu) is not None:
        return None
    return Report(f"torch.npu has no counterpart for {found[1]}: {advice(found[1])}")


@rule(
    "NPU162",
    "cuda-by-string",
    on=cst.Call,
    words=GETATTR_WORDS,
    fix=FixLevel.SAFE,
    quiet=True,
    why="a string takes the module torch.cuda from torch: on the NPU it is torch.npu",
    examples=(
        rewrite("c = getattr(torch, 'cuda')", "c = getattr(torch, 'npu')"),
        rewrite("ok = hasattr(torch, 'cuda')", "ok = hasattr(torch, 'npu')"),
        leave("ok = getattr(args, 'cuda', False)"),
        leave("ok = hasattr(torch.version, 'cuda')"),
    ),
)
def cuda_by_string(node: cst.Call, site: Site) -> Fix | None:
    if terminal(node.func) not in ("getattr", "hasattr") or len(node.args) < 2:
        return None
    name = node.args[1].value
    if site.name(node.args[0].value) != "torch" or string(name) != "cuda":
        return None
    assert isinstance(name, cst.SimpleString)
    return Fix({name: with_value(name, "cuda", "npu")})

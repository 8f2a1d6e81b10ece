"""The method ``cuda`` of torch's classes, replaced by tests; and names of torch.cuda in strings."""

from __future__ import annotations

import re

import libcst as cst

from cuda2npu.rule import Fix, FixLevel, Report, Site, leave, report, rewrite, rule
from cuda2npu_codemods.expressions import string, terminal, with_value
from cuda2npu_codemods.mocks import PATCHES
from cuda2npu_codemods.triggers import GETATTR_WORDS, METHOD_WORDS, MOCK_WORDS

_CLASSES = re.compile(r"torch\.(Tensor|nn\.(modules\.(module\.)?)?Module)")
_SETTERS = ("object", "setattr", "delattr", "spy")


@rule(
    "NPU166",
    "patched-method",
    on=cst.SimpleString,
    words=(*GETATTR_WORDS, *METHOD_WORDS),
    fix=FixLevel.SAFE,
    quiet=True,
    why="a test replaces the method cuda of torch's tensors or modules; the rewritten code calls "
    "npu, so that the patch would change nothing",
    examples=(
        rewrite(
            "with mock.patch.object(torch.Tensor, 'cuda', fake): pass",
            "with mock.patch.object(torch.Tensor, 'npu', fake): pass",
        ),
        rewrite(
            "monkeypatch.setattr('torch.Tensor.cuda', fake)",
            "monkeypatch.setattr('torch.Tensor.npu', fake)",
        ),
        rewrite(
            "with mock.patch('torch.nn.Module.cuda'): pass",
            "with mock.patch('torch.nn.Module.npu'): pass",
        ),
        rewrite(
            "monkeypatch.setattr(torch.Tensor, 'cuda', fake)",
            "monkeypatch.setattr(torch.Tensor, 'npu', fake)",
        ),
        rewrite(
            "monkeypatch.setattr(torch, 'cuda', fake)", "monkeypatch.setattr(torch, 'npu', fake)"
        ),
        leave("monkeypatch.setattr(args, 'cuda', True)"),
        leave("print('torch.Tensor.cuda')"),
        leave("class Net:\n    def cuda(self): pass\npatch.object(Net, 'cuda')"),
    ),
)
def patched_method(node: cst.SimpleString, site: Site) -> Fix | None:
    arg = site.parent(node)
    call = site.parent(arg) if isinstance(arg, cst.Arg) else None
    if not isinstance(call, cst.Call) or terminal(call.func) not in PATCHES:
        return None
    owner, _, method = (string(node) or "").rpartition(".")
    if call.args[0] is arg:
        known = _CLASSES.fullmatch(owner) and method == "cuda"
        return Fix({node: with_value(node, ".cuda", ".npu")}) if known else None
    if string(node) != "cuda" or not _is_name(call, arg):
        return None
    name = site.name(call.args[0].value) or ""
    if name != "torch" and not _CLASSES.fullmatch(name):
        return None
    return Fix({node: with_value(node, "cuda", "npu")})


def _is_name(call: cst.Call, arg: cst.CSTNode | None) -> bool:
    """Whether an argument is the attribute's name: ``setattr(target, name, …)``."""
    return terminal(call.func) in _SETTERS and len(call.args) > 1 and call.args[1] is arg


@rule(
    "NPU167",
    "patched-method-of-own-class",
    on=cst.SimpleString,
    words=GETATTR_WORDS,
    fix=FixLevel.NONE,
    quiet=True,
    why="a test replaces the method cuda of a class or object; where the rewritten code calls "
    "npu() on it, the patch changes nothing: name npu here then",
    examples=(
        report("import unittest.mock as mock\nwith mock.patch.object(model, 'cuda'): pass"),
        report("monkeypatch.setattr(Net, 'cuda', lambda self: self)"),
        leave("monkeypatch.setattr(args, 'cuda', True)"),
        leave("setattr(args, 'cuda', use)"),
        leave("monkeypatch.setattr(torch.Tensor, 'cuda', fake)"),
        leave("class Net:\n    def cuda(self): pass\npatch.object(Net, 'cuda')"),
    ),
)
def patched_method_of_own_class(node: cst.SimpleString, site: Site) -> Report | None:
    arg = site.parent(node)
    call = site.parent(arg) if isinstance(arg, cst.Arg) else None
    if not isinstance(call, cst.Call) or string(node) != "cuda" or not _is_name(call, arg):
        return None
    name = site.name(call.args[0].value) or ""
    if name == "torch" or _CLASSES.fullmatch(name) or site.file.defines_method("cuda"):
        return None
    is_mock = terminal(call.func) in ("object", "spy")
    is_function = len(call.args) > 2 and isinstance(call.args[2].value, cst.Lambda)
    return Report() if is_mock or is_function else None


_NAME = re.compile(r"\btorch\.cuda\.\w|\.cuda\(|\btorch\.cuda\b")


@rule(
    "NPU168",
    "cuda-in-evaluated-code",
    on=cst.Call,
    words=("cuda",),
    fix=FixLevel.NONE,
    why="code in a string is not rewritten, and this speaks of CUDA: write it for torch.npu",
    examples=(
        report('eval("torch.cuda.synchronize()")'),
        report('exec("model.cuda()")'),
        leave('eval("1 + 1")'),
        leave('model.eval("torch.cuda")'),
    ),
)
def cuda_in_evaluated_code(node: cst.Call, site: Site) -> Report | None:
    if not isinstance(node.func, cst.Name) or node.func.value not in ("eval", "exec"):
        return None
    text = string(node.args[0].value) if node.args else None
    return Report() if text and _NAME.search(text) else None


@rule(
    "NPU169",
    "cuda-module-by-key",
    on=cst.Subscript,
    words=MOCK_WORDS,
    fix=FixLevel.NONE,
    why="sys.modules is asked for a module of torch.cuda, which the rewritten code does not use: "
    'name "torch.npu"',
    examples=(
        report('import sys\nm = sys.modules["torch.cuda"]'),
        leave('import sys\nm = sys.modules["torch"]'),
        leave('m = table["torch.cuda"]'),
    ),
)
def cuda_module_by_key(node: cst.Subscript, site: Site) -> Report | None:
    index = node.slice[0].slice
    key = string(index.value) if isinstance(index, cst.Index) else None
    if key is None or not re.fullmatch(r"torch\.cuda(\.\w+)*", key):
        return None
    return Report() if site.name(node.value) == "sys.modules" else None

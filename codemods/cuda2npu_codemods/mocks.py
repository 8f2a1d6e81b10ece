"""Dotted names in strings that code resolves: patches of tests and dynamic access."""

from __future__ import annotations

import ast
import re

import libcst as cst

from cuda2npu.rule import Fix, FixLevel, Report, Site, leave, report, rewrite, rule
from cuda2npu_codemods.counterparts import advice, counterpart
from cuda2npu_codemods.expressions import string, terminal, with_value
from cuda2npu_codemods.receivers import may_be_own
from cuda2npu_codemods.triggers import GETATTR_WORDS, MOCK_WORDS

_DOTTED = re.compile(r"((?:\w+\.)*?)(torch\.cuda(?:\.\w+)*)")
PATCHES = ("patch", "setattr", "delattr", "import_module", "spy", "stub", "object", "resolve_name")


_TRAIN = {"pkg/train.py": "import torch\nok = torch.cuda.is_available()"}


def _patched(node: cst.SimpleString, site: Site) -> tuple[str, str] | None:
    """What stands before ``torch.cuda.…`` in a string that a call resolves, and that name."""
    match = _DOTTED.fullmatch(string(node) or "")
    arg = site.parent(node)
    call = site.parent(arg) if isinstance(arg, cst.Arg) else None
    if match is None or not isinstance(call, cst.Call) or call.args[0] is not arg:
        return None
    return (match[1], match[2]) if terminal(call.func) in PATCHES else None


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
        rewrite(
            "with patch('pkg.train.torch.cuda.is_available'): pass",
            "with patch('pkg.train.torch.npu.is_available'): pass",
            beside=_TRAIN,
        ),
        leave("with patch('other.train.torch.cuda.is_available'): pass", beside=_TRAIN),
        leave("patch('torch.cuda.nccl.version')"),
        leave("patch('pkg.train.cuda.synchronize')"),
        leave("print('torch.cuda.is_available')"),
    ),
)
def patched_name(node: cst.SimpleString, site: Site) -> Fix | None:
    found = _patched(node, site)
    new = _new_name(*found, site) if found else None
    if found is None or new is None or _stays(site, *found):
        return None
    return Fix({node: with_value(node, found[1], new)})


def _stays(site: Site, prefix: str, name: str) -> str | None:
    """Why the code under test goes on to call the name: the string follows that code."""
    project, module = site.file.project, prefix.rstrip(".")
    if not module or not project.here:
        return None
    if module not in project.calls:
        return f"{module} is not among the files of this project, which are converted"
    if name in project.calls[module]:
        return f"{module} still calls {name} when it is converted"
    return None


@rule(
    "NPU165",
    "patched-name-of-other-code",
    on=cst.SimpleString,
    words=MOCK_WORDS,
    fix=FixLevel.NONE,
    quiet=True,
    why="a string names a function of torch.cuda in a module that goes on to call it there: it "
    "was left, as the patch follows the code under test",
    examples=(
        report("patch('other.train.torch.cuda.is_available')", beside=_TRAIN),
        report(
            "patch('pkg.kept.torch.cuda.is_available')",
            beside={
                "pkg/kept.py": "# cuda2npu: skip-file\nimport torch\nok = torch.cuda.is_available()"
            },
        ),
        leave("patch('pkg.train.torch.cuda.is_available')", beside=_TRAIN),
    ),
)
def patched_name_of_other_code(node: cst.SimpleString, site: Site) -> Report | None:
    found = _patched(node, site)
    reason = _stays(site, *found) if found and _new_name(*found, site) else None
    if reason is None:
        return None
    return Report(f"{reason}, so that this patch was left: look whether it still has an effect")


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


@rule(
    "NPU163",
    "cuda-method-by-string",
    on=cst.Call,
    words=GETATTR_WORDS,
    fix=FixLevel.SAFE,
    why="a string names the method cuda, which needs a CUDA build of torch; on the NPU it is npu",
    examples=(
        rewrite('model = getattr(model, "cuda")()', 'model = getattr(model, "npu")()'),
        rewrite(
            "import operator\nmove = operator.methodcaller('cuda')",
            "import operator\nmove = operator.methodcaller('npu')",
        ),
        leave('use = getattr(args, "cuda")'),
        leave('class G:\n    def cuda(self): pass\ngetattr(g, "cuda")()'),
    ),
)
def cuda_method_by_string(node: cst.Call, site: Site) -> Fix | None:
    callee, place = terminal(node.func), 1
    if callee == "methodcaller" and site.name(node.func) in _METHOD_CALLERS:
        place = 0
    elif callee != "getattr" or len(node.args) != 2 or not _is_called(node, site):
        return None
    name = node.args[place].value if len(node.args) > place else None
    if not isinstance(name, cst.SimpleString) or string(name) != "cuda":
        return None
    owned = site.file.defines_method("cuda") or may_be_own(site, "cuda", node.args[0].value)
    if owned or site.name(node.args[0].value) == "torch":
        return None
    return Fix({name: with_value(name, "cuda", "npu")})


_METHOD_CALLERS = ("operator.methodcaller", "methodcaller")


def _is_called(node: cst.Call, site: Site) -> bool:
    parent = site.parent(node)
    return isinstance(parent, cst.Call) and parent.func is node


_TYPE_PARTS = (cst.Index, cst.SubscriptElement, cst.Subscript, cst.BinaryOperation)


@rule(
    "NPU164",
    "quoted-annotation",
    on=cst.SimpleString,
    words=MOCK_WORDS,
    fix=FixLevel.SAFE,
    quiet=True,
    why="a quoted annotation names a class of torch.cuda; on the NPU it is torch.npu's",
    examples=(
        rewrite(
            'import torch\ndef f(s: "torch.cuda.Stream"): pass',
            'import torch\nimport torch_npu  # noqa: F401\ndef f(s: "torch.npu.Stream"): pass',
        ),
        rewrite(
            'import torch\ndef f() -> Optional["torch.cuda.Event"]: pass',
            "import torch\nimport torch_npu  # noqa: F401\n"
            'def f() -> Optional["torch.npu.Event"]: pass',
        ),
        rewrite(
            'import torch\ndef f(s: "list[torch.cuda.Event] | None" = None): pass',
            "import torch\nimport torch_npu  # noqa: F401\n"
            'def f(s: "list[torch.npu.Event] | None" = None): pass',
        ),
        leave('def f(s: "torch.cuda.Stream of work"): pass'),
        leave('def f(kind: Literal["torch.cuda.Stream"]): pass'),
        leave('def f(s: "torch.cuda.nccl.Group"): pass'),
    ),
)
def quoted_annotation(node: cst.SimpleString, site: Site) -> Fix | None:
    value = string(node) or ""
    names = _IN_ANNOTATION.findall(value)
    if not names or not _is_type(value) or not _is_annotation(node, site):
        return None
    if any(counterpart(name, site.options.torch_npu) is None for name in names):
        return None
    new = _IN_ANNOTATION.sub(
        lambda match: counterpart(match[0], site.options.torch_npu) or match[0], node.value
    )
    return Fix({node: node.with_changes(value=new)})


_IN_ANNOTATION = re.compile(r"(?<![\w.])torch\.cuda(?:\.\w+)+")


def _is_type(text: str) -> bool:
    try:
        ast.parse(text, mode="eval")
    except SyntaxError:
        return False
    return True


def _is_annotation(node: cst.CSTNode, site: Site) -> bool:
    for ancestor in site.ancestors(node):
        if isinstance(ancestor, cst.Subscript) and terminal(ancestor) in ("Literal", "Annotated"):
            return False
        if not isinstance(ancestor, _TYPE_PARTS):
            return isinstance(ancestor, cst.Annotation)
    return False

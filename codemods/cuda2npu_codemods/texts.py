"""Texts for people, which stay as they are unless they name what is edited beside them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from cuda2npu.rule import Fix, FixLevel, Site, leave, rewrite, rule
from cuda2npu_codemods.arguments import Use
from cuda2npu_codemods.devices import device_string
from cuda2npu_codemods.environments import is_chosen_by_device, is_variable
from cuda2npu_codemods.expressions import string
from cuda2npu_codemods.uses import use_of
from cuda2npu_codemods.variables import COUNTERPARTS, variable

_DEVICE = re.compile(r"(?<![\w.$/-])cuda(?=(:\d+)?(?![\w(/-]|\.\w))")
"""The device as a word; not ``torch.cuda``, ``--cuda`` or ``cuda-toolkit``."""


@rule(
    "NPU146",
    "device-in-help",
    on=cst.SimpleString,
    words=("cuda",),
    fix=FixLevel.SAFE,
    why="the help of an option names its device, which is edited beside it",
    quiet=True,
    examples=(
        rewrite(
            'p.add_argument("--device", default="cuda", help="where to run, default is cuda.")',
            'p.add_argument("--device", default="npu", help="where to run, default is npu.")',
        ),
        rewrite(
            'p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu",'
            '\n    help="cuda if available, "\n    "else cpu")',
            'p.add_argument("--device", default="npu" if torch.npu.is_available() else "cpu",'
            '\n    help="npu if available, "\n    "else cpu")',
        ),
        rewrite(
            'class A:\n    device: str = field(default="cuda", metadata={"help": "cuda:0 or cpu"})',
            'class A:\n    device: str = field(default="npu", metadata={"help": "npu:0 or cpu"})',
        ),
        leave('p.add_argument("--device", default="", help="cuda device, 0 or cpu")'),
        leave('p.add_argument("--device", default="cuda", help="see torch.cuda and --cuda")'),
        leave('p.add_argument("--impl", default="cuda", help="cuda or reference")'),
        leave('p.add_argument("--device", choices=["cuda", "mps"], help="cuda or mps")'),
    ),
)
def device_in_help(node: cst.SimpleString, site: Site) -> Fix | None:
    text = node.raw_value if isinstance(string(node), str) else ""
    new = _DEVICE.sub("npu", text)
    option = _option_helped_by(node, site) if new != text else None
    if option is None or not any(_becomes_npu(part, site) for part in _literals(option)):
        return None
    return Fix({node: _with_text(node, new)}, imports=())


def _option_helped_by(node: cst.CSTNode, site: Site) -> cst.Call | None:
    """The call that defines an option and takes the text as its help."""
    is_help = False
    for ancestor in site.ancestors(node):
        if isinstance(ancestor, cst.Arg) and ancestor.keyword is not None:
            is_help = is_help or ancestor.keyword.value == "help"
        elif isinstance(ancestor, cst.DictElement):
            is_help = string(ancestor.key) == "help"
        elif isinstance(ancestor, cst.Call):
            return ancestor if is_help else None
    return None


def _becomes_npu(node: cst.SimpleString, site: Site) -> bool:
    fix = device_string.function(node, site)
    return isinstance(fix, Fix) and node in fix.edits


@rule(
    "NPU326",
    "variable-in-text",
    on=(cst.SimpleString, cst.FormattedStringText),
    words=tuple(COUNTERPARTS),
    fix=FixLevel.SAFE,
    why="a text names the environment variable whose value it shows, and which is edited beside it",
    quiet=True,
    examples=(
        rewrite(
            "print(f\"CUDA_VISIBLE_DEVICES: {os.getenv('CUDA_VISIBLE_DEVICES')}\")",
            "print(f\"ASCEND_RT_VISIBLE_DEVICES: {os.getenv('ASCEND_RT_VISIBLE_DEVICES')}\")",
        ),
        rewrite(
            'log.info("CUDA_VISIBLE_DEVICES=%s", os.environ["CUDA_VISIBLE_DEVICES"])',
            'log.info("ASCEND_RT_VISIBLE_DEVICES=%s", os.environ["ASCEND_RT_VISIBLE_DEVICES"])',
        ),
        rewrite(
            'print("CUDA_VISIBLE_DEVICES", os.environ["CUDA_VISIBLE_DEVICES"])',
            'print("ASCEND_RT_VISIBLE_DEVICES", os.environ["ASCEND_RT_VISIBLE_DEVICES"])',
        ),
        leave('print("set CUDA_VISIBLE_DEVICES")\nn = os.environ["CUDA_VISIBLE_DEVICES"]'),
        leave("print(f\"CUDA_VISIBLE_DEVICES: {values['CUDA_VISIBLE_DEVICES']}\")"),
        leave('ok = "CUDA_VISIBLE_DEVICES" in os.environ'),
        leave("print(f\"MY_CUDA_VISIBLE_DEVICES: {os.getenv('CUDA_VISIBLE_DEVICES')}\")"),
    ),
)
def variable_in_text(node: cst.SimpleString | cst.FormattedStringText, site: Site) -> Fix | None:
    if isinstance(node, cst.SimpleString) and is_variable(site, node, None):
        return None  # NPU320
    text = node.raw_value if isinstance(node, cst.SimpleString) else node.value
    named = [name for name in COUNTERPARTS if re.search(rf"\b{name}\b", text)]
    shown = _variables_beside(node, site) if named else set()
    new = text
    for name in shown.intersection(named):
        counterpart = variable(name, site.options.torch_npu)
        if counterpart is not None and not is_chosen_by_device(site, counterpart):
            new = re.sub(rf"\b{name}\b", counterpart, new)
    return Fix({node: _with_text(node, new)}, imports=()) if new != text else None


def _variables_beside(node: cst.SimpleString | cst.FormattedStringText, site: Site) -> set[str]:
    """The variables that are read in the f-string or the message which the text is part of."""
    whole = node if isinstance(node, cst.SimpleString) else site.parent(node)
    use = use_of(site, whole) if whole is not None else Use.KEY
    if whole is None or use not in (Use.TEXT, None) or (whole is node and use is None):
        return set()
    messages = (cst.Call, cst.Raise, cst.Assert)
    around = [a for a in site.ancestors(whole) if isinstance(a, messages)] if use else []
    literals = _literals(around[0] if around else whole)
    return {string(part) or "" for part in literals if is_variable(site, part, None)}


def _literals(node: cst.CSTNode) -> Iterator[cst.SimpleString]:
    if isinstance(node, cst.SimpleString):
        yield node
    for child in node.children:
        yield from _literals(child)


def _with_text(
    node: cst.SimpleString | cst.FormattedStringText, text: str
) -> cst.SimpleString | cst.FormattedStringText:
    if isinstance(node, cst.SimpleString):
        text = f"{node.prefix}{node.quote}{text}{node.quote}"
    return node.with_changes(value=text)

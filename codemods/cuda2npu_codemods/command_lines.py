"""Command lines in strings that set an environment variable of CUDA or NCCL."""

from __future__ import annotations

import re

import libcst as cst

from cuda2npu.rule import Fix, FixLevel, Site, leave, rewrite, rule
from cuda2npu_codemods.arguments import Use
from cuda2npu_codemods.expressions import terminal
from cuda2npu_codemods.uses import use_of
from cuda2npu_codemods.variables import COUNTERPARTS, variable

_NAME = rf"(?P<name>{'|'.join(sorted(COUNTERPARTS, key=len, reverse=True))})(?==)"
_IN_COMMAND = re.compile(
    r"(?P<before>^\s*|[;&|(]\s*|\b(?:export|env|sudo)\s+|\s-e\s+|--env[ =]|\b[A-Z_]\w*=\S*\s+)"
    + _NAME,
    re.M,
)
_COMMAND = re.compile(
    r"\b(python3?|torchrun|accelerate|deepspeed|mpirun|srun|docker|nohup|uv|(ba|z)?sh|export|env)\s"
    r"|\S/\S+|[\w-]+\.(py|sh)\b"
)
_SHELL = re.compile(
    r"(\w*_)?(system|run|popen|call|check_call|check_output|getoutput|exec\w*|shell|submit"
    r"|cmds?|commands?)(_\w*)?",
    re.I,
)
"""Functions that start a command, and variables that hold one."""


@rule(
    "NPU322",
    "cuda-environment-command",
    on=(cst.SimpleString, cst.FormattedStringText),
    words=tuple(f"{name}=" for name in COUNTERPARTS),
    fix=FixLevel.SAFE,
    why="a command line sets an environment variable of CUDA or NCCL, which the NPU ignores",
    quiet=True,
    examples=(
        rewrite(
            'os.system("CUDA_VISIBLE_DEVICES=0,1 python train.py")',
            'os.system("ASCEND_RT_VISIBLE_DEVICES=0,1 python train.py")',
        ),
        rewrite(
            'cmd = f"cd {d} && CUDA_VISIBLE_DEVICES={i} python -m train"',
            'cmd = f"cd {d} && ASCEND_RT_VISIBLE_DEVICES={i} python -m train"',
        ),
        rewrite(
            'cmd = ["env", "CUDA_VISIBLE_DEVICES=0", "python"]',
            'cmd = ["env", "ASCEND_RT_VISIBLE_DEVICES=0", "python"]',
        ),
        rewrite(
            "cmd = 'CUDA_VISIBLE_DEVICES=%d CUDA_LAUNCH_BLOCKING=1 python a.py' % i",
            "cmd = 'ASCEND_RT_VISIBLE_DEVICES=%d ASCEND_LAUNCH_BLOCKING=1 python a.py' % i",
        ),
        leave('print("CUDA_VISIBLE_DEVICES=0 python train.py")'),
        rewrite(
            'script_cmd = f"CUDA_VISIBLE_DEVICES={seed % 4} {job}"',
            'script_cmd = f"ASCEND_RT_VISIBLE_DEVICES={seed % 4} {job}"',
        ),
        leave('raise ValueError(f"CUDA_VISIBLE_DEVICES={ids}")'),
        leave("""note((f"step {n}: " f"CUDA_VISIBLE_DEVICES={env.get('A')} "))"""),
        leave('die(f"CUDA_VISIBLE_DEVICES={raw!r} contains an empty entry.")'),
        leave('text = "set CUDA_VISIBLE_DEVICES=0 to choose a device"'),
    ),
)
def cuda_environment_command(
    node: cst.SimpleString | cst.FormattedStringText, site: Site
) -> Fix | None:
    text = node.raw_value if isinstance(node, cst.SimpleString) else node.value
    release = site.options.torch_npu
    new = previous = text
    while True:  # one assignment is what shows the next one
        new = _IN_COMMAND.sub(
            lambda m: m["before"] + (variable(m["name"], release) or m["name"]), previous
        )
        if new == previous:
            break
        previous = new
    if new == text or not _is_command(node, text, site):
        return None
    if isinstance(node, cst.SimpleString):
        new = f"{node.prefix}{node.quote}{new}{node.quote}"
    return Fix({node: node.with_changes(value=new)}, imports=())


def _is_command(node: cst.CSTNode, text: str, site: Site) -> bool:
    whole = node if isinstance(node, cst.SimpleString) else site.parent(node) or node
    if use_of(site, whole) is Use.KEY or _is_message(site, whole):
        return False
    outer = [whole, *(a for a in site.ancestors(whole) if isinstance(a, cst.ConcatenatedString))]
    alone = re.fullmatch(r"[A-Z_]+=[\w,]*", text) and isinstance(site.parent(whole), cst.Element)
    return bool(alone or _COMMAND.search(_literal_text(outer[-1])) or _runs(site, whole))


def _literal_text(node: cst.CSTNode) -> str:
    """What a string says, without the expressions that are formatted in."""
    if isinstance(node, cst.ConcatenatedString):
        return _literal_text(node.left) + _literal_text(node.right)
    if isinstance(node, cst.FormattedString):
        return "".join(
            p.value if isinstance(p, cst.FormattedStringText) else "" for p in node.parts
        )
    return node.raw_value if isinstance(node, cst.SimpleString) else ""


def _runs(site: Site, node: cst.CSTNode) -> bool:
    """Whether the text goes to a function or variable that holds commands."""
    for ancestor in site.ancestors(node):
        names = [ancestor.func] if isinstance(ancestor, cst.Call) else []
        if isinstance(ancestor, cst.Assign):
            names = [target.target for target in ancestor.targets]
        if any(_SHELL.fullmatch(terminal(name) or "") for name in names):
            return True
    return False


_MESSAGES = re.compile(
    r"print|pprint|warn(ing)?|info|debug|error|exception|critical|log|write|echo|fail|skip"
    r"|\w*(Error|Exception|Warning|Exit)|add_argument|skipif|skipUnless|skipIf"
)


def _is_message(site: Site, node: cst.CSTNode) -> bool:
    """Whether a text is shown to people: printed, logged, raised or asserted."""
    for ancestor in site.ancestors(node):
        if isinstance(ancestor, (cst.Raise, cst.Assert)):
            return True
        keyword = ancestor.keyword if isinstance(ancestor, cst.Arg) else None
        if keyword and keyword.value in ("help", "description", "reason", "epilog"):
            return True
        if isinstance(ancestor, cst.Call):
            func = ancestor.func
            name = func.attr if isinstance(func, cst.Attribute) else func
            if isinstance(name, cst.Name) and _MESSAGES.fullmatch(name.value):
                return True
    return False


_OPTION = re.compile(
    r"(?P<flag>--[\w-]*(backend|device|device[-_]type)[ =]+)"
    r"(?P<value>(?<=backend[ =])nccl|(?<=device[ =])cuda|(?<=type[ =])cuda)(?=$|[\s:\"'\\;&|)])"
)


@rule(
    "NPU325",
    "device-in-command-line",
    on=(cst.SimpleString, cst.FormattedStringText),
    words=("backend nccl", "backend=nccl", "device cuda", "device=cuda", "type cuda", "type=cuda"),
    fix=FixLevel.SAFE,
    why="a command line passes CUDA's device or backend to a program that runs on the NPU",
    examples=(
        rewrite(
            'os.system("torchrun train.py --dist-backend nccl --device cuda:0")',
            'os.system("torchrun train.py --dist-backend hccl --device npu:0")',
        ),
        rewrite(
            'cmd = f"python a.py --device=cuda --out {out}"',
            'cmd = f"python a.py --device=npu --out {out}"',
        ),
        leave('print("python a.py --device cuda")'),
        leave('cmd = "nvcc --device cuda_arch a.cu"'),
        leave('text = "pass --device cuda to use a GPU"'),
    ),
)
def device_in_command_line(
    node: cst.SimpleString | cst.FormattedStringText, site: Site
) -> Fix | None:
    text = node.raw_value if isinstance(node, cst.SimpleString) else node.value
    new = _OPTION.sub(lambda m: m["flag"] + ("hccl" if m["value"] == "nccl" else "npu"), text)
    if new == text or not _is_command(node, text, site):
        return None
    if isinstance(node, cst.SimpleString):
        new = f"{node.prefix}{node.quote}{new}{node.quote}"
    return Fix({node: node.with_changes(value=new)}, imports=())

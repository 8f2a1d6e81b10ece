"""Command lines in strings that set an environment variable of CUDA or NCCL."""

from __future__ import annotations

import re

import libcst as cst

from cuda2npu.rule import BACKEND, DEVICE, Fix, FixLevel, Site, leave, rewrite, rule
from cuda2npu_codemods.arguments import Use
from cuda2npu_codemods.programs import changes_folder, runs, starts_elsewhere, takes, words_before
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


@rule(
    "NPU322",
    "cuda-environment-command",
    on=(cst.SimpleString, cst.FormattedStringText),
    words=tuple(f"{name}=" for name in COUNTERPARTS),
    fix=FixLevel.SAFE,
    missed_by_shim=True,
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
    return bool(alone or _COMMAND.search(_literal_text(outer[-1])) or runs(site, whole))


def _literal_text(node: cst.CSTNode) -> str:
    """What a string says, without the expressions that are formatted in."""
    if isinstance(node, cst.ConcatenatedString):
        return _literal_text(node.left) + _literal_text(node.right)
    if isinstance(node, cst.FormattedString):
        return "".join(
            p.value if isinstance(p, cst.FormattedStringText) else "" for p in node.parts
        )
    return node.raw_value if isinstance(node, cst.SimpleString) else ""


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

_VALUE = re.compile(r"cuda(:\d*)?|nccl|cpu:gloo,cuda:nccl")
_NEW = {"nccl": "hccl", "cuda": "npu"}


@rule(
    "NPU325",
    "device-in-command-line",
    on=(cst.SimpleString, cst.FormattedStringText),
    words=("nccl", "cuda"),
    fix=FixLevel.UNSAFE,
    why="a command line passes CUDA's device or backend to a program; nothing in the project shows "
    "that the program takes the NPU's: if it does, write npu or hccl, or run with --unsafe",
    examples=(
        rewrite(
            'os.system("torchrun train.py --dist-backend nccl --device cuda:0")',
            'os.system("torchrun train.py --dist-backend hccl --device npu:0")',
        ),
        rewrite(
            'cmd = f"python a.py --device=cuda --out {out}"',
            'cmd = f"python a.py --device=npu --out {out}"',
            beside={
                "a.py": "import torch\n"
                'p.add_argument("--device", default="cuda")\nd = torch.device(args.device)'
            },
        ),
        rewrite(
            'os.system("whisper-cli a.mp3 --device cuda")',
            'os.system("whisper-cli a.mp3 --device npu")',
        ),
        rewrite(
            'subprocess.run(["whisper-cli", "a.mp3", "--device", "cuda"])',
            'subprocess.run(["whisper-cli", "a.mp3", "--device", "npu"])',
        ),
        rewrite('cmd = ["trtexec", "--backend", "nccl"]', 'cmd = ["trtexec", "--backend", "hccl"]'),
        leave('print("python a.py --device cuda")'),
        leave('cmd = "nvcc --device cuda_arch a.cu"'),
        leave('text = "pass --device cuda to use a GPU"'),
    ),
)
def device_in_command_line(
    node: cst.SimpleString | cst.FormattedStringText, site: Site
) -> Fix | None:
    text = node.raw_value if isinstance(node, cst.SimpleString) else node.value
    whole = node if isinstance(node, cst.SimpleString) else site.parent(node) or node
    if _VALUE.fullmatch(text) and use_of(site, whole) is Use.COMMAND:
        new = text.replace("cuda", "npu").replace("nccl", "hccl")
    else:
        new = _OPTION.sub(lambda m: m["flag"] + _NEW[m["value"]], text)
        if new == text or not _is_command(node, text, site):
            return None
    if isinstance(node, cst.SimpleString):
        new = f"{node.prefix}{node.quote}{new}{node.quote}"
    edits = {node: node.with_changes(value=new)}
    if _is_taken(node, site):
        return Fix(edits, _TAKEN, level=FixLevel.SAFE, imports=())
    return Fix(edits, imports=())


_TAKEN = (
    "a command line passes CUDA's device or backend to a program of the project, which hands "
    "it to torch: on an NPU it is npu or hccl"
)


def _is_taken(node: cst.CSTNode, site: Site) -> bool:
    """Whether every program that the whole text gives a device or backend to takes it."""
    within = (cst.FormattedString, cst.ConcatenatedString)
    outer = [node, *(a for a in site.ancestors(node) if isinstance(a, within))]
    text = _literal_text(outer[-1])
    if changes_folder(text) or starts_elsewhere(site, node):
        return False
    # an item with blanks is a command of its own, as behind bash -c
    before = [] if " " in text else words_before(site, site.parent(outer[-1])) or []
    for command in re.split(r"[;|&\n]+", text):
        for match in _OPTION.finditer(command):
            flag = match["flag"].strip(" =")
            kind = BACKEND if match["value"] == "nccl" else DEVICE
            words = [*before, *command[: match.start()].split()]
            if not takes(site.file.project, words, flag, kind):
                return False
    return bool(_OPTION.search(text))

"""Command lines of shell scripts and makefiles: options, programs, schedulers, containers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cuda2npu.rule import Fix, FixLevel, Report, leave, report, rewrite, rule
from cuda2npu.tokens import (
    Assignment,
    Command,
    Directive,
    DocumentSite,
    InlinePython,
    Token,
    Word,
)
from cuda2npu_codemods.programs import WRAPPERS, changes_folder, overrides_of, takes

_RANKS = re.compile(r"torchrun|(torch\.distributed\.)?(run|launch)")


def program(command: Command) -> Word | None:
    """The word that names what a command runs, behind ``sudo``, ``srun -n 4`` and the like."""
    words = iter(command.words)
    for word in words:
        if word.value.startswith("-") or re.fullmatch(r"\w+=.*|[\d.]+[smh]?", word.value, re.S):
            continue
        if word.value not in WRAPPERS:
            return word
    return None


def _base(word: Word | None) -> str:
    return word.value.rpartition("/")[2] if word is not None else ""


def _told(command: Command) -> str:
    """The name of the script or module that a command runs, for messages."""
    for before, word in zip(("", *(w.value for w in command.words)), command.words, strict=False):
        if word.value.endswith((".py", ".sh")) or before == "-m":
            return word.value.rpartition("/")[2]
    named = program(command)
    return named.text.rpartition("/")[2] if named and not command.in_string else "a program"


def _options(command: Command) -> Iterator[tuple[str, str, Word]]:
    """Option names without dashes, their values, and the words that hold the values."""
    words = command.words
    for index, word in enumerate(words):
        name, equals, value = word.value.partition("=")
        if equals:
            yield name, value, word
        elif name.startswith("-") and index + 1 < len(words):
            yield name, words[index + 1].value, words[index + 1]


_OPTION = re.compile(r"(--?)?([\w.-]*[-_.])?(?P<kind>backend|device|device[-_]type)")
_VALUE = re.compile(r"(?<![\w.-])(nccl|cuda)(?![\w-])")
_NEW = {"nccl": "hccl", "cuda": "npu"}
_TELLERS = frozenset("echo printf log die warn error usage info".split())

_PARSES_DEVICE = (
    'import torch\np.add_argument("--device", default="cuda")\nd = torch.device(args.device)\n'
)


@rule(
    "NPU824",
    "shell-device-option",
    on=(Command, Assignment),
    words=("nccl", "cuda"),
    fix=FixLevel.UNSAFE,
    why="a command line passes CUDA's device or backend to a program; whether the program takes "
    "the NPU's is for its own options to say",
    examples=(
        rewrite(
            "python train.py --dist-backend nccl --device cuda:0\n",
            "python train.py --dist-backend hccl --device npu:0\n",
            path="train.sh",
        ),
        rewrite(
            'ARGS="\n    --distributed-backend nccl \\\n    --lr 1\n"\npython a.py $ARGS\n',
            'ARGS="\n    --distributed-backend hccl \\\n    --lr 1\n"\npython a.py $ARGS\n',
            path="train.sh",
        ),
        rewrite("ARGS=(--device=cuda)\n", "ARGS=(--device=npu)\n", path="train.sh"),
        rewrite("train:\n\tpython a.py device=cuda\n", "train:\n\tpython a.py device=npu\n",
                path="Makefile"),
        rewrite('a --device "cuda:$RANK"', 'a --device "npu:$RANK"', path="a.sh"),
        rewrite("a --device='cuda' b", "a --device='npu' b", path="a.sh"),
        rewrite("D=${1:-cuda}\npython a.py --device $D\n", "D=${1:-npu}\npython a.py --device $D\n",
                path="a.sh"),
        rewrite("DEVICE ?= cuda\nt:\n\tpython a.py --device=$(DEVICE)\n",
                "DEVICE ?= npu\nt:\n\tpython a.py --device=$(DEVICE)\n", path="Makefile"),
        report("D=cuda\ncase $D in cuda) a;; esac\npython a.py --device $D\n", path="a.sh"),
        rewrite("python a.py --device cuda\n", "python a.py --device npu\n", path="a.sh",
                beside={"a.py": _PARSES_DEVICE}),
        leave("D=cuda\nmkdir out/$D\n", path="a.sh"),
        leave("git checkout device=cuda\n", path="a.sh"),
        leave("python train.py --cuda --gpu 0 --name cuda --data nccl\n", path="a.sh"),
        leave("echo 'use --device cuda'\n", path="a.sh"),
        leave("python train.py --device cpu --backend gloo\n", path="a.sh"),
        leave("python train.py  # --device cuda\n", path="a.sh"),
    ),
)  # fmt: skip
def shell_device_option(token: Command | Assignment, site: DocumentSite) -> Fix | Report | None:
    if isinstance(token, Assignment):
        return _variable_of_option(token, site)
    if _base(program(token)) in _TELLERS:
        return None
    edits: dict[Token, str] = {}
    overrides = overrides_of(token)
    proven = not changes_folder(site.text)
    for name, value, word in _options(token):
        option = _OPTION.fullmatch(name)
        if not name.startswith("-") and word.start < overrides:
            continue
        is_backend = option is not None and option["kind"] == "backend"
        wanted, kind = ("nccl", "backend") if is_backend else ("cuda", "device")
        if option and wanted in value and re.match(r"nccl$|cuda(:|$)|cpu:gloo,cuda:nccl$", value):
            tail = word.text.rpartition("=")[2]
            edits |= _renamed(word, len(word.text) - len(tail))
            proven &= not token.in_string and takes(site.project, _before(token, word), name, kind)
    return _to_npu(edits, _told(token), proven) if edits else None


def _before(command: Command, word: Word) -> list[str]:
    """What a command says in front of a word."""
    return [each.value for each in command.words if each.start < word.start]


def _renamed(token: Token, offset: int) -> dict[Token, str]:
    """The edits that put the NPU's names into a value, which begins at ``offset``."""
    return {
        token.part(match.start(), match.end()): _NEW[match[1]]
        for match in _VALUE.finditer(token.text, offset)
    }


def _to_npu(edits: dict[Token, str], told: str, proven: bool = False) -> Fix:
    """The fix; ``proven`` says that the project's code takes the values for what they are."""
    old = ", ".join(dict.fromkeys(repr(token.text) for token in edits))
    new = ", ".join(dict.fromkeys(map(repr, edits.values())))
    at = next(iter(edits))
    if proven:
        message = f"{told} is given {old}, which torch gets to see: on an NPU it is {new}"
        return Fix(edits, message, level=FixLevel.SAFE, at=at)
    message = (
        f"{told} is given {old}: where that becomes its device or backend, write "
        f"{new}, once the program itself speaks to NPUs (--unsafe does it)"
    )
    return Fix(edits, message, at=at)


def _variable_of_option(token: Assignment, site: DocumentSite) -> Fix | Report | None:
    """``DEVICE=cuda``, or ``DEVICE=${1:-cuda}``, where an option is given ``$DEVICE``."""
    value = (token.value or "").strip("\"'")
    default = re.fullmatch(r"(\$\{\w+:[-=])?(cuda|nccl)(:\d+)?\}?", value)
    if default is None:
        return None
    kind = "backend" if default[2] == "nccl" else "device([-_]type)?"
    given = rf"[-_.\w]*{kind}[ =]+[\"']?\$[({{]?{token.name}\b"
    if not re.search(given, site.text):
        return None
    reference = rf"[\"']?\$[({{]?{token.name}\b[^\s\"')}}]*[)}}]?[\"']?"
    compared = rf"{reference}\s*([!=]=|=|=~)|[=~]\s*{reference}\s*\]|case\s+{reference}\s+in\b"
    if re.search(rf"{compared}|ifn?eq\b.*{reference}", site.text):
        new = _NEW[default[2]]
        return Report(f"${token.name} is also compared: on an NPU write {new!r} in every place")
    start = token.text.rindex(default[2])
    return _to_npu({token.part(start, start + len(default[2])): _NEW[default[2]]}, "an option")


@rule(
    "NPU825",
    "processes-per-gpu",
    on=Command, words=("gpu",),
    fix=FixLevel.SAFE, missed_by_shim=True,
    why="torchrun counts GPUs for --nproc_per_node gpu and fails without one; with torch_npu, "
    "which torch 2.5 and newer load by themselves, it takes npu",
    examples=(
        rewrite("torchrun --nproc_per_node=gpu a.py", "torchrun --nproc_per_node=npu a.py",
                path="a.sh"),
        rewrite("python -m torch.distributed.run --nproc-per-node gpu a.py",
                "python -m torch.distributed.run --nproc-per-node npu a.py", path="a.sh"),
        report("torchrun --nproc_per_node=gpu a.py", release="2.1.0", path="a.sh"),
        leave("torchrun --nproc_per_node=auto a.py --mode gpu", path="a.sh"),
    ),
    source="determine_local_world_size of torch.distributed.run, torch 2.13",
)  # fmt: skip
def processes_per_gpu(token: Command, site: DocumentSite) -> Fix | Report | None:
    if not any(_RANKS.fullmatch(_base(word)) for word in token.words):
        return None
    for name, value, word in _options(token):
        if name in ("--nproc_per_node", "--nproc-per-node") and value == "gpu":
            if tuple(map(int, site.options.torch_npu.split(".")))[:2] < (2, 5):
                return Report("torchrun finds no GPU here: give the number of NPUs", at=word)
            start = word.text.rindex("gpu")
            return Fix({word.part(start, start + len("gpu")): "npu"}, at=word)
    return None


_DRIVER = "it speaks to NVIDIA's driver: drop it"
_COMPILER = (
    "it compiles for CUDA, and kernels for NPUs have to be written anew, in Ascend C or "
    "Triton-Ascend: build them by CANN's tools"
)
_PROFILER = "it profiles GPUs only: use CANN's msprof, or torch_npu.profiler in the code"
_DEBUGGER = "it works on CUDA kernels only; CANN has msdebug and mssanitizer for Ascend C"
_SMI = "it asks NVIDIA's driver: call `npu-smi info`, whose output has other lines and columns"
_PROGRAMS = {
    "nvidia-smi": _SMI,
    "nvitop": "it watches GPUs only: call `npu-smi info watch`",
    "gpustat": "it watches GPUs only: call `npu-smi info watch`",
    "nvcc": _COMPILER,
    "ptxas": _COMPILER,
    "cuobjdump": _COMPILER,
    "nvdisasm": _COMPILER,
    "nsys": _PROFILER,
    "ncu": _PROFILER,
    "nvprof": _PROFILER,
    "nv-nsight-cu-cli": _PROFILER,
    "cuda-gdb": _DEBUGGER,
    "cuda-memcheck": _DEBUGGER,
    "compute-sanitizer": _DEBUGGER,
    "dcgmi": _DRIVER,
    "nvidia-cuda-mps-control": _DRIVER,
    "nvidia-cuda-mps-server": _DRIVER,
    "nvidia-modprobe": _DRIVER,
    "nvidia-persistenced": _DRIVER,
    "nvidia-settings": _DRIVER,
}
_MODULES = re.compile(r"(nvidia/)?(cuda|cudnn|nccl)\b|.*-cuda-", re.I)
"""Modules of a cluster that bring CUDA, or are built with it."""
_LOOKERS = frozenset(["command", "which", "type", "hash"])


@rule(
    "NPU826",
    "shell-nvidia-program",
    on=Command,
    words=(*_PROGRAMS, "cuda", "cudnn", "nccl"),
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="a program of NVIDIA's that does not exist on an NPU machine",
    examples=(
        report("GPUS=$(nvidia-smi -L | wc -l)\n", path="a.sh"),
        report("if command -v nvidia-smi > /dev/null; then echo; fi\n", path="a.sh"),
        report("/usr/local/cuda/bin/nvcc -o a a.cu\n", path="a.sh"),
        report("sudo -E nsys profile -o out python train.py\n", path="a.sh"),
        report("NVCC = nvcc\na.o: a.cu\n\t$(NVCC) -c a.cu\n", path="Makefile"),
        report("module load cuda/11.8\n", path="job.slurm"),
        leave("echo 'run nvidia-smi'\n", path="a.sh"),
        leave("npu-smi info || nvidia-smi\n", path="a.sh"),
        leave("cp nvidia-smi /tmp  # nvcc\n", path="a.sh"),
    ),
)
def shell_nvidia_program(token: Command, site: DocumentSite) -> Report | None:
    words = token.words
    if token.in_string and len(words) > 1:
        return None
    first = words[0].value
    if first in ("module", "ml"):
        loaded = next((word for word in words[1:] if _MODULES.match(word.value)), None)
        message = "a module of CUDA: source CANN's set_env.sh, or load the cluster's CANN module"
        adds = first == "ml" or {"load", "add", "switch", "swap"} & {w.value for w in words[1:2]}
        return Report(message, at=loaded, quiet=False) if loaded and adds else None
    looked_for = words[-1] if first in _LOOKERS else None
    named = looked_for or program(token)
    advice = _PROGRAMS.get(_base(named))
    if advice is None or named is None or "npu-smi" in site.text:
        return None
    missing = "is not found" if looked_for else "does not exist"
    message = f"{_base(named)} {missing} on an NPU machine: {advice}"
    return Report(message, quiet=looked_for is not None, at=named)


_SUBMITTERS = frozenset("srun sbatch salloc qsub bsub jsrun".split())
_RESOURCE = re.compile(
    r"--gres(-flags)?=.*gpu.*|--gpus?(-per-\w+|-bind|-freq)?(=.*)?|--[\w-]+-per-gpu(=.*)?|-G\d*"
    r"|gpu[:=]\S+|(\S*[:,])?(n?gpus?|ngpus_\w+)=\S+|-gpu"
)


@rule(
    "NPU827",
    "scheduler-gpus",
    on=(Directive, Command),
    words=("gpu", "-G"),
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="this asks the batch system for GPUs: ask for NPUs by the name that your cluster gives "
    "them, such as --gres=npu:4; counts per GPU have to be said per task",
    examples=(
        report("#!/bin/bash\n#SBATCH --gres=gpu:4\n", path="job.slurm"),
        report("#!/bin/bash\n#SBATCH --gpus-per-node=8\n#SBATCH -N 2\n", path="job.sh"),
        report("#PBS -l select=1:ncpus=8:ngpus=2\n", path="job.pbs"),
        report("srun --gres gpu:2 -n 2 python train.py\n", path="a.sh"),
        report('srun -p ${PARTITION} --gres=gpu:${GPUS} python -u train.py "$@"\n', path="a.sh"),
        leave("#SBATCH --gres=npu:4\n#SBATCH --job-name=gpu\n", path="job.slurm"),
        leave("python train.py --gpus 4\n", path="a.sh"),
        leave("##SBATCH --gres=gpu:4\n", path="job.slurm"),
    ),
)
def scheduler_gpus(token: Directive | Command, site: DocumentSite) -> Report | None:
    words = token.words
    if isinstance(token, Command):
        if _base(words[0]) not in _SUBMITTERS:
            return None
        words = words[1:]
    for index, word in enumerate(words):
        before = words[index - 1].value if index else ""
        asks = _RESOURCE.fullmatch(word.value)
        if asks and (word.value[0] == "-" or before in ("--gres", "-l", "-l:", "-gpu")):
            return Report(at=word)
        if isinstance(token, Command) and not word.value.startswith("-"):
            takes_value = before.startswith("-") and "=" not in before
            if not takes_value:
                return None  # the program that is submitted
    return None


_RUNNERS = re.compile(r"(nvidia-)?docker|podman")
_CONTAINER = (
    "an Ascend machine gives a container NPUs by --device=/dev/davinci0 (and davinci_manager, "
    "devmm_svm, hisi_hdc, with the driver's folder mounted), or by Ascend's container runtime and "
    "-e ASCEND_VISIBLE_DEVICES=0"
)


@rule(
    "NPU828",
    "container-gpus",
    on=Command,
    words=("--gpus", "nvidia", "--nv"),
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="this gives a container GPUs; " + _CONTAINER,
    examples=(
        report("docker run --rm --gpus all image python train.py\n", path="a.sh"),
        report("docker run --runtime=nvidia image\n", path="a.sh"),
        report("run:\n\tnvidia-docker run -it image\n", path="Makefile"),
        report("singularity exec --nv image.sif python train.py\n", path="job.slurm"),
        leave("docker run --rm image python train.py --gpus 4\n", path="a.sh"),
        leave("docker build -t nvidia .\n", path="a.sh"),
    ),
    source="the manuals of Ascend Docker Runtime and of the CANN images",
)
def container_gpus(token: Command, site: DocumentSite) -> Report | None:
    words = list(token.words)
    while words and _base(words[0]) in WRAPPERS:
        words.pop(0)
    name = _base(words[0]) if words else ""
    values = [word.value for word in words]
    if name == "nvidia-docker":
        return Report(f"nvidia-docker gives containers GPUs; {_CONTAINER}", at=words[0])
    if _RUNNERS.fullmatch(name):
        for index, value in enumerate(values):
            flag = value.partition("=")[0] == "--gpus" or value == "--runtime=nvidia"
            pair = values[index : index + 2] == ["--runtime", "nvidia"]
            if (flag or pair) and _before_image(values[1:index]):
                return Report(at=words[index])
    if name in ("singularity", "apptainer") and "--nv" in values:
        return Report(at=words[values.index("--nv")])
    return None


_FLAGS = frozenset("--rm --privileged --init -d -i -t -it -ti -dit -itd --detach".split())


def _before_image(values: list[str]) -> bool:
    """Whether the arguments so far are options, ``run`` and the values that options take."""
    for before, value in zip(["", *values], values, strict=False):
        takes_value = before.startswith("-") and "=" not in before and before not in _FLAGS
        known = value.startswith("-") or value in ("run", "create", "container", "exec")
        if not known and not takes_value:
            return False
    return True


@rule(
    "NPU829",
    "shell-python-code",
    on=InlinePython,
    words=("cuda", "nccl"),
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="this Python code speaks of CUDA, and quotes or expansions of the shell in it keep it from "
    "being rewritten: put it in a file, or write the NPU's calls by hand",
    examples=(
        report('python -c "import torch; torch.zeros(1).to(\\"cuda:$1\\")"\n', path="a.sh"),
        report("python - <<EOF\nimport torch\nx.to('cuda:$RANK')\nEOF\n", path="a.sh"),
        leave("python -c 'import torch; print(torch.cuda.is_available())'\n", path="a.sh"),
        leave('python -c "import os; print(\\"$HOME\\")"  # cuda\n', path="a.sh"),
    ),
)
def shell_python_code(token: InlinePython, site: DocumentSite) -> Report | None:
    speaks = re.search(r"\bcuda\b|\bnccl\b", token.text)
    return Report() if speaks and not token.verbatim else None

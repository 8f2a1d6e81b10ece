"""Environment variables of CUDA and NCCL in shell scripts and makefiles."""

from __future__ import annotations

import re

from cuda2npu.rule import Fix, FixLevel, Report, leave, report, rewrite, rule
from cuda2npu.tokens import Assignment, DocumentSite, Mention, Parameter, Token
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


@rule(
    "NPU820",
    "shell-cuda-variable",
    on=(Assignment, Parameter, Mention),
    words=tuple(COUNTERPARTS),
    fix=FixLevel.SAFE,
    missed_by_shim=True,
    why="an environment variable of CUDA or NCCL that has a counterpart on the NPU; what sets it "
    "and what reads it move together",
    quiet=True,
    examples=(
        rewrite(
            "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 train.py\n",
            "ASCEND_RT_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 train.py\n",
            path="train.sh",
        ),
        rewrite(
            "export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0}\n"
            'echo "devices: $CUDA_VISIBLE_DEVICES"\n',
            "export ASCEND_RT_VISIBLE_DEVICES=${ASCEND_RT_VISIBLE_DEVICES:-0}\n"
            'echo "devices: $ASCEND_RT_VISIBLE_DEVICES"\n',
            path="train.sh",
        ),
        rewrite("unset CUDA_VISIBLE_DEVICES", "unset ASCEND_RT_VISIBLE_DEVICES", path="a.sh"),
        rewrite(
            "docker run -e CUDA_VISIBLE_DEVICES=0 image bash -c 'CUDA_LAUNCH_BLOCKING=1 ./run.sh'",
            "docker run -e ASCEND_RT_VISIBLE_DEVICES=0 image "
            "bash -c 'ASCEND_LAUNCH_BLOCKING=1 ./run.sh'",
            path="a.sh",
        ),
        rewrite(
            "#!/bin/bash\n#SBATCH -N 1\nexport NCCL_ASYNC_ERROR_HANDLING=1\n",
            "#!/bin/bash\n#SBATCH -N 1\nexport TORCH_HCCL_ASYNC_ERROR_HANDLING=1\n",
            path="job.slurm",
        ),
        rewrite(
            "CUDA_VISIBLE_DEVICES ?= 0\n\ntrain:\n"
            "\tCUDA_VISIBLE_DEVICES=$(CUDA_VISIBLE_DEVICES) python train.py\n",
            "ASCEND_RT_VISIBLE_DEVICES ?= 0\n\ntrain:\n"
            "\tASCEND_RT_VISIBLE_DEVICES=$(ASCEND_RT_VISIBLE_DEVICES) python train.py\n",
            path="Makefile",
        ),
        rewrite(
            'cmd="CUDA_VISIBLE_DEVICES=$gpu python a.py --out \\"$out\\""\neval "$cmd"\n',
            'cmd="ASCEND_RT_VISIBLE_DEVICES=$gpu python a.py --out \\"$out\\""\neval "$cmd"\n',
            path="a.sh",
        ),
        report('tmux send-keys -t a "CUDA_VISIBLE_DEVICES=$gpu python a.py" Enter\n', path="a.sh"),
        rewrite(
            "for CUDA_VISIBLE_DEVICES in 0 1; do export CUDA_VISIBLE_DEVICES; ./a.sh; done\n",
            "for ASCEND_RT_VISIBLE_DEVICES in 0 1; do export ASCEND_RT_VISIBLE_DEVICES; "
            "./a.sh; done\n",
            path="a.sh",
        ),
        rewrite(
            "CUDA_VISIBLE_DEVICES ?= 0\nifndef CUDA_VISIBLE_DEVICES\nendif\n",
            "ASCEND_RT_VISIBLE_DEVICES ?= 0\nifndef ASCEND_RT_VISIBLE_DEVICES\nendif\n",
            path="Makefile",
        ),
        rewrite(
            "#!/bin/bash\n#SBATCH --export=ALL,CUDA_VISIBLE_DEVICES=0\n",
            "#!/bin/bash\n#SBATCH --export=ALL,ASCEND_RT_VISIBLE_DEVICES=0\n",
            path="job.slurm",
        ),
        report("ssh host CUDA_VISIBLE_DEVICES=0 python a.py\n", path="a.sh"),
        leave("grep -r CUDA_VISIBLE_DEVICES .\n", path="a.sh"),
        leave("# CUDA_VISIBLE_DEVICES=0 python train.py\n", path="a.sh"),
        leave("echo 'set CUDA_VISIBLE_DEVICES=0'\n", path="a.sh"),
        leave("cat <<'EOF'\nCUDA_VISIBLE_DEVICES=0 python train.py\nEOF\n", path="a.sh"),
        leave("echo \\$CUDA_VISIBLE_DEVICES '$CUDA_VISIBLE_DEVICES'\n", path="a.sh"),
        leave("CUDA_HOME=/usr/local/cuda\n", path="a.sh"),
        leave(
            "if [ $npu ]; then export ASCEND_RT_VISIBLE_DEVICES=0\n"
            "else export CUDA_VISIBLE_DEVICES=0; fi\n",
            path="a.sh",
        ),
    ),
)
def shell_cuda_variable(token: Assignment | Parameter | Mention, site: DocumentSite) -> Fix | None:
    new = variable(token.name, site.options.torch_npu)
    if new is None:
        return None
    edits: dict[Token, str] = {token.part(0, len(token.name)): new}
    if isinstance(token, Mention):
        return _mentioned(token, new, edits, site)
    if isinstance(token, Assignment) and token.in_string:
        message = (
            f"this text sets {token.name}, if it is run as a command line: then write {new}, or "
            "run with --unsafe"
        )
        return Fix(edits, message, level=FixLevel.UNSAFE)
    if new in site.text and re.search(rf"\b{new}\b", site.text):
        return None  # a script that chooses between GPUs and NPUs
    if any(isinstance(other, Mention) and other.name == token.name for other in site.tokens):
        message = (
            f"on an NPU {token.name} is {new}, but the script also names it where it is not plain "
            "whether that is the variable: rename every place, or run with --unsafe"
        )
        return Fix(edits, message, level=FixLevel.UNSAFE)
    return Fix(edits, replaced(token.name, new))


def _mentioned(token: Mention, new: str, edits: dict[Token, str], site: DocumentSite) -> Fix | None:
    used = any(
        isinstance(other, (Assignment, Parameter)) and other.name == token.name
        for other in site.tokens
    )
    sets = site.text[token.end : token.end + 1] == "="
    if re.search(rf"\b{new}\b", site.text) or not (used or sets):
        return None
    message = f"if this word is the variable {token.name}, it has to become {new} with the others"
    return Fix(edits, message, level=FixLevel.UNSAFE)


@rule(
    "NPU821",
    "shell-visible-devices-value",
    on=Assignment,
    words=(VISIBLE, NPU_VISIBLE, ALLOCATOR, NPU_ALLOCATOR),
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="the NPU's variable takes other values than CUDA's",
    quiet=True,
    examples=(
        report("CUDA_VISIBLE_DEVICES=1,0 python train.py\n", path="a.sh"),
        report("CUDA_VISIBLE_DEVICES= python train.py\n", path="a.sh"),
        report("export CUDA_VISIBLE_DEVICES='-1'\n", path="a.sh"),
        report("export CUDA_VISIBLE_DEVICES := 3,2,1\n", path="Makefile"),
        report("export PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync\n", path="a.sh"),
        report("export PYTORCH_NPU_ALLOC_CONF=backend:cudaMallocAsync\n", path="a.sh"),
        leave("CUDA_VISIBLE_DEVICES=0,2 python train.py\n", path="a.sh"),
        leave("CUDA_VISIBLE_DEVICES=$1 python train.py\n", path="a.sh"),
        leave("xargs -I{} sh -c 'CUDA_VISIBLE_DEVICES={} ./a.sh'\n", path="a.sh"),
        leave("define d\nCUDA_VISIBLE_DEVICES=1 python a.py\nendef\n", path="Makefile"),
        leave("export CUDA_VISIBLE_DEVICES\n", path="a.sh"),
        leave("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n", path="a.sh"),
    ),
)
def shell_visible_devices_value(token: Assignment, site: DocumentSite) -> Report | None:
    if token.value is None or not token.literal or token.text[len(token.name)] == "[":
        return None
    if "{" in token.value:
        return None  # what xargs or parallel puts in
    problem = value_problem(token.name, token.value.strip("\"'"))
    return Report(problem) if problem else None


@rule(
    "NPU822",
    "shell-variable-without-counterpart",
    on=Assignment,
    words=WORDS,
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="an environment variable of CUDA or NCCL that nothing on the NPU reads",
    quiet=True,
    examples=(
        report("export NCCL_DEBUG=INFO\n", path="a.sh"),
        report("NCCL_IB_DISABLE=1 torchrun train.py\n", path="a.sh"),
        report("mpirun -np 4 -x NCCL_SOCKET_IFNAME=eth0 python a.py\n", path="a.sh"),
        report("export CUDA_DEVICE_MAX_CONNECTIONS=1\n", path="a.sh"),
        report("CUDA_HOME ?= /usr/local/cuda\n", path="Makefile"),
        report("export TORCH_NCCL_HIGH_PRIORITY=1\n", release="2.5.1", path="a.sh"),
        leave("unset NCCL_DEBUG\n", path="a.sh"),
        leave("echo $NCCL_DEBUG\n", path="a.sh"),
        leave("export CUDA_VISIBLE_DEVICES=0\n", path="a.sh"),
        leave("export HCCL_CONNECT_TIMEOUT=600\n", path="a.sh"),
    ),
)
def shell_variable_without_counterpart(token: Assignment, site: DocumentSite) -> Report | None:
    if token.value is None or token.unset or variable(token.name, site.options.torch_npu):
        return None
    advice = variable_advice(token.name)
    return Report(f"nothing on the NPU reads {token.name}: {advice}") if advice else None


_SEARCH_PATHS = re.compile(r"(LD_)?(LIBRARY|RUN)_PATH|PATH|CPATH|C(PLUS)?_INCLUDE_PATH|LD_PRELOAD")
_TOOLKIT = re.compile(r"/cuda\b|/cudnn\b|/nccl\b|\$\{?CUDA_(HOME|PATH)\b|libcud|libnccl")


@rule(
    "NPU823",
    "shell-cuda-search-path",
    on=Assignment,
    words=("/cuda", "CUDA_HOME", "CUDA_PATH", "/cudnn", "/nccl", "libcud", "libnccl"),
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="a search path that leads to the CUDA toolkit: NPU programs need the paths of CANN, which "
    "its set_env.sh sets (source /usr/local/Ascend/ascend-toolkit/set_env.sh)",
    quiet=True,
    examples=(
        report("export LD_LIBRARY_PATH=/usr/local/cuda/lib64:$LD_LIBRARY_PATH\n", path="a.sh"),
        report('export PATH="$CUDA_HOME/bin:$PATH"\n', path="a.sh"),
        leave("export PATH=/opt/conda/bin:$PATH\n", path="a.sh"),
        leave("data=/data/cuda\n", path="a.sh"),
    ),
)
def shell_cuda_search_path(token: Assignment, site: DocumentSite) -> Report | None:
    found = _SEARCH_PATHS.fullmatch(token.name) and _TOOLKIT.search(token.value or "")
    return Report() if found else None

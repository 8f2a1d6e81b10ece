"""Small CUDA programs, and what becomes of them under cuda2npu, transfer_to_npu and sed.

The outcomes beside each program are what a test sees when it runs the three on a simulated NPU;
the converted texts are made when the page is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from page_parts import code, fenced, table

from cuda2npu.engine import rewrite_source
from cuda2npu.model import Options

RIGHT = "right"


@dataclass(frozen=True)
class Case:
    """A program that prints one line."""

    title: str
    program: str
    prints: str
    """What it prints on CUDA, the device's name aside."""
    outcomes: Mapping[str, str]
    """``RIGHT``, what is printed instead, or the exception, by tool."""
    remark: str = ""


def ours(program: str) -> str:
    """The program as cuda2npu writes it for the release that can be simulated."""
    return rewrite_source(program, Options(torch_npu="2.13.0")).text


def sed(program: str) -> str:
    """The program after ``sed 's/cuda/npu/g; s/nccl/hccl/g'``."""
    return program.replace("cuda", "npu").replace("nccl", "hccl")


def shim(program: str) -> str:
    """The program with torch_npu's run-time patch, which changes calls while they run."""
    return f"from torch_npu.contrib import transfer_to_npu\n{program}"


TOOLS = {"cuda2npu": ours, "transfer_to_npu": shim, "sed": sed}


def _case(title: str, program: str, prints: str, shim: str, sed: str, **more: str) -> Case:
    outcomes = {"cuda2npu": more.pop("ours", RIGHT), "transfer_to_npu": shim, "sed": sed}
    return Case(title, program, prints, outcomes, **more)


CASES = (
    _case(
        "torch under another name",
        "import torch as th\nprint(th.ones(2).cuda().sum().item())",
        "2.0",
        shim=RIGHT,
        sed=RIGHT,
    ),
    _case(
        "A flag of the script",
        "import argparse\nparser = argparse.ArgumentParser()\n"
        'parser.add_argument("--cuda", action="store_true")\n'
        "print(parser.parse_args().cuda)  # python train.py --cuda",
        "True",
        shim=RIGHT,
        sed="SystemExit",
    ),
    _case(
        "A keyword that goes into a file",
        "import json\nprint(json.dumps(dict(cuda=True)))",
        '{"cuda": true}',
        shim=RIGHT,
        sed='{"npu": true}',
    ),
    _case(
        "A message",
        'print("tested with cuda 12.4")',
        "tested with cuda 12.4",
        shim=RIGHT,
        sed="tested with npu 12.4",
    ),
    _case(
        "A path",
        'import torch\nprint(torch.load("runs_cuda/last.pt", map_location="cpu"))',
        "7",
        shim="FileNotFoundError",
        sed="FileNotFoundError",
    ),
    _case(
        "The type of a device",
        "import torch\nx = torch.ones(2).cuda()\n"
        'print("half" if x.device.type == "cuda" else "float")',
        "half",
        shim="float",
        sed=RIGHT,
    ),
    _case(
        "The backend, asked for afterwards",
        "import torch.distributed as dist\n"
        'dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)\n'
        'print(dist.get_backend() == "nccl")',
        "True",
        shim="False",
        sed=RIGHT,
    ),
    _case(
        "Mixed precision",
        'import torch\na = torch.ones(2, 2).cuda()\nwith torch.autocast("cuda"):\n'
        "    print((a @ a).dtype)",
        "torch.float16",
        shim=RIGHT,
        sed=RIGHT,
    ),
    _case(
        "TF32",
        "import torch\ntorch.backends.cuda.matmul.allow_tf32 = True\n"
        "import torch_npu\nprint(torch_npu.npu.matmul.allow_hf32)",
        "True",
        shim="False",
        sed="AttributeError",
    ),
    _case(
        "A graph",
        "import torch\nprint(torch.cuda.CUDAGraph() is not None)",
        "True",
        shim=RIGHT,
        sed="AttributeError",
    ),
    _case(
        "A range in the profile",
        'import torch\nwith torch.cuda.nvtx.range("step"):\n    print("ran")',
        "ran",
        shim="RuntimeError",
        sed="AttributeError",
    ),
    _case(
        "TorchScript",
        "import torch\n\n@torch.jit.script\ndef double(x: torch.Tensor):\n    return 2 * x\n\n"
        "print(isinstance(double, torch.jit.ScriptFunction))",
        "True",
        shim="False",
        sed=RIGHT,
    ),
    _case(
        "Bilinear interpolation",
        "import torch\nimport torch.nn.functional as F\nx = torch.tensor([[[[0.0, 1.0]]]]).cuda()\n"
        'y = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)\n'
        "print(y[0, 0, 0].tolist())",
        "[0.0, 0.25, 0.75, 1.0]",
        ours="[0.0, 0.0, 1.0, 1.0]",
        shim=RIGHT,
        sed=RIGHT,
        remark="The edit is made on purpose and named; `--preserve-numerics` leaves it out.",
    ),
)


def cases_section() -> str:
    """The table of outcomes and the programs, in Markdown."""
    rows = [[f"[{c.title}](#{_anchor(c)})", *(_cell(c, tool) for tool in TOOLS)] for c in CASES]
    return "\n".join([table(["program", *TOOLS], rows), *map(_program, CASES)])


def _cell(case: Case, tool: str) -> str:
    outcome = case.outcomes[tool]
    if outcome == RIGHT:
        return RIGHT
    return f"**{outcome}**" if re.fullmatch(r"\w+(Error|Exit)", outcome) else code(outcome)


def _anchor(case: Case) -> str:
    return re.sub(r"\W+", "-", case.title.lower())


def _program(case: Case) -> str:
    """The program beside what cuda2npu makes of it."""
    text = f"### {case.title}\n\nPrints {code(case.prints)} on CUDA. {case.remark}\n"
    written = ours(case.program)
    if written == case.program:
        return text + "\n" + fenced(case.program, "python", "left as it is by cuda2npu")
    blocks = [fenced(case.program, "python", "CUDA"), fenced(written, "python", "cuda2npu")]
    return "\n".join([text, '<div class="grid" markdown>\n', *blocks, "</div>\n"])

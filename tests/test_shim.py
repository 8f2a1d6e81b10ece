"""``--target shim``: two imports in scripts, and nothing else anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuda2npu import formats
from cuda2npu.engine import rewrite_bytes, rewrite_source
from cuda2npu.gathering import know
from cuda2npu.model import Options, Result, Target

SHIM = Options(target=Target.SHIM)
MAIN = 'if __name__ == "__main__":\n    torch.zeros(1).cuda()\n'
LINES = (
    "import torch_npu  # noqa: F401\nfrom torch_npu.contrib import transfer_to_npu  # noqa: F401\n"
)
SCRIPTS = sorted((Path(__file__).parent.parent / "fixtures" / "scripts").glob("*/before.py"))


def shim(text: str, options: Options = SHIM) -> Result:
    return rewrite_source(text, options)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"import torch\n{MAIN}", f"import torch\n{LINES}{MAIN}"),
        (
            f'"""Doc."""\nfrom __future__ import division\nimport os\nimport torch\n{MAIN}',
            f'"""Doc."""\nfrom __future__ import division\nimport os\nimport torch\n{LINES}{MAIN}',
        ),
        (
            f"import torch\nimport torch_npu\n{MAIN}",
            f"import torch\nimport torch_npu\n{LINES.splitlines(keepends=True)[1]}{MAIN}",
        ),
        (
            "#!/usr/bin/env python\nimport torch\ntorch.cuda.synchronize()\n",
            f"#!/usr/bin/env python\nimport torch\n{LINES}torch.cuda.synchronize()\n",
        ),
        (
            "import torch\nx = torch.zeros(1).cuda()\nx.sum().backward()\n",
            f"import torch\n{LINES}x = torch.zeros(1).cuda()\nx.sum().backward()\n",
        ),
        (
            "import torch\nif '__main__' == __name__:\n    torch.cuda.init()\n",
            f"import torch\n{LINES}if '__main__' == __name__:\n    torch.cuda.init()\n",
        ),
    ],
)
def test_script_gets_the_shim_once(before: str, after: str) -> None:
    result = shim(before)
    assert result.text == after
    assert [f.code for f in result.applied] == ["NPU022"]
    again = shim(after)
    assert not again.changed
    assert "NPU022" not in [f.code for f in again.findings]


@pytest.mark.parametrize(
    "text",
    [
        "import torch\n\ndef f(x):\n    return x.cuda()\n",
        f"import torch\n{MAIN}".replace(".cuda()", ".cpu()"),
        "import numba.cuda\nif __name__ == '__main__':\n    numba.cuda.synchronize()\n",
        f"import torch\nfrom torch_npu.contrib import transfer_to_npu\n{MAIN}",
        f"# cuda2npu: skip-file\nimport torch\n{MAIN}",
        f"import setuptools\nimport torch\n{MAIN}",
        f"import torch\ndev = 'npu' if torch.npu.is_available() else 'cuda' if "
        f"torch.cuda.is_available() else 'cpu'\n{MAIN}",
    ],
)
def test_everything_else_is_left(text: str) -> None:
    assert not shim(text).changed


def test_line_ends_are_kept() -> None:
    text = f"import torch\n{MAIN}".replace("\n", "\r\n").encode()
    new, _ = rewrite_bytes(text, SHIM, path="x.py")
    assert new == f"import torch\n{LINES}{MAIN}".replace("\n", "\r\n").encode()


@pytest.mark.parametrize("options", [{"ignore": ("NPU02",)}, {"select": ("NPU5",)}])
def test_the_shim_can_be_deselected(options: dict[str, tuple[str, ...]]) -> None:
    assert not shim(f"import torch\n{MAIN}", Options(target=Target.SHIM, **options)).changed  # type: ignore[arg-type]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.parent.name)
def test_only_lines_are_added(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    result = shim(text)
    lines, before = result.text.splitlines(), text.splitlines()
    for line in LINES.splitlines():
        if lines.count(line) > before.count(line):
            lines.remove(line)
    assert lines == before
    assert not shim(result.text).changed


CALL = "x = torch.zeros(1).cuda()\n"


def in_project(files: dict[str, str]) -> dict[str, Result]:
    """Every file of a folder, with what they know of each other."""
    sources = {f"{name}.py": text for name, text in files.items()}
    named = {name: name for name in sources}
    known = know(lambda: ((n, t.encode()) for n, t in sources.items()), named, SHIM)
    return {
        name: rewrite_source(text, SHIM, path=name, knowledge=known.seen_from(name))
        for name, text in sources.items()
    }


@pytest.mark.parametrize(
    ("files", "shimmed"),
    [
        ({"u": f"import torch\n{CALL}"}, "u"),
        ({"u": f"import torch\ndef f():\n    {CALL}f()\n"}, "u"),
        # A module that moves something when it is imported needs the patch by then.
        (
            {"conf": f"import torch\n{CALL}", "run": f"import conf\nimport torch\n{MAIN}"},
            "conf run",
        ),
        # A constant moves nothing; who uses it may never speak of CUDA itself.
        (
            {
                "conf": "import os\nD = os.environ.get('D', 'cuda')\n",
                "run": MAIN.replace(".cuda()", ".to(conf.D)").replace("if", "import conf\nif", 1),
            },
            "run",
        ),
        ({"lib": f"import torch\ndef f():\n    {CALL}", "run": "from lib import f\nf()\n"}, "run"),
        (
            {
                "p/__init__": "from .a import f\nfrom .b import g\n",
                "p/a": f"import torch\ndef f():\n    {CALL}",
                "p/b": "def g():\n    pass\n",
                "one": "from p import f\nf()\n",
                "two": "from p import g\ng()\n",
            },
            "one",
        ),
        # Who imports CUDA and speaks of NPUs has made a choice of his own.
        (
            {
                "lib": f"import torch\ndef f():\n    {CALL}",
                "run": "from lib import f\nimport torch_npu\nf()\n",
            },
            "",
        ),
    ],
)
def test_programs_of_a_folder(files: dict[str, str], shimmed: str) -> None:
    results = in_project(files)
    changed = [name.removesuffix(".py") for name, each in results.items() if each.changed]
    assert sorted(changed) == shimmed.split()
    assert all("transfer_to_npu" in results[f"{name}.py"].text for name in changed)


def test_nothing_of_a_folder_is_skipped_in_silence() -> None:
    (alone,) = in_project({"lib": f"import torch\ndef f():\n    {CALL}"}).values()
    assert not alone.changed
    assert "not a script" in alone.notes[0]
    chooser = "import torch\nimport conf\nif is_npu_available():\n    d = 'npu'\n"
    left = in_project({"conf": f"import torch\n{CALL}", "run": chooser})["conf.py"]
    assert not left.changed
    (finding,) = left.findings
    assert (finding.code, finding.fix.value) == ("NPU022", "none")
    assert "run.py, which imports it, speaks of NPUs itself" in finding.message


@pytest.mark.parametrize(
    ("path", "text", "code"),
    [
        ("t.py", "os.environ['CUDA_VISIBLE_DEVICES'] = '1'\n", "NPU320"),
        ("t.py", "subprocess.run('CUDA_VISIBLE_DEVICES=1 ./a', shell=True)\n", "NPU322"),
        ("t.py", "subprocess.check_output(['nvidia-smi', '-L'])\n", "NPU136"),
        (
            "t.py",
            "import torch\ntorch.set_default_tensor_type('torch.cuda.FloatTensor')\n",
            "NPU118",
        ),
        ("t.py", "import torch\nx = x.type('torch.cuda.FloatTensor')\n", "NPU113"),
        ("t.py", "import torch\nnet = torch.nn.DataParallel(net)\n", "NPU141"),
        ("t.py", "import torch\ntorch.cuda.nccl.version()\n", "NPU121"),
        ("t.py", "import torch\ntorch.backends.cuda.matmul.allow_tf32 = True\n", "NPU501"),
        ("t.py", "import torch\ntorch.backends.cuda.cufft_plan_cache.clear()\n", "NPU505"),
        ("t.py", "import torch\nif x.is_cuda: y = ext_cuda.forward(x)\n", "NPU104"),
        ("t.py", "from flash_attn import flash_attn_func\n", "NPU602"),
        ("run.sh", "CUDA_VISIBLE_DEVICES=1 python t.py\n", "NPU820"),
        ("run.sh", "nvidia-smi\n", "NPU826"),
        ("job.slurm", "#!/bin/bash\n#SBATCH --gres=gpu:2\n", "NPU827"),
        ("job.yaml", "env:\n  CUDA_VISIBLE_DEVICES: '1'\n", "NPU837"),
    ],
)
def test_what_the_patch_misses_is_reported_and_left(path: str, text: str, code: str) -> None:
    data = text.encode()
    after, result = formats.rewrite_bytes(data, Options(target=Target.SHIM, unsafe=True), path=path)
    (finding,) = (each for each in result.findings if each.code == code)
    assert after == data
    assert (finding.fix.value, finding.applied) == ("none", False)
    assert "--unsafe" not in finding.message


@pytest.mark.parametrize(
    "text",
    [
        "import torch.distributed as dist\ndist.init_process_group('nccl')\n",
        "import torch\ns = torch.cuda.amp.GradScaler()\n",
        "import torch\nwith torch.random.fork_rng(): pass\n",
        "import torch\ntorch.set_default_device('cuda')\n",
        "import torch\nx = torch.load('x.pt', map_location='cuda:0').to(0)\n",
    ],
)
def test_what_the_patch_sees_to_is_not_reported(text: str) -> None:
    assert not shim(text).remaining


def test_the_shim_comes_before_names_are_taken_out_of_torch() -> None:
    first = "from torch.cuda.amp import autocast\n"
    assert shim(f"{first}import torch\n{MAIN}").text == f"{LINES}{first}import torch\n{MAIN}"

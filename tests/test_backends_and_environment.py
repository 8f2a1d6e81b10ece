"""Cases in which several rules meet, and the tables of the mixed precision and 3xx packs."""

from __future__ import annotations

import pytest
from cuda2npu_codemods import amp, process_groups
from cuda2npu_codemods.counterparts import counterpart
from cuda2npu_codemods.variables import ADVICE, COUNTERPARTS, VISIBLE, variable, variable_advice

from cuda2npu.engine import rewrite_source
from cuda2npu.knowledge import BACKEND, DEVICE, Knowledge
from cuda2npu.model import Options
from cuda2npu.releases import NEWEST, RELEASES, environment, exists, parameters

KNOWN = Knowledge(
    sinks={"device": frozenset({DEVICE}), "backend": frozenset({BACKEND})},
    programs={"/x/a.py": frozenset({"device", "backend"})},
)
"""Of a project with an a.py that takes both options."""

TOGETHER = [
    # mixed precision: the device changes, the user's dtype does not
    (
        '@torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.half)\ndef f(x): pass',
        '@torch.amp.custom_fwd(device_type="npu", cast_inputs=torch.half)\ndef f(x): pass',
    ),
    (
        'fwd = functools.partial(torch.amp.custom_fwd, device_type="cuda")',
        'fwd = functools.partial(torch.amp.custom_fwd, device_type="npu")',
    ),
    (
        'with torch.autocast("cuda", dtype=torch.bfloat16): pass',
        'with torch.autocast("npu", dtype=torch.bfloat16): pass',
    ),
    (
        'with torch.amp.autocast(device_type="cuda", dtype=torch.float16): pass',
        'with torch.amp.autocast(device_type="npu", dtype=torch.float16): pass',
    ),
    ('s = torch.amp.GradScaler("cuda", enabled=x)', 's = torch.amp.GradScaler("npu", enabled=x)'),
    ('ok = torch.is_autocast_enabled("cuda")', 'ok = torch.is_autocast_enabled("npu")'),
    (
        "s = torch.cuda.amp.GradScaler(enabled=x) if old else torch.amp.GradScaler(enabled=x)",
        "s = torch.npu.amp.GradScaler(enabled=x) if old else "
        'torch.amp.GradScaler("npu", enabled=x)',
    ),
    (
        "s = torch.cuda.amp.GradScaler(1.0, 2.0, 0.5, 9, torch.cuda.is_available())",
        "s = torch.npu.amp.GradScaler(1.0, 2.0, 0.5, 9, enabled=torch.npu.is_available())",
    ),
    # the question and the string belong together
    (
        'b = "nccl" if torch.distributed.is_nccl_available() else "gloo"',
        'b = "hccl" if torch.distributed.is_hccl_available() else "gloo"',
    ),
    (
        'torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")',
        'torch.distributed.init_process_group("hccl" if torch.npu.is_available() else "gloo")',
    ),
    (
        'd = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"',
        'd = "npu" if torch.distributed.get_backend() == "hccl" else "cpu"',
    ),
    (
        'os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"; os.environ["CUDA_VISIBLE_DEVICES"] = "2"',
        'os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"; '
        'os.environ["ASCEND_RT_VISIBLE_DEVICES"] = "2"',
    ),
    (
        'os.system(f"CUDA_VISIBLE_DEVICES={i} torchrun a.py --backend nccl")',
        'os.system(f"ASCEND_RT_VISIBLE_DEVICES={i} torchrun a.py --backend hccl")',
    ),
]


@pytest.mark.parametrize(("before", "after"), TOGETHER)
def test_rules_together(before: str, after: str) -> None:
    result = rewrite_source(before, Options(), knowledge=KNOWN)
    assert result.text == after
    assert not rewrite_source(after, Options()).changed


@pytest.mark.parametrize(
    "source",
    [
        "cfg = {'nccl': 1, 'CUDA_DEBUG': 2}",
        "args.CUDA_VISIBLE_DEVICES = 1",
        "libs = ['nccl', 'cudnn']\nkernel = name.startswith('nccl')",
        "import cupy\nc = cupy.cuda.nccl.NcclCommunicator(1, uid, 0)",
        "log.info('nccl: %s, CUDA_VISIBLE_DEVICES=%s', v, ids)",
        "def f(g):\n    if get_backend(g) == 'hccl':\n        d = 'npu'\n"
        "    elif get_backend(g) == 'nccl':\n        d = other",
    ],
)
def test_left_without_a_word(source: str) -> None:
    result = rewrite_source(source, Options())
    assert not result.changed
    assert [finding for finding in result.findings if finding.code >= "NPU2"] == []


def test_a_dictionary_beside_ray_collectives_is_not_decided() -> None:
    source = "from ray.util import collective\nimport torch\noptions = {'backend': 'nccl'}\n"
    (finding,) = rewrite_source(source, Options()).findings
    assert (finding.code, finding.fix.value, finding.applied) == ("NPU301", "unsafe", False)


def test_a_dictionary_that_is_no_environment_is_not_decided() -> None:
    source = "import torch\nconf = {'CUDA_VISIBLE_DEVICES': '0'}\n"
    (finding,) = rewrite_source(source, Options()).findings
    assert (finding.code, finding.fix.value, finding.applied) == ("NPU320", "unsafe", False)


def test_an_environment_edit_needs_no_import() -> None:
    source = 'import os\nimport torch\nos.environ["CUDA_VISIBLE_DEVICES"] = "0"\n'
    assert "torch_npu" not in rewrite_source(source, Options()).text


@pytest.mark.parametrize("release", RELEASES)
def test_variables_exist(release: str) -> None:
    for old in COUNTERPARTS:
        new = variable(old, release)
        if old == VISIBLE:
            assert new == "ASCEND_RT_VISIBLE_DEVICES"
        elif new is None:
            assert variable_advice(old)
        else:
            assert new in environment()
    assert all(variable(old, NEWEST) for old in COUNTERPARTS)


def test_every_variable_is_mapped_or_advised() -> None:
    assert not set(COUNTERPARTS) & set(ADVICE)


@pytest.mark.parametrize("release", RELEASES)
def test_names_exist(release: str) -> None:
    assert all(exists(new, release) for new in process_groups._MOVED.values())
    assert all(exists(f"torch.npu.{new}", release) for new in amp._AUTOCAST.values())


def test_parameter_table_is_needed() -> None:
    for name, old in amp._PARAMETERS.items():
        differs = [
            release
            for release in RELEASES
            if (there := counterpart(name, release))
            and (new := parameters(there, release)) is not None
            and new[: len(old)] != old
        ]
        assert differs, f"{name} has the same parameters everywhere"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            'os.system("CUDA_VISIBLE_DEVICES=0 python a.py --device cuda")',
            'os.system("ASCEND_RT_VISIBLE_DEVICES=0 python a.py --device npu")',
        ),
        (
            'os.system(f"CUDA_VISIBLE_DEVICES={i} torchrun a.py --backend=nccl -o {o}")',
            'os.system(f"ASCEND_RT_VISIBLE_DEVICES={i} torchrun a.py --backend=hccl -o {o}")',
        ),
        (
            'run(["bash", "-c", "CUDA_LAUNCH_BLOCKING=1 python a.py --backend=nccl"])',
            'run(["bash", "-c", "ASCEND_LAUNCH_BLOCKING=1 python a.py --backend=hccl"])',
        ),
        (
            'os.system(\n    "CUDA_VISIBLE_DEVICES=0 python a.py "\n    "--device cuda:0")',
            'os.system(\n    "ASCEND_RT_VISIBLE_DEVICES=0 python a.py "\n    "--device npu:0")',
        ),
    ],
)
def test_two_rules_edit_one_literal_in_one_run(before: str, after: str) -> None:
    result = rewrite_source(f"import os\n{before}\n", Options(), knowledge=KNOWN)
    assert result.text == f"import os\n{after}\n"
    assert {finding.code for finding in result.applied} >= {"NPU322", "NPU325"}
    assert result.remaining == ()
    assert not rewrite_source(result.text, Options()).changed

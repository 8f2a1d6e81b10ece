"""Devices and process-group backends in YAML, TOML and JSON files."""

from __future__ import annotations

import re
from pathlib import PurePath

from cuda2npu.knowledge import BACKEND, DEVICE
from cuda2npu.rule import Fix, FixLevel, Report, leave, rewrite, rule
from cuda2npu.tokens import ConfigValue, DocumentSite, Token, Variable
from cuda2npu_codemods.config_values import (
    DEEPSPEED_KEYS,
    listed_beside,
    moved,
    replaced,
    root_keys,
)
from cuda2npu_codemods.words import BACKEND_MAP, OTHER_ACCELERATORS, names_backend, names_device

_DEVICE = re.compile(r"cuda(?P<index>:(\d+|\$?\{[^{}]*\}|\$\w+|\$?\{\{[^{}]*\}\}))?")
_HOST_OF_JOBS = (".github", ".circleci", ".gitlab-ci.yml", ".gitlab", "azure-pipelines.yml")
"""Where a key ``device`` chooses among jobs and reaches no program by itself."""


@rule(
    "NPU830",
    "backend-in-config",
    on=ConfigValue,
    words=("nccl",),
    fix=FixLevel.UNSAFE,
    why='the process-group backend of the NPU is "hccl"; starting a group with nccl raises there. '
    "Nothing in the file shows what reads the value, so only --unsafe edits it",
    examples=(
        rewrite("dist_backend: nccl  # GPUs\n", "dist_backend: hccl  # GPUs\n", path="c.yaml"),
        rewrite(
            "strategy:\n  init_args: {process_group_backend: 'nccl'}\n",
            "strategy:\n  init_args: {process_group_backend: 'hccl'}\n",
            path="c.yml",
        ),
        rewrite(
            '{"train_batch_size": 8, "params": {"comm_backend_name": "nccl"}}',
            '{"train_batch_size": 8, "params": {"comm_backend_name": "hccl"}}',
            path="ds.json",
        ),
        rewrite('{"comm_backend": "nccl"}\n', '{"comm_backend": "hccl"}\n', path="c.json"),
        rewrite('backend = "cpu:gloo,cuda:nccl"', 'backend = "cpu:gloo,npu:hccl"', path="c.toml"),
        leave("backends: [nccl, hccl]\n", path="c.yaml"),
        leave("attn_backend: nccl\npackages: [nccl]\n", path="c.yaml"),
        leave("description: the backend is nccl\n", path="c.yaml"),
    ),
    source="docs of torch_npu: distributed training; DeepSpeed's runtime/comm has nccl and hccl",
)
def backend_in_config(token: ConfigValue, site: DocumentSite) -> Fix | Report | None:
    if BACKEND_MAP.fullmatch(token.value):
        new = token.value.replace("cuda:nccl", "npu:hccl")
    elif token.value == "nccl" and _is_backend(token.key, site):
        if "hccl" in listed_beside(token, site):
            return None
        new = "hccl"
    else:
        return None
    if _is_read_by_library(token, site):
        return replaced(token, new, _LIBRARY)
    return moved(token, site, new, BACKEND)


_LIBRARY = 'the process-group backend of the NPU is "hccl"; starting a group with nccl raises there'


def _is_backend(key: str, site: DocumentSite) -> bool:
    return names_backend(key.removesuffix("_name")) or BACKEND in site.project.feeds(key)


def _is_read_by_library(token: ConfigValue, site: DocumentSite) -> bool:
    """Whether Lightning or DeepSpeed reads the value, which both take hccl."""
    if token.key == "comm_backend_name":
        return bool(DEEPSPEED_KEYS & root_keys(site))
    return token.key == "process_group_backend"


@rule(
    "NPU831",
    "device-in-config",
    on=(ConfigValue, Variable),
    words=("cuda",),
    fix=FixLevel.UNSAFE,
    why='a config names a CUDA device, which torch for CPU and NPU refuses: the NPU\'s is "npu". '
    "Nothing in the file shows what reads the value, so only --unsafe edits it",
    examples=(
        rewrite("device: cuda:0\n", "device: npu:0\n", path="c.yaml"),
        rewrite('{"train": {"device": "cuda"}}', '{"train": {"device": "npu"}}', path="c.json"),
        rewrite("devices: [cuda:0, 'cuda:1']\n", "devices: [npu:0, 'npu:1']\n", path="c.yaml"),
        rewrite('map_location = "cuda"\n', 'map_location = "npu"\n', path="c.toml"),
        rewrite("teacher: cuda:1\n", "teacher: npu:1\n", path="c.yaml"),
        rewrite("device: cuda:${rank}\n", "device: npu:${rank}\n", path="c.yaml"),
        rewrite("ENV DEVICE=cuda:0 A=1\n", "ENV DEVICE=npu:0 A=1\n", path="Dockerfile"),
        rewrite(
            "environment:\n  - MODEL_DEVICE=cuda\n",
            "environment:\n  - MODEL_DEVICE=npu\n",
            path="compose.yml",
        ),
        rewrite(
            "device: cuda\n",
            "device: npu\n",
            path="c.yaml",
            beside={"run.py": "import torch\nd = torch.device(cfg['device'])\n"},
        ),
        leave("ENV BUILD=cuda\n", path="Dockerfile"),
        leave("device: &d\n  name: cuda\nother: *d\n", path="c.yaml"),
        leave("devices: [cpu, cuda, mps]\n", path="c.yaml"),
        leave("cuda: true\nextras: [cuda]\nfolder: cuda\n", path="c.yaml"),
        leave("jobs:\n  test:\n    device: cuda\n", path=".github/workflows/ci.yml"),
        leave("# device: cuda\ndevice: cpu\n", path="c.yaml"),
    ),
)
def device_in_config(token: ConfigValue | Variable, site: DocumentSite) -> Fix | Report | None:
    match = _DEVICE.fullmatch(token.value or "")
    if match is None or any(part in _HOST_OF_JOBS for part in PurePath(site.path).parts):
        return None
    new = "npu" + (match["index"] or "")
    if isinstance(token, Variable):
        return _assigned(token, site, match[0], new)
    known = names_device(token.key) or DEVICE in site.project.feeds(token.key)
    if not (match["index"] or known):
        return None
    beside = {value.partition(":")[0] for value in listed_beside(token, site)}
    if beside & {*OTHER_ACCELERATORS, "npu"}:
        return None
    return moved(token, site, new, DEVICE)


def _assigned(variable: Variable, site: DocumentSite, old: str, new: str) -> Fix | None:
    """The edit of ``NAME=value``; the value of ``NAME: value`` is a token of its own."""
    start = variable.end + 1 + (site.text[variable.end + 1 : variable.end + 2] in ("'", '"'))
    place = Token(site.text[start : start + len(old)], start, start + len(old))
    stands = site.text[variable.end : variable.end + 1] == "=" and place.text == old
    return Fix({place: new}, at=place) if stands and names_device(variable.text) else None

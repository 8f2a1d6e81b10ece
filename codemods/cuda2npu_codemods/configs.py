"""Devices, backends and settings of training frameworks in YAML, TOML and JSON files."""

from __future__ import annotations

import re
from pathlib import PurePath

from cuda2npu.rule import Fix, FixLevel, Report, leave, report, rewrite, rule
from cuda2npu.tokens import ConfigKey, ConfigValue, DocumentSite
from cuda2npu_codemods.frameworks import (
    CUDA_OPTIMIZER,
    cuda_optimizer_name,
    flash_attention_flag,
    flash_attention_setting,
    lightning_gpu,
    load_in_8bit,
    trainer_apex,
    trainer_tf32,
)
from cuda2npu_codemods.words import BACKEND_MAP, OTHER_ACCELERATORS, names_backend, names_device

_DEVICE = re.compile(r"cuda(?P<index>:(\d+|\$?\{[^{}]*\}|\$\w+|\$?\{\{[^{}]*\}\}))?")
_HOST_OF_JOBS = (".github", ".circleci", ".gitlab-ci.yml", ".gitlab", "azure-pipelines.yml")
"""Where a key ``device`` chooses among jobs and reaches no program by itself."""


_DEEPSPEED_KEYS = {
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "zero_optimization",
    "zero_allow_untested_optimizer",
}
"""Keys at the root of a DeepSpeed configuration, which no other file has."""


def _root_keys(site: DocumentSite) -> set[str]:
    return {
        token.key for token in site.tokens if isinstance(token, ConfigKey) and len(token.path) == 1
    }


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
    elif token.value == "nccl" and names_backend(re.sub(r"_name$", "", token.key)):
        if "hccl" in _listed_beside(token, site):
            return None
        new = "hccl"
    else:
        return None
    return _replaced(token, new, _LIBRARY if _is_read_by_library(token, site) else "")


_LIBRARY = 'the process-group backend of the NPU is "hccl"; starting a group with nccl raises there'


def _is_read_by_library(token: ConfigValue, site: DocumentSite) -> bool:
    """Whether Lightning or DeepSpeed reads the value, which both take hccl."""
    if token.key == "comm_backend_name":
        return bool(_DEEPSPEED_KEYS & _root_keys(site))
    return token.key == "process_group_backend"


def _listed_beside(token: ConfigValue, site: DocumentSite) -> set[str]:
    """The values of the list that a value stands in."""
    if not token.path or isinstance(token.path[-1], str):
        return set()
    return {
        other.value
        for other in site.tokens
        if isinstance(other, ConfigValue) and other.path[:-1] == token.path[:-1]
    }


def _replaced(token: ConfigValue, new: str, proven: str = "") -> Fix | Report:
    """The edit of a value; safe with the message that says why, else of the rule's level."""
    edits = token.becomes(new)
    if not edits:
        return Report(proven)
    return Fix(edits, proven, level=FixLevel.SAFE if proven else None)


@rule(
    "NPU831",
    "device-in-config",
    on=ConfigValue,
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
        leave("device: &d\n  name: cuda\nother: *d\n", path="c.yaml"),
        leave("devices: [cpu, cuda, mps]\n", path="c.yaml"),
        leave("cuda: true\nextras: [cuda]\nfolder: cuda\n", path="c.yaml"),
        leave("jobs:\n  test:\n    device: cuda\n", path=".github/workflows/ci.yml"),
        leave("# device: cuda\ndevice: cpu\n", path="c.yaml"),
    ),
)
def device_in_config(token: ConfigValue, site: DocumentSite) -> Fix | Report | None:
    match = _DEVICE.fullmatch(token.value)
    if match is None or any(part in _HOST_OF_JOBS for part in PurePath(site.path).parts):
        return None
    if not (match["index"] or names_device(token.key)):
        return None
    beside = {value.partition(":")[0] for value in _listed_beside(token, site)}
    if beside & {*OTHER_ACCELERATORS, "npu"}:
        return None
    return _replaced(token, "npu" + (match["index"] or ""))


@rule(
    "NPU832",
    "lightning-in-config",
    on=ConfigValue,
    words=("accelerator",),
    fix=FixLevel.NONE,
    why=lightning_gpu.why,
    examples=(
        report("trainer:\n  accelerator: gpu\n  devices: 2\n", path="c.yaml"),
        report('{"trainer": {"accelerator": "cuda"}}', path="c.json"),
        leave("trainer:\n  accelerator: cpu\n", path="c.yaml"),
        leave("accelerator: nvidia-tesla-t4\n", path="pod.yaml"),
    ),
)
def lightning_in_config(token: ConfigValue, site: DocumentSite) -> Report | None:
    named = token.path[-1:] == ("accelerator",)
    return Report() if named and token.value in ("gpu", "cuda") else None


_ACCELERATE_KEYS = {"compute_environment", "num_processes", "num_machines", "machine_rank"}


@rule(
    "NPU833",
    "accelerate-config",
    on=ConfigValue,
    words=("MULTI_GPU",),
    fix=FixLevel.SAFE,
    why="accelerate calls several NPUs MULTI_NPU, as `accelerate config` writes on an NPU machine",
    examples=(
        rewrite(
            "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_processes: 8\n",
            "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_NPU\nnum_processes: 8\n",
            path="accelerate.yaml",
        ),
        leave("distributed_type: MULTI_GPU\nmode: fast\n", path="own.yaml"),
    ),
    source="accelerate 1.11: DistributedType, and commands/launch.py, which treats both alike",
)
def accelerate_config(token: ConfigValue, site: DocumentSite) -> Fix | Report | None:
    if token.path != ("distributed_type",) or token.value != "MULTI_GPU":
        return None
    known = _ACCELERATE_KEYS & _root_keys(site)
    return _replaced(token, "MULTI_NPU") if len(known) > 1 else None


@rule(
    "NPU834",
    "flash-attention-in-config",
    on=ConfigValue,
    words=("flash_attention_",),
    fix=FixLevel.UNSAFE,
    why=flash_attention_setting.why,
    examples=(
        rewrite(
            "attn_implementation: flash_attention_2\n", "attn_implementation: sdpa\n", path="c.yaml"
        ),
        leave("notes: flash_attention_2\n", path="c.yaml"),
    ),
)
def flash_attention_in_config(token: ConfigValue, site: DocumentSite) -> Fix | Report | None:
    named = token.key.lstrip("_") == "attn_implementation"
    flash = token.value in ("flash_attention_2", "flash_attention_3")
    return _replaced(token, "sdpa") if named and flash else None


_TRUE = re.compile(r"true|yes|on", re.I)
_SETTINGS = {
    "tf32": (_TRUE, trainer_tf32.why),
    "optim": (CUDA_OPTIMIZER, cuda_optimizer_name.why),
    "load_in_8bit": (_TRUE, load_in_8bit.why),
    "use_flash_attention_2": (_TRUE, flash_attention_flag.why),
    "half_precision_backend": (re.compile("apex"), trainer_apex.why),
    "fp16_backend": (re.compile("apex"), trainer_apex.why),
}
_TRAINER_KEYS = {
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "num_train_epochs",
    "micro_batch_size",
    "lr_scheduler_type",
}
"""Arguments of transformers' Trainer, and of tools around it, that say whose config it is."""


@rule(
    "NPU835",
    "trainer-setting-in-config",
    on=ConfigValue,
    words=("tf32", "optim", "load_in_8bit", "use_flash_attention_2", "apex"),
    fix=FixLevel.NONE,
    why="a setting of transformers' Trainer that needs an NVIDIA GPU or a package for CUDA",
    examples=(
        report("tf32: true\nper_device_train_batch_size: 4\n", path="c.yaml"),
        report("optim: paged_adamw_32bit\nnum_train_epochs: 1\n", path="c.yaml"),
        report("load_in_8bit: true\nmicro_batch_size: 2\n", path="c.yml"),
        leave("load_in_8bit: false\nmicro_batch_size: 2\n", path="c.yml"),
        leave("tf32: true\nmodel: mine\n", path="own.yaml"),
        leave("optim: adamw_torch\nnum_train_epochs: 1\n", path="c.yaml"),
    ),
)
def trainer_setting_in_config(token: ConfigValue, site: DocumentSite) -> Report | None:
    pattern, why = _SETTINGS.get(token.key, (None, ""))
    if pattern is None or not pattern.fullmatch(token.value):
        return None
    keys = {other.key for other in site.tokens if isinstance(other, ConfigKey)}
    return Report(why) if keys & _TRAINER_KEYS else None


@rule(
    "NPU836",
    "deepspeed-amp",
    on=ConfigKey,
    words=('"amp"',),
    fix=FixLevel.NONE,
    why="DeepSpeed's amp section uses NVIDIA's apex, which does not build without CUDA: use its "
    "fp16 or bf16 section",
    examples=(
        report('{"train_batch_size": 8, "amp": {"enabled": true}}', path="ds_config.json"),
        leave('{"train_batch_size": 8, "amp": {"enabled": false}}', path="ds_config.json"),
        leave('{"amp": {"enabled": true}}', path="own.json"),
    ),
    source="DeepSpeed's description of its configuration: automatic mixed precision by apex",
)
def deepspeed_amp(token: ConfigKey, site: DocumentSite) -> Report | None:
    if token.path != ("amp", "enabled") or token.value != "true":
        return None
    return Report() if _DEEPSPEED_KEYS & _root_keys(site) else None

"""Configuration files of Lightning, accelerate, transformers' Trainer and DeepSpeed."""

from __future__ import annotations

import re

from cuda2npu.rule import Fix, FixLevel, Report, leave, report, rewrite, rule
from cuda2npu.tokens import ConfigKey, ConfigValue, DocumentSite
from cuda2npu_codemods.config_values import DEEPSPEED_KEYS, replaced, root_keys
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
"""Two of these beside ``distributed_type`` say that accelerate reads the file."""


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
        leave("kind: MULTI_GPU\n", path="own.yaml"),
    ),
    source="accelerate 1.11: DistributedType, and commands/launch.py, which treats both alike",
)
def accelerate_config(token: ConfigValue, site: DocumentSite) -> Fix | Report | None:
    if token.path != ("distributed_type",) or token.value != "MULTI_GPU":
        return None
    edits = token.becomes("MULTI_NPU")
    known = len(_ACCELERATE_KEYS & root_keys(site)) > 1
    return Fix(edits, level=FixLevel.SAFE if known else FixLevel.UNSAFE) if edits else Report()


@rule(
    "NPU834",
    "flash-attention-in-config",
    on=ConfigValue,
    words=("flash_attention_",),
    fix=FixLevel.UNSAFE,
    missed_by_shim=True,
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
    return replaced(token, "sdpa") if named and flash else None


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
    missed_by_shim=True,
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
    missed_by_shim=True,
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
    return Report() if DEEPSPEED_KEYS & root_keys(site) else None

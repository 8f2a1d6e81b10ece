"""Settings of transformers, Lightning and accelerate that ask for a GPU or for CUDA packages."""

from __future__ import annotations

import re

import libcst as cst

from cuda2npu.rule import Fix, FixLevel, Report, Site, leave, report, rewrite, rule
from cuda2npu_codemods.expressions import string, terminal
from cuda2npu_codemods.triggers import (
    APEX_BACKEND_WORDS,
    ATTENTION_WORDS,
    FLASH_WORDS,
    INT8_WORDS,
    LIGHTNING_WORDS,
    MULTI_GPU_WORDS,
    OPTIMIZER_WORDS,
    TRAINING_WORDS,
)


@rule(
    "NPU610",
    "flash-attention-setting",
    on=cst.SimpleString,
    words=ATTENTION_WORDS,
    fix=FixLevel.UNSAFE,
    missed_by_shim=True,
    why="this asks transformers for flash_attn. Recent releases of transformers run it with "
    'torch_npu\'s own kernel; before, write "sdpa" (--unsafe does)',
    examples=(
        rewrite(
            'm = M.from_pretrained(p, attn_implementation="flash_attention_2")',
            'm = M.from_pretrained(p, attn_implementation="sdpa")',
        ),
        leave('if config._attn_implementation == "flash_attention_2": pass'),
    ),
)
def flash_attention_setting(node: cst.SimpleString, site: Site) -> Fix | None:
    value = string(node)
    if value not in ("flash_attention_2", "flash_attention_3"):
        return None
    for ancestor in site.ancestors(node):
        if isinstance(ancestor, cst.Arg):
            keyword = ancestor.keyword.value if ancestor.keyword else ""
            named = keyword in ("attn_implementation", "_attn_implementation")
            literal = cst.SimpleString(node.value.replace(value, "sdpa"))
            return Fix({node: literal}, imports=()) if named else None
        if not isinstance(ancestor, cst.IfExp) or ancestor.test is node:
            return None
    return None


@rule(
    "NPU611",
    "trainer-tf32",
    on=cst.Arg,
    words=TRAINING_WORDS,
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="tf32=True asks transformers for an NVIDIA GPU and raises without one: drop it; HF32 "
    "takes its place, see torch.npu.matmul.allow_hf32",
    examples=(
        report("a = TrainingArguments('out', tf32=True)"),
        leave("set_precision(tf32=True)"),
    ),
)
def trainer_tf32(node: cst.Arg, site: Site) -> Report | None:
    call = site.parent(node)
    if node.keyword is None or node.keyword.value != "tf32" or not isinstance(call, cst.Call):
        return None
    if not site.code(node.value).startswith("True"):
        return None
    callee = terminal(call.func) or ""
    return Report() if callee.endswith(("TrainingArguments", "TrainingConfig", "Config")) else None


CUDA_OPTIMIZER = re.compile(r"adamw_apex_fused|\w+_8bit|\w+_bnb\w*|paged_(adam|lion)\w*")


@rule(
    "NPU612",
    "cuda-optimizer-name",
    on=cst.SimpleString,
    words=OPTIMIZER_WORDS,
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="this optimizer comes from bitsandbytes or apex, which need CUDA: write adamw_torch, or "
    "adamw_torch_npu_fused",
    examples=(
        report("a = TrainingArguments('out', optim='adamw_bnb_8bit')"),
        report("a = SFTConfig(optim='paged_adamw_32bit')"),
        leave("if args.optim == 'adamw_bnb_8bit': pass"),
    ),
)
def cuda_optimizer_name(node: cst.SimpleString, site: Site) -> Report | None:
    if not CUDA_OPTIMIZER.fullmatch(string(node) or ""):
        return None
    for ancestor in site.ancestors(node):
        if isinstance(ancestor, cst.Arg) and ancestor.keyword is not None:
            if ancestor.keyword.value == "optim":
                return Report()
        elif isinstance(ancestor, cst.AnnAssign):
            return Report() if terminal(ancestor.target) == "optim" else None
        elif isinstance(ancestor, (cst.Comparison, cst.Subscript)):
            return None
    return None


_LIGHTNING = ("pytorch_lightning", "lightning", "lightning_fabric")


@rule(
    "NPU613",
    "lightning-gpu",
    on=cst.Call,
    words=LIGHTNING_WORDS,
    fix=FixLevel.NONE,
    why="Lightning has no accelerator for NPUs: give Trainer an Accelerator class of your own (or "
    "Ascend's port of Lightning), and a DDPStrategy with process_group_backend='hccl'",
    examples=(
        report("import pytorch_lightning as pl\nt = pl.Trainer(accelerator='gpu', devices=2)"),
        report("from lightning import Trainer\nt = Trainer(gpus=1)"),
        leave("import pytorch_lightning as pl\nt = pl.Trainer(accelerator='cpu')"),
        leave("t = Trainer(gpus=1)"),
    ),
)
def lightning_gpu(node: cst.Call, site: Site) -> Report | None:
    if terminal(node.func) not in ("Trainer", "Fabric", "from_argparse_args"):
        return None
    if not any(site.file.imports(package) for package in _LIGHTNING):
        return None
    accelerator, gpus = site.argument(node, "accelerator"), site.argument(node, "gpus")
    if accelerator is not None and any(
        word in site.code(accelerator.value) for word in ("gpu", "cuda")
    ):
        return Report(at=accelerator)
    if gpus is None or site.code(gpus.value) in ("0", "None"):
        return None
    return Report(at=gpus)


@rule(
    "NPU614",
    "accelerate-multi-gpu",
    on=cst.Attribute,
    words=MULTI_GPU_WORDS,
    fix=FixLevel.UNSAFE,
    quiet=True,
    why="accelerate's DistributedType is MULTI_NPU on several NPUs, so a test for MULTI_GPU alone "
    "is false there; --unsafe replaces it, or adds to a list of several",
    examples=(
        rewrite(
            "if state.distributed_type == DistributedType.MULTI_GPU: pass",
            "if state.distributed_type == DistributedType.MULTI_NPU: pass",
        ),
        rewrite(
            "ok = t in (DistributedType.MULTI_GPU, DistributedType.MULTI_XPU)",
            "ok = t in (DistributedType.MULTI_GPU, DistributedType.MULTI_NPU, "
            "DistributedType.MULTI_XPU)",
        ),
        leave("ok = t in (DistributedType.MULTI_GPU, DistributedType.MULTI_NPU)"),
    ),
)
def accelerate_multi_gpu(node: cst.Attribute, site: Site) -> Fix | None:
    if node.attr.value != "MULTI_GPU" or terminal(node.value) != "DistributedType":
        return None
    for ancestor in site.ancestors(node):
        if isinstance(ancestor, cst.Comparison):
            if "MULTI_NPU" in site.code(ancestor):
                return None
            new = node.with_changes(attr=cst.Name("MULTI_NPU"))
            holder = site.parent(node)
            if isinstance(holder, cst.Element) and "MULTI_XPU" in site.code(ancestor):
                comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
                both = (holder.with_changes(comma=comma), holder.with_changes(value=new))
                return Fix({holder: both}, imports=())
            return Fix({node: new}, imports=())
    return None


@rule(
    "NPU615",
    "load-in-8bit",
    on=cst.Arg,
    words=INT8_WORDS,
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="LLM.int8() of bitsandbytes needs CUDA: load in bfloat16, in 4-bit nf4 with a recent "
    "bitsandbytes, or quantize with Ascend's tools",
    examples=(
        report("m = M.from_pretrained(p, load_in_8bit=True)"),
        leave("m = M.from_pretrained(p, load_in_8bit=False)"),
    ),
)
def load_in_8bit(node: cst.Arg, site: Site) -> Report | None:
    named = node.keyword is not None and node.keyword.value == "load_in_8bit"
    return Report() if named and site.code(node.value) == "True" else None


@rule(
    "NPU619",
    "flash-attention-flag",
    on=cst.Arg,
    words=FLASH_WORDS,
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="this asks transformers for flash_attn. Recent releases spell it attn_implementation and "
    'run it with torch_npu\'s own kernel; write attn_implementation="sdpa"',
    examples=(
        report("m = M.from_pretrained(p, use_flash_attention_2=True)"),
        leave("m = M.from_pretrained(p, use_flash_attention_2=False)"),
    ),
)
def flash_attention_flag(node: cst.Arg, site: Site) -> Report | None:
    named = node.keyword is not None and node.keyword.value == "use_flash_attention_2"
    return Report() if named and site.code(node.value) == "True" else None


@rule(
    "NPU620",
    "trainer-apex",
    on=cst.Arg,
    words=APEX_BACKEND_WORDS,
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="this has the Trainer use NVIDIA's apex, which does not build without CUDA: drop it, and "
    "torch.autocast is used",
    examples=(
        report('a = TrainingArguments("out", half_precision_backend="apex")'),
        report('a = TrainingArguments("out", fp16_backend="apex")'),
        leave('a = setup(attn_backend="apex")'),
    ),
)
def trainer_apex(node: cst.Arg, site: Site) -> Report | None:
    named = node.keyword is not None and node.keyword.value in _AMP_BACKENDS
    return Report() if named and string(node.value) == "apex" else None


_AMP_BACKENDS = ("half_precision_backend", "fp16_backend", "amp_backend")

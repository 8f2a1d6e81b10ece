# torch_npu gives torch and its tensors names at run time that no stub knows.
# mypy: disable-error-code="attr-defined,operator,no-untyped-call,union-attr,arg-type"
# mypy: disable-error-code="import-untyped,index,no-any-return"
from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
import torch_npu  # noqa: F401
from support import Tensor, run_cases, same_on_both
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
)

SIZES: Any = {"vocab_size": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def gpt2() -> Any:
    return GPT2LMHeadModel(GPT2Config(n_positions=32, n_embd=32, n_layer=2, n_head=4, **SIZES))


def llama() -> Any:
    shape: Any = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads: Any = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return LlamaForCausalLM(LlamaConfig(max_position_embeddings=64, **shape, **heads, **SIZES))


def case_gpt2_trains_as_on_the_cpu() -> None:
    def program(d: str) -> list[Any]:
        model = gpt2().to(d).train()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        losses = []
        for _ in range(3):
            tokens = torch.randint(3, 64, (2, 16)).to(d)
            loss = model(input_ids=tokens, labels=tokens).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss)
        return [losses, list(model.parameters())]

    same_on_both(program, 1e-4)


def case_llama_trains_in_bfloat16() -> None:
    def program(d: str) -> list[Tensor]:
        model = llama().to(d).train()
        tokens = torch.randint(3, 64, (2, 16)).to(d)
        with torch.autocast(d, dtype=torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        return [loss]

    same_on_both(program, 2e-2)


def case_llama_generates_what_the_cpu_does() -> None:
    def program(d: str) -> list[Tensor]:
        model = llama().to(d).eval()
        tokens = torch.randint(3, 64, (1, 8)).to(d)
        sampled = model.generate(tokens, max_new_tokens=6, do_sample=True, top_k=10)
        return [model.generate(tokens, max_new_tokens=8, do_sample=False), sampled]

    same_on_both(program)


class Rows(torch.utils.data.Dataset[dict[str, Tensor]]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        row = torch.arange(16) % 60 + 3
        return {"input_ids": row, "labels": row}


def case_trainer_with_checkpoints() -> None:
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, max_steps=3, per_device_train_batch_size=2, save_steps=2,
            report_to=[], bf16=True, logging_steps=1,
        )  # fmt: skip
        model = gpt2()
        trainer = Trainer(model=model, args=arguments, train_dataset=Rows())
        assert trainer.args.device.type == "npu"
        trainer.train()
        assert next(iter(model.parameters())).device.type == "npu"
        saved = Path(folder, "checkpoint-2")
        assert saved.joinpath("model.safetensors").exists()
        again = Trainer(model=gpt2(), args=arguments, train_dataset=Rows())
        again.train(resume_from_checkpoint=str(saved))


if __name__ == "__main__":
    run_cases(globals())

"""What the cases share: the same function on the CPU and on the simulated NPU, with one seed."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

Tensor = torch.Tensor
SAME_DEVICE = "Expected all tensors to be on the same device, but found at least two devices, "


def flat(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        value = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
        return [value.detach().cpu().float()]
    return [each for one in value for each in flat(one)]


def same_on_both(program: Callable[[str], Any], tolerance: float = 1e-5) -> None:
    results = []
    for device in ("cpu", "npu"):
        torch.manual_seed(0)
        results.append(flat(program(device)))
    assert len(results[0]) == len(results[1])
    for number, (cpu, npu) in enumerate(zip(*results, strict=True)):
        assert cpu.shape == npu.shape, number
        gap = (cpu - npu).abs().max() if cpu.numel() else 0
        assert torch.allclose(cpu, npu, rtol=tolerance, atol=tolerance, equal_nan=True), (
            f"result {number} differs by {gap}"
        )


def raises(function: Callable[[], Any], words: str) -> None:
    try:
        function()
    except Exception as error:
        assert words in str(error), str(error)  # noqa: PT017
        return
    raise AssertionError(f"nothing raised, expected {words!r}")


def run_cases(names: dict[str, Any]) -> None:
    """Runs every ``case_*`` and keeps what went wrong."""
    outcomes: dict[str, str] = {}
    for name, case in list(names.items()):
        if name.startswith("case_"):
            try:
                case()
                outcomes[name] = ""
            except Exception:
                outcomes[name] = traceback.format_exc()
    keep(outcomes)


def keep(outcomes: dict[str, str]) -> None:
    """Writes a file of this rank's own, since lines of several ranks mix on one stdout."""
    file = Path(os.environ["OUTCOMES"], os.environ.get("RANK", "0") + ".json")
    file.write_text(json.dumps(outcomes), encoding="utf-8")

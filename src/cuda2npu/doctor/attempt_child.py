"""Run by the interpreter that is looked at, any from Python 3.8 on: uses the NPU, step by step.

Each step writes a line of JSON to the file that is named, when it begins and when it ends, so that
a step which ends the process or never ends is known, too.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any


def chain(error: BaseException | None) -> list[dict[str, str]]:
    """The exception and what led to it, outermost first."""
    found: list[dict[str, str]] = []
    while error is not None and len(found) < 20:
        found.append({"type": type(error).__name__, "message": str(error)})
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return found


def torch_module() -> dict[str, Any]:
    torch = import_module("torch")
    return {"version": str(torch.__version__), "npu": hasattr(torch, "npu")}


def torch_npu_module() -> dict[str, str]:
    torch_npu = import_module("torch_npu")
    return {"version": str(getattr(torch_npu, "__version__", ""))}


def available() -> bool:
    return bool(import_module("torch").npu.is_available())


def devices() -> dict[str, Any]:
    npu = import_module("torch").npu
    return {"count": npu.device_count(), "name": npu.get_device_name(0)}


def operation() -> float:
    """An addition on the NPU, read back."""
    torch = import_module("torch")
    total = float((torch.ones(2, 2, device="npu") + 1).sum().cpu())
    if total != 8.0:
        raise ArithmeticError(f"four times 1 + 1 is {total} on the NPU, not 8.0")
    return total


STEPS = (
    ("import torch", torch_module),
    ("import torch_npu", torch_npu_module),
    ("torch.npu.is_available()", available),
    ("torch.npu.device_count()", devices),
    ("an addition on the NPU", operation),
)


def main(path: str) -> None:
    with Path(path).open("a", encoding="utf-8") as record:

        def write(line: dict[str, Any]) -> None:
            record.write(json.dumps(line) + "\n")
            record.flush()

        for name, step in STEPS:
            write({"step": name})
            try:
                value: Any = step()
            except BaseException as error:
                write({"error": chain(error)})
                return
            write({"value": value})
            if value is False:
                return


main(sys.argv[1])

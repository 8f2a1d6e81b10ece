"""Checks of what counts in the end: torch_npu imported, an NPU found, an addition computed."""

from __future__ import annotations

from collections.abc import Iterator

from cuda2npu.doctor.attempt import LAST, UNAVAILABLE, Attempt
from cuda2npu.doctor.check import Check, ok, unchecked, wrong
from cuda2npu.doctor.failures import Advice, cause_of

STEPS = ("import torch", "import torch_npu", UNAVAILABLE, "torch.npu.device_count()", LAST)


def untried(why: str) -> list[Check]:
    return [unchecked(name, why) for name in STEPS]


def checks(tried: Attempt, advice: Advice) -> Iterator[Check]:
    """A row for each step up to the one that failed; the steps behind it were not tried."""
    failed = False
    if tried.autoload_breaks_torch:
        text = "it loads torch_npu, which fails; torch by itself can be imported"
        todo = (
            "until torch_npu can be imported, on machines without an NPU, too: "
            "export TORCH_DEVICE_BACKEND_AUTOLOAD=0"
        )
        yield wrong("import torch", text, todo)
    for name in STEPS:
        if tried.autoload_breaks_torch and name == "import torch":
            continue
        if failed:
            yield unchecked(name, "a step before it failed")
        elif name != tried.failed and name in tried.values:
            yield ok(name, _told(name, tried))
        else:
            failed = True
            yield _failed(name, tried, advice)


def _told(name: str, tried: Attempt) -> str:
    value = tried.values[name]
    if name == "torch.npu.device_count()":
        return f"{value['count']}, the first is {value['name']}"
    if name in (UNAVAILABLE, LAST):
        return "True" if value is True else "right"
    return str(value.get("version") or "succeeds")


def _failed(name: str, tried: Attempt, advice: Advice) -> Check:
    if tried.values.get(UNAVAILABLE) is False:
        text = "False: the runtime finds no NPU that this process may use"
        todo = "read the newest log below ~/ascend/log"
        if advice.hiding:
            first = f"do what is said of {', '.join(advice.hiding)}"
            todo = f"{first}; if NPUs are still not found, {todo}"
        return wrong(name, text, todo)
    cause = cause_of(tried, advice)
    said = tried.errors[-1].splitlines()[0] if tried.errors else ""
    text = f"{cause.name}: {cause.text}"
    return wrong(name, f"{text} ({said})" if said and said not in text else text, cause.cure)

"""A device test and the question that it guards move together, or not at all."""

from __future__ import annotations

import pytest

from cuda2npu.engine import rewrite_source
from cuda2npu.model import Options

CAPABILITY = "torch.cuda.get_device_capability()[0]"
TOGETHER = [
    f"major = {CAPABILITY} if torch.cuda.is_available() else 0",
    f"new = torch.cuda.is_available() and {CAPABILITY} >= 9",
    f"new = ready and torch.cuda.is_available() and wide and {CAPABILITY} >= 9",
    f"if not (torch.cuda.is_available() and {CAPABILITY} >= 9): raise RuntimeError",
    f"@skipif(not torch.cuda.is_available() or {CAPABILITY} < 8, reason='old')\ndef test(): pass",
    f"old = (torch.cuda.is_available() is False) or {CAPABILITY} < 8",
    f"new = torch.cuda.device_count() > 0 and {CAPABILITY} >= 9",
    f"new = x.is_cuda and {CAPABILITY} >= 9",
    f"new = x.device.type == 'cuda' and {CAPABILITY} >= 9",
    f"new = str(device).startswith('cuda') and {CAPABILITY} >= 9",
    f"if torch.cuda.is_available():\n    if {CAPABILITY} < 8: raise ValueError",
    f"def f():\n    if not torch.cuda.is_available(): return False\n    return {CAPABILITY} >= 9",
]
MOVED = [
    (
        f"if torch.cuda.is_available():\n    major = {CAPABILITY}\n    model.cuda()",
        f"if torch.npu.is_available():\n    major = {CAPABILITY}\n    model.npu()",
    ),
    (
        f"new = torch.cuda.is_available() or {CAPABILITY} >= 9",
        f"new = torch.npu.is_available() or {CAPABILITY} >= 9",
    ),
    (
        f"new = {CAPABILITY} >= 9 and torch.cuda.is_available()",
        f"new = {CAPABILITY} >= 9 and torch.npu.is_available()",
    ),
]


def rewritten(code: str, options: Options) -> tuple[str, dict[str, str]]:
    result = rewrite_source(f"import torch\nimport torch_npu\n{code}\n", options)
    body = result.text.partition("import torch_npu\n")[2].rstrip("\n")
    return body, {finding.code: finding.fix.value for finding in result.remaining}


@pytest.mark.parametrize("code", TOGETHER)
def test_a_guard_stays_with_a_question_that_stays(code: str) -> None:
    body, findings = rewritten(code, Options())
    assert body == code
    assert findings == {"NPU108": "unsafe", "NPU130": "unsafe"}


@pytest.mark.parametrize("code", TOGETHER)
def test_unsafe_moves_both(code: str) -> None:
    body, findings = rewritten(code, Options(unsafe=True))
    assert "cuda" not in body
    assert not findings


@pytest.mark.parametrize(("code", "new"), MOVED)
def test_a_guard_of_placement_moves_and_the_question_is_loud(code: str, new: str) -> None:
    body, findings = rewritten(code, Options())
    assert body == new
    assert findings == {"NPU130": "unsafe"}


def test_names_behind_a_test_that_stays_stay_with_it() -> None:
    device = "torch.cuda.get_device_capability(torch.cuda.current_device())"
    code = f"new = torch.cuda.is_available() and {device} >= (9, 0)"
    body, findings = rewritten(code, Options())
    assert body == code
    assert findings == {"NPU108": "unsafe", "NPU130": "unsafe"}
    assert "cuda" not in rewritten(code, Options(unsafe=True))[0]

"""Lines of two versions of a file, classes in a file, and the causes of failures. No torch."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cuda2npu.model import Options
from cuda2npu.running.process import Ended
from cuda2npu.running.program import ended_by
from cuda2npu.smoke.causes import cause_of
from cuda2npu.smoke.failure import Failure, failure
from cuda2npu.smoke.lines import class_lines, original_line, pair
from cuda2npu.smoke.overlay import rewritten
from smoke.support import run_of

OLD = ["import torch", "", "a = x.cuda()", "b = 1", "c = y.cuda()", "d = 2"]
NEW = ["import torch", "import torch_npu", "", "a = x.npu()", "b = 1", "c = y.npu()", "d = 2"]


@pytest.mark.parametrize(
    ("new", "old"), [(1, 1), (2, 0), (3, 2), (4, 3), (5, 4), (6, 5), (7, 6), (8, 0)]
)
def test_lines(new: int, old: int) -> None:
    assert original_line(OLD, NEW, new) == old


def test_an_import_directly_above_a_changed_line() -> None:
    old = ["import torch", "from torch.cuda.amp import autocast", "x"]
    new = ["import torch", "import torch_npu", "from torch_npu.npu.amp import autocast", "x"]
    assert [original_line(old, new, line) for line in (1, 2, 3, 4)] == [1, 0, 2, 3]


def test_pair(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text("\n".join(OLD))
    (tmp_path / "new.py").write_text("\n".join(NEW))
    found = pair(tmp_path / "old.py", tmp_path / "new.py", 4)
    assert (found.line, found.original) == (3, "a = x.cuda()")
    assert (found.rewritten_line, found.rewritten) == (4, "a = x.npu()")


def test_classes(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text(
        "class A:\n    class B:\n        x = 1\n\ndef make():\n    class C:\n        y = 1\n"
    )
    assert class_lines(file, "A") == (1, 3)
    assert class_lines(file, "A.B") == (2, 3)
    assert class_lines(file, "make.<locals>.C") == (6, 7)
    assert class_lines(file, "Missing") is None
    assert class_lines(tmp_path / "none.py", "A") is None


@pytest.mark.parametrize(
    ("kind", "message", "name"),
    [
        ("AttributeError", "module 'torch' has no attribute 'npu'", "missing import"),
        ("RuntimeError", "Expected one of cpu, cuda device type at start of device string: npu",
         "missing import"),
        ("RuntimeError", "Expected all tensors to be on the same device, but found at least two "
         "devices, npu:0 and cpu!", "device mismatch"),
        ("RuntimeError", "Expected all tensors to be on the same device, but found at least two "
         "devices, npu:1 and npu:0! (when checking argument weight)", "tensors on two NPUs"),
        ("TypeError", "Adam.step() got an unexpected keyword argument 'grad_scaler'",
         "fused optimizer and GradScaler"),
        ("RuntimeError", "Expected all tensors to be on the same device, but got index is on cpu, "
         "different from other tensors on npu:0", "device mismatch"),
        ("RuntimeError", "Input type (torch.FloatTensor) and weight type (torch.npu.FloatTensor) "
         "should be the same", "device mismatch"),
        ("RuntimeError", "Input type (CUDAFloatType) and bias type (CPUFloatType) should be "
         "the same",
         "device mismatch"),
        ("RuntimeError", "Input type (float) and bias type (c10::Half) should be the same",
         "dtype mismatch"),
        ("RuntimeError", "Input type (npuFloatType) and weight type (npuHalfType) should be "
         "the same",
         "dtype mismatch"),
        ("RuntimeError", "mat1 and mat2 must have the same dtype, but got Float and Half",
         "dtype mismatch"),
        ("RuntimeError", "expected scalar type Float but found Half", "dtype mismatch"),
        ("RuntimeError", "Found dtype Double but expected Float", "dtype mismatch"),
        ("RuntimeError", "Index put requires the source and destination dtypes match, got Float "
         "for the destination and Half for the source.", "dtype mismatch"),
        ("TypeError", "can't convert npu:0 device type tensor to numpy. Use Tensor.cpu()",
         "tensor on the NPU given to numpy"),
        ("NotImplementedError", "Could not run 'aten::_foo' with arguments from the 'PrivateUse1' "
         "backend", "missing operator"),
        ("RuntimeError", "Distributed package doesn't have HCCL built in", "HCCL not up"),
        ("ValueError", "Error initializing torch.distributed using env:// rendezvous: environment "
         "variable RANK expected, but not set", "no launcher"),
        ("KeyError", "'LOCAL_RANK'", "no launcher"),
        ("RuntimeError", "NPU out of memory. Tried to allocate 2.00 GiB", "out of memory"),
        ("AssertionError", "Torch not compiled with CUDA enabled", "CUDA call left"),
        ("ModuleNotFoundError", "No module named 'flash_attn'", "missing module"),
        ("AttributeError", "module 'torch_npu' has no attribute 'nonsense'",
         "name that does not exist"),
    ],
)  # fmt: skip
def test_causes(kind: str, message: str, name: str) -> None:
    cause = cause_of(kind, message)
    assert cause is not None
    assert cause.name == name
    assert cause.cure


def test_a_script_for_torchrun_is_started_with_nproc() -> None:
    cause = cause_of("KeyError", "'LOCAL_RANK'")
    assert cause is not None
    assert "--nproc" in cause.cure


def test_other_errors_have_no_known_cause() -> None:
    assert cause_of("ValueError", "the batch size must be positive") is None
    compared = "'>=' not supported between instances of 'NoneType' and 'int'"
    assert cause_of("TypeError", compared) is None


def test_signals() -> None:
    cause = cause_of("", "", -11)
    assert cause is not None
    assert cause.name == "crash"


CAPABILITY = "major, _ = torch.cuda.get_device_capability()"
NO_CUDA = "Torch not compiled with CUDA enabled"


def failed(
    folder: Path, kind: str, message: str, *, unsafe: bool = False, line: str = CAPABILITY,
    marked: str = "",
) -> Failure:  # fmt: skip
    """A script whose second line, the third of the rewritten one, raised on the NPU."""
    script = folder / "script.py"
    script.write_text(f"import torch\n{line}\n")
    overlay = rewritten([script], folder, folder / "copy", Options(unsafe=unsafe))
    where = {"file": str(folder / "copy" / "script.py"), "line": 3 if unsafe else 2}
    frames = [{**where, "marked": marked}]
    error = {"type": kind, "message": message, "frames": frames, "text": "Traceback"}
    output = (
        "no data in /data\n"
        "[W1130 15:12:17.452228441 NPUCachingAllocator.cpp:168] Warning: padding (function)\n"
    )
    found = failure("npu", run_of([], {}, error=error), Ended(1, False, 1.0, output), overlay)
    assert found is not None
    return found


TWO = "print(torch.backends.cudnn.version(), torch.cuda.get_device_capability())"


@pytest.mark.parametrize(
    ("marked", "code"),
    [("torch.backends.cudnn.version()", "NPU503"),
     ("torch.cuda.get_device_capability()", "NPU130")],
)  # fmt: skip
def test_of_two_findings_that_counts_which_the_traceback_marks(
    tmp_path: Path, marked: str, code: str
) -> None:
    cause = failed(tmp_path, "AssertionError", NO_CUDA, line=TWO, marked=marked).cause
    assert cause is not None
    assert cause.name.startswith(code)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tracebacks mark nothing before Python 3.11")
def test_what_a_traceback_marks_is_recorded() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        print("ä", int("1"), 1 // int("0"))
    frames = ended_by(caught.value)["error"]["frames"]
    assert frames[-1]["marked"] == '1 // int("0")'


def test_two_npus_are_told_with_the_line_that_spreads_over_them(tmp_path: Path) -> None:
    message = "Expected all tensors to be on the same device, but found npu:1 and npu:0"
    line = "net = torch.nn.DataParallel(torch.nn.Linear(2, 2)); print(net)"
    cause = failed(tmp_path, "RuntimeError", message, line=line).cause
    assert cause is not None
    assert cause.name == "NPU141 data-parallel"
    other = failed(tmp_path, "RuntimeError", message, line="torch.ones(1)").cause
    assert other is not None
    assert "torch.npu.set_device" in other.cure


def test_check_is_named_where_it_lists_something(tmp_path: Path) -> None:
    none = failed(tmp_path, "AssertionError", NO_CUDA, line="torch.ones(1, device=input())").cause
    assert none is not None
    assert none.name == "CUDA call left"
    assert "cuda2npu check" not in none.cure
    line = f"torch.ones(1, device=input())\n{CAPABILITY}"
    left = failed(tmp_path, "AssertionError", NO_CUDA, line=line).cause
    assert left is not None
    assert "`cuda2npu check` has left in your code: script.py:3 NPU130" in left.cure


@pytest.mark.parametrize(
    ("kind", "message", "unsafe"),
    [("AssertionError", "Torch not compiled with CUDA enabled", False),
     ("TypeError", "cannot unpack non-iterable NoneType object", True)],
)  # fmt: skip
def test_what_a_rule_knows_of_the_line_is_the_cause(
    tmp_path: Path, kind: str, message: str, unsafe: bool
) -> None:
    cause = failed(tmp_path, kind, message, unsafe=unsafe).cause
    assert cause is not None
    assert cause.name == "NPU130 device-capability"
    assert "returns None" in cause.text
    assert "cuda2npu rules NPU130" in cause.cure


def test_a_cause_that_is_certain_stays(tmp_path: Path) -> None:
    cause = failed(tmp_path, "RuntimeError", "NPU out of memory").cause
    assert cause is not None
    assert cause.name == "out of memory"


def test_an_argument_that_the_rewritten_script_does_not_take_is_the_cause() -> None:
    said = "train.py: error: argument --device: invalid choice: 'cuda' (choose from 'npu')\n"
    ended = Ended(1, False, 1.0, "usage: train.py [-h]\n" + said)
    error = {"type": "SystemExit", "message": "2", "frames": [], "text": "Traceback"}
    found = failure("npu", run_of([], {}, error=error), ended, None)
    assert found is not None
    assert found.cause is not None
    assert found.cause.name == "argument for CUDA"


def test_a_script_that_exits_is_shown_with_its_own_last_words(tmp_path: Path) -> None:
    assert failed(tmp_path, "SystemExit", "1").traceback == "no data in /data\n"

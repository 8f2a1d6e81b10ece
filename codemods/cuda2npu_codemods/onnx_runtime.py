"""onnxruntime, which has an NPU of its own only in the package onnxruntime-cann."""

from __future__ import annotations

import libcst as cst

from cuda2npu.rule import FixLevel, Report, Site, leave, report, rule
from cuda2npu_codemods.expressions import FOREIGN_METHODS, string, terminal
from cuda2npu_codemods.triggers import ONNX_WORDS
from cuda2npu_codemods.words import DEVICE

_PROVIDERS = ("CUDAExecutionProvider", "TensorrtExecutionProvider")


@rule(
    "NPU621",
    "onnxruntime-provider",
    on=cst.SimpleString,
    words=_PROVIDERS,
    fix=FixLevel.NONE,
    missed_by_shim=True,
    quiet=True,
    why="this provider of onnxruntime needs an NVIDIA GPU, and onnxruntime falls back to the CPU "
    "without it: install onnxruntime-cann and name CANNExecutionProvider",
    examples=(
        report('s = ort.InferenceSession(p, providers=["CUDAExecutionProvider"])'),
        report('p = [("CUDAExecutionProvider", {"device_id": 0}), "CPUExecutionProvider"]'),
        report(
            "import torch\nif onnx:\n    import onnxruntime\n"
            '    s = onnxruntime.InferenceSession(p, providers=["CUDAExecutionProvider"])'
        ),
        leave('p = ["CPUExecutionProvider"]'),
        leave('print("no CUDAExecutionProvider here")'),
    ),
)
def onnxruntime_provider(node: cst.SimpleString, site: Site) -> Report | None:
    return Report() if string(node) in _PROVIDERS else None


@rule(
    "NPU622",
    "onnxruntime-device",
    on=cst.SimpleString,
    words=ONNX_WORDS,
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="onnxruntime is told that this value lies on a CUDA device, which the build for the NPU "
    "does not have. With onnxruntime-cann and CANNExecutionProvider the device is 'cann'",
    source="onnxruntime, get_ort_device_type in onnxruntime_inference_collection.py",
    examples=(
        report('io.bind_input("x", "cuda", 0, np.float32, s, x.data_ptr())'),
        report('io.bind_output("y", device_type="cuda")'),
        report('v = ort.OrtValue.ortvalue_from_numpy(x, "cuda", 0)'),
        report('v = ort.OrtValue.ortvalue_from_shape_and_type(s, np.float32, "cuda")'),
        leave('io.bind_input("cuda", "cpu", 0)'),
        leave('io.bind_output("y", "cpu")'),
    ),
)
def onnxruntime_device(node: cst.SimpleString, site: Site) -> Report | None:
    arg = site.parent(node)
    call = site.parent(arg) if isinstance(arg, cst.Arg) else None
    if not isinstance(call, cst.Call) or not DEVICE.fullmatch(string(node) or ""):
        return None
    if terminal(call.func) not in FOREIGN_METHODS - {"set_providers"}:
        return None
    position = 2 if terminal(call.func) == "ortvalue_from_shape_and_type" else 1
    return Report() if site.argument(call, "device_type", position) is arg else None

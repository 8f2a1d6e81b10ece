"""Tests of the device that stay together with the question that they guard."""

from __future__ import annotations

import libcst as cst

from cuda2npu.rule import Fix, FixLevel, Report, Site, leave, report, rewrite, rule
from cuda2npu_codemods.devices import npu_string
from cuda2npu_codemods.is_cuda import is_npu
from cuda2npu_codemods.kept import kept_level
from cuda2npu_codemods.names import renaming


@rule(
    "NPU108",
    "device-test-of-what-stays",
    on=(cst.Attribute, cst.SimpleString),
    words=("cuda",),
    fix=FixLevel.UNSAFE,
    quiet=True,
    why="this guards a question to CUDA that stays as it is and would raise behind a test for "
    "the NPU, so that both were left and the code takes the way without a GPU: see that this is "
    "the right one for the NPU",
    examples=(
        rewrite(
            "major = torch.cuda.get_device_capability()[0] if torch.cuda.is_available() else 0",
            "major = torch.npu.get_device_capability()[0] if torch.npu.is_available() else 0",
        ),
        rewrite(
            "new = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0)",
            "new = torch.npu.is_available() and torch.npu.get_device_capability() >= (9, 0)",
        ),
        rewrite(
            "old = not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] < 8",
            "old = not torch.npu.is_available() or torch.npu.get_device_capability()[0] < 8",
        ),
        rewrite(
            "ok = x.is_cuda and wide and torch.cuda.get_device_capability(x.device)[0] >= 9",
            "ok = x.is_npu and wide and torch.npu.get_device_capability(x.device)[0] >= 9",
        ),
        rewrite(
            'if x.device.type == "cuda" and torch.cuda.get_device_capability()[0] >= 8: pass',
            'if x.device.type == "npu" and torch.npu.get_device_capability()[0] >= 8: pass',
        ),
        rewrite(
            "def fast():\n    if not torch.cuda.is_available():\n        return False\n"
            "    major, _ = torch.cuda.get_device_capability()\n    return major >= 9",
            "def fast():\n    if not torch.npu.is_available():\n        return False\n"
            "    major, _ = torch.npu.get_device_capability()\n    return major >= 9",
        ),
        report(
            "import torch\nif torch.cuda.is_available():\n    v = torch.version.cuda.split('.')"
        ),
        rewrite(
            "def level():\n    on = torch.cuda.is_available()\n"
            "    return torch.cuda.get_device_capability()[0] if on else 0",
            "def level():\n    on = torch.npu.is_available()\n"
            "    return torch.npu.get_device_capability()[0] if on else 0",
        ),
        report(
            "import torch\nif torch.cuda.is_available():\n    print(torch.version.cuda)\n"
            "    print(torch.backends.cudnn.version())"
        ),
        report("ok = torch.cuda.is_available() and torch.version.cuda >= '11.4'"),
        report(
            "skip = not torch.cuda.is_available() or torch.cuda.get_device_properties(0).major < 8"
        ),
        report("import torch\nn = torch.cuda.nccl.version() if torch.cuda.is_available() else 0"),
        leave(
            "if torch.cuda.is_available():\n    cap = torch.cuda.get_device_capability()\n"
            "    model.cuda()"
        ),
        leave("c = torch.cuda.get_device_capability() if torch.cuda.is_available() else None"),
        leave(
            "def level(model):\n    on = torch.cuda.is_available()\n    if on: model.cuda()\n"
            "    return torch.cuda.get_device_capability()[0] if on else 0"
        ),
        leave(
            "def level():\n    on = torch.cuda.is_available()\n"
            "    return torch.cuda.get_device_capability() if on else None"
        ),
        leave(
            "def run():\n    if not torch.cuda.is_available():\n        return\n"
            "    print(torch.version.cuda)\n    train()"
        ),
        leave(
            "def run(loud):\n    if not torch.cuda.is_available():\n        return\n"
            "    if loud: print(torch.cuda.get_device_capability()[0])\n    train()"
        ),
        leave(
            "if torch.cuda.is_available():\n    free = torch.cuda.mem_get_info()\n"
            "    if has_nvml: power = torch.cuda.power_draw()"
        ),
        leave("ok = torch.cuda.is_available() or torch.cuda.get_device_capability()[0] >= 8"),
        leave("n = torch.cuda.get_device_name(0) if torch.cuda.is_available() else ''"),
    ),
)
def device_test_of_what_stays(
    node: cst.Attribute | cst.SimpleString, site: Site
) -> Fix | Report | None:
    if isinstance(node, cst.SimpleString):
        fix = npu_string(node, site)
    else:
        fix = is_npu(node, site) or renaming(node, site)
    level = kept_level(node, site) if fix is not None else None
    if fix is None or level is None:
        return None
    return Fix(fix.edits, level=level) if level is FixLevel.UNSAFE else Report()

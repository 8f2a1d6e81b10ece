"""Known ways in which using the NPU fails, and what cures them.

The texts are those of Python, of the loader, of torch_npu (``_init``, ``npu/__init__``) and of
CANN's ``rt_error_codes.h``, which torch_npu ships; or they are quoted in the issue that is named.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from cuda2npu.doctor.attempt import Attempt
from cuda2npu.doctor.packages import OF_CANN, pip_install
from cuda2npu.smoke.causes import Cause


class Advice(NamedTuple):
    """What is known of this machine and goes into a cure."""

    source: str
    """How to source CANN's set_env.sh, or to install CANN."""
    torch: str
    """How to install the torch that the installed torch_npu needs."""
    folder: str
    """Where Python found torch_npu."""
    hiding: tuple[str, ...] = ()
    """The rows of the report that say why no device is found."""


class _Known(NamedTuple):
    pattern: str
    name: str
    text: str
    cure: str


CPU_BUILD = "install torch in its build for the CPU: {torch}"
TORCH_PAIR = "install the torch that torch_npu was compiled for, in its build for the CPU: {torch}"


def cpu_torch(version: str, architecture: str) -> str:
    """How to install this torch for the CPU. Without the address x86_64 gets the build for CUDA.

    Source: the README in the metadata of torch_npu's wheels, "Install PyTorch".
    """
    if not version:
        return "pip install torch of the release of torch_npu, from PyTorch's CPU builds"
    label = "+cpu" if architecture == "x86_64" else ""
    return (
        f"pip install torch=={version}{label} --index-url ADDRESS, where ADDRESS is that of "
        "PyTorch's CPU builds"
    )


def elsewhere(module: str) -> str:
    """How to have Python find the installed package."""
    return (
        f"change to a folder without a {module} or {module}.py of its own, such as your home "
        "folder, and take what lies beside it out of PYTHONPATH"
    )


DRIVER_PATH = (
    "export LD_LIBRARY_PATH=/usr/local/Ascend/driver/lib64:"
    "/usr/local/Ascend/driver/lib64/common:/usr/local/Ascend/driver/lib64/driver:"
    "$LD_LIBRARY_PATH; in a container, mount /usr/local/Ascend/driver from the host"
)
_OF_TORCH = r"_Z(T[VIS])?N?K?(3c10|2at|5torch|6caffe2)"
"""A mangled name whose outermost namespace is one of torch's."""
_DISTRIBUTIONS = {"yaml": "pyyaml", "attr": "attrs", "google": "protobuf", "absl": "absl-py"}

_KNOWN = (
    # Ascend/pytorch#24: Python starts in the source tree of torch_npu.
    _Known(
        r"cannot import name '_C' from .*torch_npu|No module named 'torch_npu\._C'",
        "torch_npu's source folder",
        "Python took torch_npu from {folder}, which holds no compiled library",
        elsewhere("torch_npu"),
    ),
    _Known(
        r"module 'torch' has no attribute '__version__'",
        "another torch",
        "Python took something else for torch; see the row torch",
        elsewhere("torch"),
    ),
    _Known(
        r"Two accelerators cannot be used at the same time|Duplicated key",
        "CUDA build of torch",
        "torch_npu does not run beside a build of torch for another accelerator",
        CPU_BUILD,
    ),
    _Known(
        r"lib(ascend_hal|drv\w*|dcmi|dsmi\w*)\.so[.\d]*: cannot open shared object",
        "driver's libraries not found",
        "the loader finds no {library}, a library of the driver",
        DRIVER_PATH,
    ),
    # vllm-project/vllm-ascend#152
    _Known(
        r"lib(atb|asdsip|mki|tbe_adapter)\w*\.so[.\d]*: cannot open shared object",
        "NNAL not found",
        "the loader finds no {library}, a library of Ascend's NNAL package",
        "install the NNAL package of your CANN version, then: "
        "source /usr/local/Ascend/nnal/atb/set_env.sh",
    ),
    _Known(
        r"lib(torch_npu|npu_profiler|torch|torch_cpu|torch_python|c10)\.so[.\d]*: cannot open",
        "incomplete torch or torch_npu",
        "the loader finds no {library}, a library of the Python package itself",
        "install both anew: pip uninstall torch torch-npu; then torch-npu of the same release, and "
        "before it torch: {torch}",
    ),
    _Known(
        r"lib(hccl|hcom\w*|ascendcl|acl\w*|ge_\w+|graph\w*|runtime|opapi\w*|msprofiler|error_manager"
        r"|register|platform|c_sec|profapi|nnopbase|ascendalog|unified_dlog)\.so[.\d]*"
        r": cannot open shared object",
        "CANN's libraries not found",
        "the loader finds no {library}, a library of CANN",
        "{source}",
    ),
    # Ascend/pytorch#7
    _Known(
        r"cannot allocate memory in static TLS block",
        "library loaded too late",
        "the loader has no room left for {library}",
        "load it first: export LD_PRELOAD with the path that the message names",
    ),
    # Ascend/pytorch#35, sgl-project/sglang#28628
    _Known(
        rf"undefined symbol: {_OF_TORCH}",
        "torch and torch_npu do not match",
        "torch_npu was compiled for another release of torch",
        TORCH_PAIR,
    ),
    # vllm-project/vllm-ascend#117, Ascend/pytorch#99
    _Known(
        r"undefined symbol: _ZN?K?(3atb|3Mki)",
        "NNAL does not match",
        "the NNAL package that was found is of another version or C++ ABI",
        "install the NNAL package of your CANN version and source its set_env.sh anew",
    ),
    _Known(
        r"undefined symbol",
        "CANN and torch_npu do not match",
        "a library lacks a function that torch_npu was compiled with, mostly CANN of another age",
        "install the CANN that was published with your torch_npu; see the CANN row above",
    ),
    _Known(
        r"version `(GLIBC|GLIBCXX|CXXABI)\S+' not found",
        "system libraries too old",
        "the C or C++ library of this system is older than the wheel needs",
        "use a newer system (manylinux_2_28: glibc 2.28), or Ascend's container images",
    ),
    _Known(
        r"ASCEND_(HOME|OPP|RUNTIME|COMPILER)_PATH\W.*(does not exist|is not set)",
        "CANN's variables are wrong",
        "the variables of CANN do not lead to a whole installation",
        "{source}",
    ),
    _Known(
        r"compiled using NumPy 1\.x|_ARRAY_API not found|`np\.\w+` was removed in the NumPy 2",
        "NumPy 2",
        "a package here was compiled for NumPy 1",
        "pip install 'numpy<2'",
    ),
    _Known(
        r"No module named '(?!torch_npu|torch\b)(?P<module>\w+)",
        "missing Python package",
        "a Python package is not installed: {module}",
        "pip install {distribution}",
    ),
    _Known(
        r"module 'torch' has no attribute 'npu'",
        "torch knows no NPU",
        "importing torch_npu from {folder} gave torch no npu",
        "change to another folder if the current one holds a folder called torch_npu; else "
        "install it anew: pip install --force-reinstall --no-deps torch-npu",
    ),
    _Known(
        r"error code is (207001|207018)|NPU out of memory|EL0004",
        "out of memory",
        "the memory of the NPU is full",
        "end the processes that hold it (npu-smi info lists them), or choose another NPU with "
        "ASCEND_RT_VISIBLE_DEVICES",
    ),
    # hw-native-sys/PTOAS#765
    _Known(
        r"EL0005",
        "device busy",
        "another process or container holds the NPU",
        "end it (npu-smi info lists processes; docker ps the containers), or choose another NPU "
        "with ASCEND_RT_VISIBLE_DEVICES",
    ),
    # vllm-project/vllm-ascend#4859, #4284
    _Known(
        r"error code is 561\d{3}|Failed to verify the OPP",
        "kernels missing",
        "CANN has no compiled kernel for this operation on this chip",
        "install the kernels (ops) package of your chip in the version of the toolkit",
    ),
    _Known(
        r"error code is 207006|[Pp]ermission denied.*davinci",
        "no permission",
        "this user may not open the NPU",
        "let root add you to the group of the device files, then log in again: "
        "sudo usermod -aG HwHiAiUser $USER",
    ),
    _Known(
        r"error code is (207004|107001)|[Ii]nvalid device id",
        "no such device",
        "the runtime finds no NPU of that number",
        "correct ASCEND_RT_VISIBLE_DEVICES; in a container, hand the device in: --device "
        "/dev/davinci0 --device /dev/davinci_manager --device /dev/devmm_svm --device "
        "/dev/hisi_hdc",
    ),
    _Known(
        r"error code is (507033|507899)|Failed to start the device",
        "device does not start",
        "the driver could not bring the NPU up",
        "see that no other container holds it; after an update of driver or firmware restart the "
        "machine; let the administrator read dmesg",
    ),
    _Known(
        r"error code is 507008",
        "chip not known",
        "the runtime could not tell which chip this is, or has nothing for it",
        "in a container, mount /usr/local/Ascend/driver and /etc/ascend_install.info from the "
        "host; install the kernels package of your chip",
    ),
    # vllm-project/vllm-ascend#2210, Ascend/pytorch#7
    _Known(
        r"error code is 5000\d\d|init env failed|AclSetCompileopt",
        "CANN's operator compiler does not start",
        "CANN could not start its operator compiler, which is written in Python",
        f"install what it imports: {pip_install(OF_CANN)}; before CANN 9 it needs 'numpy<2'",
    ),
)  # fmt: skip

_SIGNALS = {
    -6: "the process was aborted in native code",
    -9: "the process was killed, most likely for its memory",
    -11: "the process crashed in native code",
}


def cause_of(tried: Attempt, advice: Advice) -> Cause:
    """Why the step failed: from the innermost exception outwards, else from what was printed."""
    for text in [*reversed(tried.errors)] or [tried.ran.output[-20_000:]]:
        for known in _KNOWN:
            match = re.search(known.pattern, text)
            if match:
                return _filled(known, match, text, advice)
    return _unknown(tried)


def _filled(known: _Known, match: re.Match[str], text: str, advice: Advice) -> Cause:
    library = re.search(r"lib[\w+-]+\.so[.\d]*", match[0]) or re.search(r"lib[\w+-]+\.so\S*", text)
    module = match.groupdict().get("module") or ""
    words = {
        **advice._asdict(),
        "library": library[0].rstrip(":") if library else "library",
        "module": module,
        "distribution": _DISTRIBUTIONS.get(module, module),
    }
    return Cause(known.name, known.text.format(**words), known.cure.format(**words))


def _unknown(tried: Attempt) -> Cause:
    if tried.ran.timed_out:
        text = "it did not come to an end in time"
        cure = (
            "try again with a longer --timeout; if npu-smi info hangs, too, let the administrator "
            "look at the driver"
        )
        return Cause("no end", text, cure)
    if tried.errors:
        last = tried.errors[-1].splitlines()[0]
        return Cause("unknown error", last, "run the step by hand and read the whole message")
    how = _SIGNALS.get(tried.ran.code, f"Python ended with code {tried.ran.code}")
    lines = tried.ran.output.strip().splitlines()
    told = f"; it printed last: {lines[-1]}" if lines else ""
    return Cause("crash", how + told, "run the step by hand and read the whole message")

"""What projects have installed: torch without torch_npu, CUDA builds, packages for CUDA."""

from __future__ import annotations

import re
from pathlib import PurePath

from cuda2npu.releases import RELEASES
from cuda2npu.rule import Fix, FixLevel, Report, Target, leave, report, rewrite, rule
from cuda2npu.tokens import ConfigValue, DocumentSite, PackageIndex, Requirement, Token
from cuda2npu_codemods.distributions import WORDS, advice_for

_SOURCE = "the metadata of the torch-npu wheels, which require torch of the same release"
_ELSEWHERE = re.compile(
    r"(^|[-_./])(docs?|readthedocs|rtd|lint|cpu|rocm|amd|hip|xpu|hpu|gaudi|tpu|mps|neuron|openvino|npu|ascend|mlu)"
    r"([-_./]|$)"
)
"""A file's name that speaks of documentation, or of hardware that it is for."""


@rule(
    "NPU840",
    "torch-without-torch-npu",
    on=Requirement,
    words=("torch",),
    fix=FixLevel.UNSAFE,
    why="code for NPUs imports torch_npu, whose releases each need the torch of the same number",
    examples=(
        rewrite(
            "torch==2.1.0\ntorchvision\n",
            "torch==2.1.0\ntorch-npu==2.1.0.*\ntorchvision\n",
            path="requirements.txt",
        ),
        rewrite(
            '[project]\ndependencies = ["torch==2.7.1", "numpy"]\n',
            '[project]\ndependencies = ["torch==2.7.1", "torch-npu==2.7.1.*", "numpy"]\n',
            path="pyproject.toml",
        ),
        report("torch>=1.13\n", path="requirements.txt"),
        report("torch==1.13.1\n", path="requirements/base.txt"),
        report("dependencies:\n  - pytorch=2.1.0\n", path="environment.yml"),
        report('[tool.poetry.dependencies]\ntorch = "^2.1"\n', path="pyproject.toml"),
        report("[options]\ninstall_requires =\n    torch>=2.0\n", path="setup.cfg"),
        report("RUN pip install torch==2.1.0\n", path="Dockerfile"),
        leave("torch==2.1.0\ntorch_npu==2.1.0.post13\n", path="requirements.txt"),
        leave("torch==2.1.0\n", path="docs/requirements.txt"),
        leave("torch==2.1.0\n", path="requirements-cpu.txt"),
        leave("torch==2.1.0\n", path="constraints.txt"),
        leave("torchmetrics\n# torch\n", path="requirements.txt"),
    ),
    source=_SOURCE,
    targets=(Target.NPU, Target.SHIM),
)
def torch_without_torch_npu(token: Requirement, site: DocumentSite) -> Fix | Report | None:
    if not _is_torch(token) or is_for_others(site.path) or "torch_npu" in site.text:
        return None
    if PurePath(site.path).name.startswith("constraints"):
        return None
    if "torch-npu" in site.text or _first_torch(site) is not token:
        return None
    fitting = fitting_release(token.version, site.options.torch_npu)
    if fitting is None:
        return Report(
            f"no release of torch-npu fits torch{token.version}: move to torch=="
            f"{_nearest(token.version)}, and add torch-npu=={_nearest(token.version)}.* beside it"
        )
    add = f"torch-npu=={fitting}.*"
    if _pinned(token.version) == fitting and token.room >= 0:
        place = Token("", token.room, token.room)
        message = f"the NPU's code needs {add} beside torch {fitting} (--unsafe adds it)"
        return Fix({place: token.more.format(add)}, message, at=token)
    by_pip = "" if token.installer == "pip" else " by pip, for conda has none"
    return Report(
        f"the NPU's code needs torch-npu beside torch, of the same number{by_pip}: such as "
        f"torch=={fitting} with {add}"
    )


def _is_torch(token: Requirement) -> bool:
    names = ("pytorch", "pytorch-gpu") if token.installer == "conda" else ("torch",)
    return token.package in names


def is_for_others(path: str) -> bool:
    """Whether a file's name says that it is for documentation or for other hardware."""
    file = PurePath(path)
    return bool(_ELSEWHERE.search(f"{file.parent.name}/{file.name}".lower()))


def _first_torch(site: DocumentSite) -> Token | None:
    found = (t for t in site.tokens if isinstance(t, Requirement) and _is_torch(t))
    return next(found, None)


_CLAUSE = re.compile(r"(===|==|~=|>=|<=|!=|>|<|\^|=|)v?(\d+(?:\.\d+)*)(\.\*)?")


def fitting_release(version: str, wanted: str) -> str | None:
    """The torch_npu release for what a file says of torch: the wanted one, or the newest.

    None when no release fits, or what the file says is not understood. What a variable says
    may be any version.
    """
    clauses = []
    said = "" if "$" in version else version.partition("+")[0]
    for clause in filter(None, re.split(r"[,&]", said)):
        match = _CLAUSE.match(clause)
        if match is None:
            return None
        clauses.append((match[1], match[2], match[3] or ""))
    allowed = [r for r in RELEASES if all(_allows(*clause, r) for clause in clauses)]
    return wanted if wanted in allowed else max(allowed, key=RELEASES.index, default=None)


def _allows(operator: str, version: str, star: str, release: str) -> bool:
    given, numbers = _numbers(version), _numbers(release)
    padded = given + (0,) * (3 - len(given))
    same = numbers[: len(given)] == given
    if operator in ("", "==", "==="):
        return same if star or len(given) < 3 else numbers == padded[:3]
    if operator == "=":  # conda: everything that begins so
        return same
    if operator == "!=":
        return not (same if star else numbers == padded[:3])
    if operator in ("~=", "^"):
        keep = len(given) - 1 if operator == "~=" else 1
        return numbers >= padded and numbers[:keep] == given[:keep]
    ordered = {">=": numbers >= padded, ">": numbers > padded, "<=": numbers <= padded}
    return ordered.get(operator, numbers < padded)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _pinned(version: str) -> str:
    match = re.fullmatch(r"==(\d+\.\d+\.\d+)(\+[\w.]+)?", version)
    return match[1] if match else ""


def _nearest(version: str) -> str:
    """The first release that is no older than the first version that is named."""
    match = re.search(r"\d+(\.\d+)*", version)
    wanted = _numbers(match[0]) if match else ()
    return next((each for each in RELEASES if _numbers(each) >= wanted), RELEASES[-1])


_LOCAL = re.compile(r"\+(cu\d+)[\w.]*")
_TORCH_FAMILY = ("torch", "torchvision", "torchaudio", "torchtext", "torchdata")


@rule(
    "NPU841",
    "cuda-build",
    on=Requirement,
    words=("+cu",),
    fix=FixLevel.UNSAFE,
    why="this names a build for CUDA. torch_npu needs torch's build for the CPU: name the version "
    "alone, and the index of the CPU builds",
    examples=(
        rewrite(
            "torch==2.1.0+cu118\ntorch-npu==2.1.0.*\n",
            "torch==2.1.0\ntorch-npu==2.1.0.*\n",
            path="requirements.txt",
        ),
        report("mmcv-full==1.7.0+cu117\n", path="requirements.txt"),
        leave("torch==2.1.0+cpu\ntorch-npu==2.1.0.*\n", path="requirements.txt"),
        leave("a==1+custom\n", path="requirements.txt"),
    ),
    source=_SOURCE,
    targets=(Target.NPU, Target.SHIM),
)
def cuda_build(token: Requirement, site: DocumentSite) -> Fix | Report | None:
    local = _LOCAL.search(token.text)
    if local is None or not _LOCAL.search(token.version) or is_for_others(site.path):
        return None
    if token.package not in _TORCH_FAMILY:
        return Report(
            f"{token.package} {token.version.lstrip('=')} is built for CUDA, which no NPU runs"
        )
    return Fix({token.part(local.start(), local.end()): ""})


_TAIL = re.compile(r"/whl/(?:\w+/)?(?P<cuda>cu\d+)(?=/?[\"']?$|/torch_\w+\.html)")
_TORCH_INDEX = re.compile(r"/whl/(?:\w+/)?(cu\d+|cpu|rocm|xpu)")
_CUDA_IN_ADDRESS = re.compile(r"[/+_-](cu|cuda)\d+([./_-]|%2B|$)|(?<=[/.])nvidia(?=[./])")


@rule(
    "NPU842",
    "cuda-package-index",
    on=PackageIndex,
    words=("/cu", "nvidia"),
    fix=FixLevel.UNSAFE,
    why="this index holds builds for CUDA. torch_npu needs torch's build for the CPU, whose index "
    "ends in cpu where this one ends in cu and a number",
    examples=(
        rewrite(
            "--extra-index-url https://wheels.example/whl/cu118\n",
            "--extra-index-url https://wheels.example/whl/cpu\n",
            path="requirements.txt",
        ),
        rewrite(
            '[[tool.uv.index]]\nname = "torch"\nurl = "https://wheels.example/whl/cu124"\n',
            '[[tool.uv.index]]\nname = "torch"\nurl = "https://wheels.example/whl/cpu"\n',
            path="pyproject.toml",
        ),
        report("-f https://wheels.example/cu113/torch1.10/index.html", path="requirements.txt"),
        report(
            '[[tool.uv.index]]\nurl = "https://wheels.example/whl/cu124"\n'
            '[[tool.uv.index]]\nurl = "https://wheels.example/whl/cpu"\n',
            path="pyproject.toml",
        ),
        leave("--index-url https://wheels.example/whl/cpu\n", path="requirements.txt"),
        leave("--index-url https://wheels.example/simple\n", path="requirements.txt"),
    ),
    targets=(Target.NPU, Target.SHIM),
)  # fmt: skip
def cuda_package_index(token: PackageIndex, site: DocumentSite) -> Fix | Report | None:
    tail = _TAIL.search(token.text)
    if tail and _offers_several(site):
        return Report("this index holds builds for CUDA: choose the one of the CPU builds")
    if tail:
        return Fix({token.part(*tail.span("cuda")): "cpu"})
    if _CUDA_IN_ADDRESS.search(token.text):
        return Report("this index holds builds for CUDA, which an NPU machine has no use for")
    return None


def _offers_several(site: DocumentSite) -> bool:
    """Whether the file offers several indexes of torch, each for an extra or a system."""
    addresses = (token.text for token in site.tokens if isinstance(token, PackageIndex))
    return len({text for text in addresses if _TORCH_INDEX.search(text)}) > 1


_NAME = ("project", "name")


@rule(
    "NPU843",
    "cuda-package",
    on=Requirement,
    words=WORDS,
    fix=FixLevel.NONE,
    why="a package that is made for CUDA",
    examples=(
        report("flash_attn>=2.5\n", path="requirements.txt"),
        report("cupy-cuda11x\n", path="requirements.txt"),
        report("nvidia-cublas-cu12==12.1.3.1\n", path="requirements.in"),
        report("dependencies:\n  - pytorch-cuda=11.8\n", path="environment.yml"),
        report('[project]\ndependencies = ["xformers"]\n', path="pyproject.toml"),
        report("RUN apt-get install -y cuda-toolkit-11-8 git\n", path="Dockerfile"),
        report("RUN pip install 'bitsandbytes>=0.43'\n", path="Dockerfile"),
        leave("RUN pip install flash_attn\n", path="docker-rocm/Dockerfile"),
        leave(
            '[project]\nname = "vllm"\n[project.optional-dependencies]\nall = ["vllm[audio]"]\n',
            path="pyproject.toml",
        ),
        leave("transformers\naccelerate\ndeepspeed\nfaiss-cpu\n", path="requirements.txt"),
        leave("onnxruntime\nflash-cards\n# flash_attn\n", path="requirements.txt"),
        leave("dependencies:\n  - cudatoolkit-free\n", path="environment.yml"),
    ),
    source="libraries.py says where the answers come from",
    targets=(Target.NPU, Target.SHIM),
)
def cuda_package(token: Requirement, site: DocumentSite) -> Report | None:
    advice = advice_for(token.package)
    if advice is None or is_for_others(site.path) or _own_name(site) == token.package:
        return None
    return Report(advice)


def _own_name(site: DocumentSite) -> str:
    """The package that a pyproject.toml is of; its extras may name it again."""
    named = (t.value for t in site.tokens if isinstance(t, ConfigValue) and t.path == _NAME)
    return re.sub(r"[-_.]+", "-", next(named, "")).lower()

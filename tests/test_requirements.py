"""What projects have installed: requirement files, pyproject.toml, conda, Dockerfiles."""

from __future__ import annotations

import pytest
from cuda2npu_codemods.dependencies import fitting_release
from cuda2npu_codemods.distributions import advice_for
from hypothesis import given, settings
from hypothesis import strategies as st

from cuda2npu import formats
from cuda2npu.formats import conda, dockerfile, pyproject, requirements, setup_cfg
from cuda2npu.formats.installs import command_tokens
from cuda2npu.model import Options, SourceError
from cuda2npu.releases import RELEASES
from cuda2npu.tokens import Instruction, PackageIndex, Requirement, Token, Variable

EVERYTHING = Options(unsafe=True)


def asked(tokens: list[Token]) -> list[tuple[str, str]]:
    return [(token.package, token.version) for token in tokens if isinstance(token, Requirement)]


def indexes(tokens: list[Token]) -> list[str]:
    return [token.text for token in tokens if isinstance(token, PackageIndex)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("torch", ("torch", "")),
        ("torch==2.1.0+cu118", ("torch", "==2.1.0+cu118")),
        ("  Torch >= 1.8 , < 2  # why", ("torch", ">=1.8,<2")),
        ("flash_attn~=2.0; sys_platform == 'linux'", ("flash-attn", "~=2.0")),
        ("torch[opt]==2.0", ("torch", "==2.0")),
        ("ruamel.yaml", ("ruamel-yaml", "")),
        ("apex @ git+https://git.example/apex.git#egg=apex", ("apex", "")),
        ("torch==2.1 --hash=sha256:0 --hash=sha256:1", ("torch", "==2.1")),
        ("torch==2.1 \\\n    --hash=sha256:0", ("torch", "==2.1")),
        ("torch===2.1", ("torch", "===2.1")),
        ("torch (>=1.0)", ("torch", ">=1.0")),
    ],
)
def test_requirement_lines(line: str, expected: tuple[str, str]) -> None:
    text = f"# torch\n{line}\nnumpy\n"
    tokens = list(requirements.tokens(text))
    assert asked(tokens) == [expected, ("numpy", "")]
    assert all(text[token.start : token.end] == token.text for token in tokens)


@pytest.mark.parametrize(
    "line",
    ["", "-r torch.txt", "-e .", "--no-binary torch", "./torch-2.1.whl", "https://x.example/t.whl",
     "git+https://git.example/torch.git", "#torch", "torch 2.1", "{{ torch }}", "==1",
     "torch==1" + ",>=2" * 3000 + " x", "torch" + "=" * 3000 + " x"],
)  # fmt: skip
def test_other_lines_ask_for_no_package(line: str) -> None:
    assert asked(list(requirements.tokens(line))) == []


def test_indexes_of_requirements() -> None:
    text = "-f https://a.example/x.html\n--extra-index-url=https://b.example/whl/cu118 # c\n-i https://c"
    assert indexes(list(requirements.tokens(text))) == [
        "https://a.example/x.html",
        "https://b.example/whl/cu118",
        "https://c",
    ]


def test_a_line_is_added_beside_torch_with_the_line_end_of_the_file() -> None:
    data = b"torch==2.1.0+cu118  # GPU\r\n--extra-index-url https://w.example/whl/cu118"
    new, _ = formats.rewrite_bytes(data, EVERYTHING, path="requirements.txt")
    assert new == (
        b"torch==2.1.0  # GPU\r\ntorch-npu==2.1.0.*\r\n--extra-index-url https://w.example/whl/cpu"
    )
    assert formats.rewrite_bytes(new, EVERYTHING, path="requirements.txt")[0] is new


def test_hashes_leave_no_room_for_another_line() -> None:
    data = b"torch==2.1.0 --hash=sha256:0\n"
    new, result = formats.rewrite_bytes(data, EVERYTHING, path="requirements.txt")
    assert new is data
    assert "torch-npu==2.1.0.*" in result.remaining[0].message


def test_dependencies_of_pyproject() -> None:
    text = (
        '[project]\ndependencies = [\n    "torch==2.7.1",  # core\n    "numpy",\n]\n'
        '[project.optional-dependencies]\ngpu = ["flash-attn"]\n'
        '[tool.poetry.dependencies]\napex = {version = "0.1", optional = true}\n'
        '[tool.uv.sources]\ntorch = { index = "cu118" }\n[build-system]\nrequires = ["torch"]\n'
    )
    tokens = list(pyproject.tokens(text))
    assert asked(tokens) == [
        ("torch", "==2.7.1"), ("numpy", ""), ("flash-attn", ""), ("apex", "0.1"),
    ]  # fmt: skip
    new, _ = formats.rewrite_bytes(text.encode(), EVERYTHING, path="pyproject.toml")
    assert b'    "torch==2.7.1",\n    "torch-npu==2.7.1.*",  # core\n    "numpy",\n' in new


def test_dependencies_of_setup_cfg() -> None:
    text = (
        "[metadata]\nname = torch\n[options]\ninstall_requires =\n    torch==2.1.0\n    # apex\n"
        "    numpy; python_version < '3'\npackages = find:\n[options.extras_require]\n"
        "gpu = cupy\nall =\n  xformers"
    )
    tokens = list(setup_cfg.tokens(text))
    assert asked(tokens) == [("torch", "==2.1.0"), ("numpy", ""), ("cupy", ""), ("xformers", "")]
    assert all(text[token.start : token.end] == token.text for token in tokens)
    new, _ = formats.rewrite_bytes(text.encode(), EVERYTHING, path="setup.cfg")
    assert b"    torch==2.1.0\n    torch-npu==2.1.0.*\n    # apex\n" in new


def test_a_conda_environment() -> None:
    text = (
        "name: x\nchannels: [pytorch, nvidia]\ndependencies:\n  - python=3.9\n"
        "  - pytorch=2.0=py3_cuda11\n  - conda-forge::cudatoolkit >=11\n  - pip\n  - pip:\n"
        "    - torch==2.1.0\n    - --extra-index-url https://w.example/whl/cu118\n"
    )
    tokens = list(conda.tokens(text))
    assert asked(tokens) == [
        ("python", "=3.9"), ("pytorch", "=2.0=py3_cuda11"), ("cudatoolkit", ">=11"), ("pip", ""),
        ("torch", "==2.1.0"),
    ]  # fmt: skip
    assert indexes(tokens) == ["https://w.example/whl/cu118"]
    assert all(text[token.start : token.end] == token.text for token in tokens)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_instructions_of_a_dockerfile(end: str) -> None:
    text = (
        "# syntax=docker/dockerfile:1\n# FROM nvidia/cuda\nfrom base AS b\nENV A=1 \\\n    # no\n"
        '    B="2 3"\nENV C some text\nARG D\nRUN export FORCE_CUDA=1 && \\\n\n'
        "  # pip install apex\n  CUDA_VISIBLE_DEVICES=0 pip install -U 'torch>=2' -r r.txt \\\n"
        "  --index-url https://w.example/whl/cu118 && apt-get install -y git libnccl2=2.1\n"
        'RUN <<EOF\npip install xformers\nEOF\nCMD ["x"]'
    ).replace("\n", end)
    tokens = list(dockerfile.tokens(text))
    words = [token.keyword for token in tokens if isinstance(token, Instruction)]
    assert words == ["FROM", "ENV", "ENV", "ARG", "RUN", "RUN", "CMD"]
    named = [(token.text, token.value) for token in tokens if isinstance(token, Variable)]
    assert named == [
        ("A", "1"), ("B", "2 3"), ("C", "some text"), ("D", None), ("FORCE_CUDA", "1"),
        ("CUDA_VISIBLE_DEVICES", "0"),
    ]  # fmt: skip
    assert asked(tokens) == [
        ("torch", ">=2"), ("git", ""), ("libnccl2", "=2.1"), ("xformers", ""),
    ]  # fmt: skip
    assert indexes(tokens) == ["https://w.example/whl/cu118"]
    assert all(text[token.start : token.end] == token.text for token in tokens)


@pytest.mark.parametrize(
    ("version", "advised"), [("==1.10", "2.1.0"), ("==2.2.0", "2.3.1"), ("==9.0", RELEASES[-1])]
)
def test_a_torch_without_torch_npu_is_told_the_next_release(version: str, advised: str) -> None:
    text = f"torch{version}\n".encode()
    (finding,) = formats.rewrite_bytes(text, EVERYTHING, path="requirements.txt")[1].findings
    assert f"torch-npu=={advised}.*" in finding.message


def test_an_escape_of_its_own() -> None:
    words = [
        token.keyword
        for token in dockerfile.tokens("# escape=`\nRUN a `\n  b\\\nCMD x\n")
        if isinstance(token, Instruction)
    ]
    assert words == ["RUN", "CMD"]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("pip3 install torch==2.1 torchvision", [("torch", "==2.1"), ("torchvision", "")]),
        ("python -m pip install --no-cache-dir 'torch<2'", [("torch", "<2")]),
        ("uv pip install torch==${VERSION}", [("torch", "==${VERSION}")]),
        ("conda install -y -c nvidia pytorch-cuda=11.8", [("pytorch-cuda", "=11.8")]),
        ("apt install cuda-toolkit-11-8; ls", [("cuda-toolkit-11-8", "")]),
        ("pip install -e . -r requirements.txt ./torch.whl", []),
        ("pip install --target dir --timeout 3 torch", [("torch", "")]),
        ("echo pip installs torch", []),
        ("pip uninstall torch", []),
    ],
)
def test_commands_that_install(command: str, expected: list[tuple[str, str]]) -> None:
    assert asked(list(command_tokens(command))) == expected


@pytest.mark.parametrize(
    ("version", "wanted", "expected"),
    [
        ("", "2.7.1", "2.7.1"),
        ("==2.1.0", "2.7.1", "2.1.0"),
        ("==2.1.0+cu118", "2.7.1", "2.1.0"),
        ("==2.1.*", "2.7.1", "2.1.0"),
        ("=2.1", "2.7.1", "2.1.0"),
        (">=1.8,<2.6", "2.7.1", "2.5.1"),
        (">=2.0", "2.6.0", "2.6.0"),
        ("~=2.6.0", "2.7.1", "2.6.0"),
        ("^2.3", "2.6.0", "2.6.0"),
        ("!=2.6.0,<=2.6.0", "2.7.1", "2.5.1"),
        (">2.13", "2.7.1", RELEASES[-1]),
        ("==${V}", "2.7.1", "2.7.1"),
        ("==1.13.1", "2.7.1", None),
        ("<2", "2.7.1", None),
        ("nightly", "2.7.1", None),
    ],
)
def test_the_release_that_fits(version: str, wanted: str, expected: str | None) -> None:
    assert fitting_release(version, wanted) == expected


@pytest.mark.parametrize(
    "package",
    "flash-attn cupy-cuda11x spconv-cu118 nvidia-cublas-cu12 nvidia-ml-py cudatoolkit pytorch-cuda "
    "cuda-toolkit-11-8 libcudnn8-dev libnccl2 dgl-cu117 faiss-gpu-cu12 nvidia-dali-cuda120 "
    "tensorrt nvidia-cuda-nvcc-cu11".split(),
)
def test_packages_made_for_cuda(package: str) -> None:
    assert advice_for(package)


@pytest.mark.parametrize(
    "package",
    "torch torchvision transformers accelerate deepspeed faiss-cpu onnxruntime numpy "
    "nvidia-modelopt nvidia-pyindex libcurl4 libcunit1-dev lightning".split(),
)
def test_packages_that_ask_for_nothing(package: str) -> None:
    assert advice_for(package) is None


NOISE = st.text(
    alphabet="torch=2.1+cu8 \n\r\\#-[]{}()\"';@&|$<>:/,~FROMRUNENVpipinstal", max_size=120
)


@settings(deadline=None)
@given(NOISE, st.sampled_from(["requirements.txt", "Dockerfile", "setup.cfg", "environment.yml"]))
def test_no_text_raises_another_exception(noise: str, path: str) -> None:
    text = noise + "\ntorch==2.1.0+cu118\n"
    try:
        new, _ = formats.rewrite_bytes(text.encode(), EVERYTHING, path=path)
    except SourceError:
        return
    assert formats.rewrite_bytes(new, EVERYTHING, path=path)[0] == new

"""Containers and clusters: images, runtimes and resources of NVIDIA's."""

from __future__ import annotations

import re

from cuda2npu.rule import FixLevel, Report, Target, leave, report, rule
from cuda2npu.tokens import ConfigKey, ConfigValue, DocumentSite, Instruction, Token, Variable

_CUDA_IMAGE = re.compile(
    r"(?P<image>(?:[\w.-]+/)*nvidia/(?:cuda|cudagl|pytorch|tensorrt|nemo|tritonserver|l4t)\b[\w./:-]*"
    r"|nvcr\.io/[\w./:-]+"
    r"|(?:[\w.-]+/)*pytorch/pytorch(?::[\w.-]+)?"
    r"|(?:[\w.-]+/)+[\w.-]*[:_-](?:cuda|cu1\d|gpu)[\w.-]*|(?:[\w.-]+/)+[\w.-]*:[\w.-]*-(?:cuda|cu1\d|gpu)[\w.-]*)"
)
_CANN = (
    "build on a CANN image for your chip and system (Ascend publishes them as ascend/cann and "
    "ascendai/cann), and install torch's CPU build with torch-npu in it"
)


@rule(
    "NPU850",
    "cuda-image",
    on=(Instruction, ConfigValue, Variable),
    words=("nvidia", "nvcr.io", "pytorch/pytorch", "cuda", "gpu", "-cu1"),
    fix=FixLevel.NONE,
    why="this image holds CUDA: " + _CANN,
    examples=(
        report("FROM nvidia/cuda:11.8.0-cudnn8-devel-ubuntu22.04 AS build\n", path="Dockerfile"),
        report("FROM pytorch/pytorch:2.1.0-cuda11.8-cudnn8-runtime\n", path="train.Dockerfile"),
        report("FROM nvidia/cuda:$CUDA-devel-ubuntu${UBUNTU}\n", path="Dockerfile"),
        report("FROM example/train:py3.12-cu130-2.11.0\n", path="Dockerfile"),
        report("ARG BASE=nvcr.io/nvidia/pytorch:23.10-py3\nFROM $BASE\n", path="Dockerfile"),
        report("services:\n  a:\n    image: nvcr.io/nvidia/pytorch:23.10-py3\n", path="c.yaml"),
        report("jobs:\n  test:\n    container: nvidia/cuda:12.1.0-base\n", path="ci.yml"),
        leave("FROM python:3.11-slim\n", path="Dockerfile"),
        leave("FROM ascendai/cann:8.0-910b-ubuntu22.04-py3.10\n", path="Dockerfile"),
        leave("image: figures/cuda.png\nrepo: nvidia/nemo\n", path="c.yaml"),
    ),
    source="the Ascend organisation's image repositories, and Dockerfiles that build on them",
    targets=(Target.NPU, Target.SHIM),
)  # fmt: skip
def cuda_image(token: Instruction | ConfigValue | Variable, site: DocumentSite) -> Report | None:
    if isinstance(token, Instruction):
        named = re.match(r"FROM\s+(?:--\S+\s+)*(\S+)", token.text, re.I)
        image, start = (named[1], named.start(1)) if named else ("", 0)
        place: Token = token.part(start, start + len(image))
    elif isinstance(token, Variable):
        image, place = token.value or "", token
    else:
        held = token.key in ("image", "container", "baseImage", "base_image", "docker_image")
        image, place = token.value if held else "", token
    known = re.sub(
        r"\$(\w+|\{\{?[^{}]*\}?\})", "0", image
    )  # what a variable says is a tag or the like
    if not _CUDA_IMAGE.fullmatch(known) or image.endswith((".png", ".jpg")):
        return None
    return Report(f"{image} holds CUDA: {_CANN}", at=place)


_VISIBLE = (
    "NVIDIA's container runtime reads it. Ascend's reads ASCEND_VISIBLE_DEVICES, with the numbers "
    "of the NPUs; without it, pass --device /dev/davinci0 … and mount the driver"
)


@rule(
    "NPU851",
    "nvidia-container-variable",
    on=Variable,
    words=("NVIDIA_",),
    fix=FixLevel.NONE,
    why="NVIDIA's container runtime reads this variable; nothing on an NPU machine does",
    quiet=True,
    examples=(
        report("ENV NVIDIA_VISIBLE_DEVICES all\n", path="Dockerfile"),
        report("environment:\n  - NVIDIA_DRIVER_CAPABILITIES=compute\n", path="compose.yaml"),
        leave("ENV NVIDIA_API_KEY=x\n", path="Dockerfile"),
    ),
    source="Ascend Docker Runtime's manual",
    targets=(Target.NPU, Target.SHIM),
)
def nvidia_container_variable(token: Variable, site: DocumentSite) -> Report | None:
    if token.text == "NVIDIA_VISIBLE_DEVICES":
        return Report(_VISIBLE)
    dropped = token.text.startswith(("NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_REQUIRE_"))
    return Report("NVIDIA's container runtime alone reads it: drop it") if dropped else None


@rule(
    "NPU852",
    "nvidia-container-runtime",
    on=ConfigValue,
    words=("nvidia", "gpus"),
    fix=FixLevel.NONE,
    why="this gives a container NVIDIA's GPUs. For NPUs use Ascend Docker Runtime (runtime: ascend "
    "and ASCEND_VISIBLE_DEVICES), or list the devices (/dev/davinci0 …, /dev/davinci_manager, "
    "/dev/devmm_svm, /dev/hisi_hdc) and mount /usr/local/Ascend/driver and npu-smi",
    examples=(
        report("services:\n  a:\n    runtime: nvidia\n", path="docker-compose.yml"),
        report(
            "services:\n  a:\n    deploy:\n      resources:\n        reservations:\n"
            "          devices:\n            - driver: nvidia\n              count: 1\n",
            path="docker-compose.yml",
        ),
        report('{"runArgs": ["--gpus=all"]}', path="devcontainer.json"),
        leave("driver: nvidia\nvendor: nvidia\n", path="c.yaml"),
    ),
    source="docker-compose files for NPUs in public repositories; Ascend Docker Runtime's manual",
    targets=(Target.NPU, Target.SHIM),
)
def nvidia_container_runtime(token: ConfigValue, site: DocumentSite) -> Report | None:
    reserved = token.key == "driver" and "devices" in token.path
    if token.value == "nvidia" and (reserved or token.key in ("runtime", "default-runtime")):
        return Report()
    if token.key == "gpus" and "services" in token.path and token.value == "all":
        return Report()
    return Report() if re.fullmatch(r"--gpus([= ].*)?", token.value) else None


@rule(
    "NPU853",
    "kubernetes-gpu",
    on=(ConfigKey, ConfigValue),
    words=("nvidia.com/",),
    fix=FixLevel.NONE,
    why="this asks Kubernetes for NVIDIA's GPUs. With Ascend's device plugin an NPU is the "
    "resource huawei.com/Ascend910 (or that of your chip)",
    examples=(
        report("spec:\n  resources:\n    limits:\n      nvidia.com/gpu: 8\n", path="pod.yaml"),
        report("tolerations:\n- key: nvidia.com/gpu\n  operator: Exists\n", path="pod.yaml"),
        leave("homepage: developer.nvidia.com/cuda\n", path="c.yaml"),
    ),
    source="Ascend's device plugin for Kubernetes",
    targets=(Target.NPU, Target.SHIM),
)
def kubernetes_gpu(token: ConfigKey | ConfigValue, site: DocumentSite) -> Report | None:
    name = token.key if isinstance(token, ConfigKey) else token.value
    return Report() if re.match(r"nvidia\.com/(gpu|mig|cuda)\b", name) else None


_GPU_RUNNER = re.compile(r"(^|[-_.])(gpu|nvidia|cuda|a100|h100|t4|v100)", re.I)


@rule(
    "NPU854",
    "gpu-scheduling",
    on=ConfigValue,
    words=("gres", "gpu"),
    fix=FixLevel.NONE,
    why="a scheduler is asked for GPUs: ask for what it calls your NPUs (Slurm's gres and a CI "
    "runner's labels have the name that your site gave them)",
    examples=(
        report("launcher:\n  gres: gpu:8\n", path="slurm.yaml"),
        report("args: ['--gres=gpu:a100:4']\n", path="job.yaml"),
        report("jobs:\n  t:\n    runs-on: [self-hosted, gpu]\n", path=".github/workflows/ci.yml"),
        leave("jobs:\n  t:\n    runs-on: ubuntu-latest\n", path=".github/workflows/ci.yml"),
        leave("group: gpu\n", path="c.yaml"),
    ),
    targets=(Target.NPU, Target.SHIM),
)
def gpu_scheduling(token: ConfigValue, site: DocumentSite) -> Report | None:
    gres = r"(--gres[= ])gpu(:\S+)?" if token.key != "gres" else r"gpu(:\S+)?"
    if re.fullmatch(gres, token.value):
        return Report()
    return Report() if "runs-on" in token.path and _GPU_RUNNER.search(token.value) else None

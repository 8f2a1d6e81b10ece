"""Command lines in Dockerfiles, workflows, compose files and manifests: reported, not edited."""

from __future__ import annotations

import pytest

from cuda2npu import formats
from cuda2npu.model import FixLevel, Options


def found(text: str, path: str) -> list[tuple[int, str]]:
    result = formats.rewrite_bytes(text.encode(), Options(unsafe=True), path=path)[1]
    assert not result.changed
    assert all(finding.fix is FixLevel.NONE for finding in result.findings)
    assert not any("--unsafe" in finding.message for finding in result.findings)
    return [(finding.line, finding.code) for finding in result.findings]


@pytest.mark.parametrize(
    ("line", "codes"),
    [
        ("RUN nvidia-smi && nvcc --version", ["NPU826", "NPU826"]),
        ("RUN a \\\n # nvcc\n && nsys profile b", ["NPU826"]),
        ("RUN --mount=type=cache,target=/x nvcc a.cu", ["NPU826"]),
        ('RUN python -c "import torch; torch.zeros(1).cuda()"', ["NPU829"]),
        ('CMD ["python", "train.py", "--device", "cuda"]', ["NPU824"]),
        ('CMD ["bash", "-c", "nvidia-smi"]', ["NPU826"]),
        ("ENTRYPOINT python a.py --device cuda", ["NPU824"]),
        ("HEALTHCHECK --interval=5s CMD nvidia-smi || exit 1", ["NPU826"]),
        (
            "RUN --mount=type=cache,target=/x <<EOF\n# nvcc\nnvidia-smi\nnvcc a.cu\nEOF",
            ["NPU826"] * 2,
        ),
        ("RUN bash -ex <<'EOF'\nnvidia-smi\nEOF\nRUN nvcc", ["NPU826"] * 2),
        ("RUN python3 <<EOF\nimport torch\ntorch.zeros(1).cuda()\nEOF", ["NPU829"]),
        ("RUN <<EOF\n#!/usr/bin/env python3\nnvcc = 'nvidia-smi'\nEOF", []),
        ("RUN <<EOF\nEOF", []),
        ("RUN <<EOF\nnvcc", []),
        ("COPY <<EOF /a.sh\nnvidia-smi\nEOF", []),
        ("RUN nvidia-smi  # cuda2npu: ignore", []),
        ("RUN echo 'nvidia-smi'", []),
        ('RUN echo nvcc "', []),
    ],
)
def test_dockerfiles(line: str, codes: list[str]) -> None:
    assert [code for _, code in found(f"FROM a\n{line}\n", "Dockerfile")] == codes


WORKFLOW = """\
jobs:
  a:
    steps:
      - run: nvidia-smi
      - name: nvcc
        run: |
          nvcc --version  # nvcc
          python -c "import torch; x.cuda()"
      - run: "echo ${{ matrix.a }} && nvidia-smi"
"""
COMPOSE = """\
services:
  a:
    image: b
    command: python a.py --device cuda
    entrypoint: ["nvidia-smi"]
"""
MANIFEST = """\
spec:
  containers:
    - command: [sh, -c, "nvidia-smi && a"]
    - command:
        - python
        - a.py
      args: ["--device", "cuda"]
"""


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        (
            ".github/workflows/a.yml",
            WORKFLOW,
            [(4, "NPU826"), (7, "NPU826"), (8, "NPU829"), (9, "NPU826")],
        ),
        ("docker-compose.yml", COMPOSE, [(4, "NPU824"), (5, "NPU826")]),
        ("job.yaml", MANIFEST, [(3, "NPU826"), (7, "NPU824")]),
        ("a.yaml", "command: nvidia-smi\nservices: x\n", []),
    ],
)
def test_yaml(path: str, text: str, expected: list[tuple[int, str]]) -> None:
    assert found(text, path) == expected

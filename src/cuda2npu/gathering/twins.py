"""Files that somebody has written anew for the NPU, told by their names alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator

_NAMES = (("cuda", "npu"), ("CUDA", "NPU"), ("Cuda", "Npu"))


def twins(paths: Collection[str]) -> dict[str, str]:
    """The files for CUDA that have a twin for the NPU, each with its twin.

    >>> twins(["a/cuda_ops.py", "a/npu_ops.py", "b/cuda/ops.py", "b/npu/ops.py", "cuda.py"])
    {'a/cuda_ops.py': 'a/npu_ops.py', 'b/cuda/ops.py': 'b/npu/ops.py'}
    """
    known = frozenset(paths)
    found = ((path, next(filter(known.__contains__, _like(path)), None)) for path in paths)
    return {path: twin for path, twin in found if twin is not None}


def _like(path: str) -> Iterator[str]:
    """The paths that a twin may have: one part of the path renamed, or all of them."""
    parts = path.split("/")
    renamed = list(map(_renamed, parts))
    changed = [index for index, part in enumerate(parts) if part != renamed[index]]
    for index in reversed(changed):
        yield "/".join((*parts[:index], renamed[index], *parts[index + 1 :]))
    if len(changed) > 1:
        yield "/".join(renamed)


def _renamed(part: str) -> str:
    for cuda, npu in _NAMES:
        part = part.replace(cuda, npu)
    return part

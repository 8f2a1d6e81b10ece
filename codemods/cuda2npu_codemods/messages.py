"""Tests for the text of errors that CUDA raises."""

from __future__ import annotations

import re

import libcst as cst

from cuda2npu.rule import FixLevel, Report, Site, leave, report, rule
from cuda2npu_codemods.expressions import terminal
from cuda2npu_codemods.hardware import strings
from cuda2npu_codemods.triggers import MESSAGE_WORDS

_CUDA_MESSAGE = re.compile(
    r"out of memory|\bCUDA\b.*(error|memory|kernel|assert|version|fail|launch)|CUDA error"
    r"|CUBLAS_STATUS|CUDNN_STATUS|cuDNN error|NCCL error",
    re.I,
)
_ERROR_TEXT = re.compile(
    r"\b(str|repr)\(|\bargs\[|format_exc|\b(e|ex|err|exc|error|exception|msg|message)\b"
    r"|\b\w*(_error|_err|_msg|_message|_exc|stderr|traceback)\b"
)


@rule(
    "NPU139",
    "cuda-error-text",
    on=(cst.Comparison, cst.Call),
    words=MESSAGE_WORDS,
    fix=FixLevel.NONE,
    quiet=True,
    why="an error of an NPU has another text",
    examples=(
        report("if 'CUDA out of memory' in str(e): pass"),
        report("if 'out of memory' in str(e): pass"),
        report("import re\nok = re.search('CUDA error', msg)"),
        report("ok = str(e).startswith('CUDA out of memory')"),
        leave("raise RuntimeError('CUDA out of memory')"),
        leave("if 'CUDA' in options: pass"),
    ),
)
def cuda_error_text(node: cst.Comparison | cst.Call, site: Site) -> Report | None:
    if isinstance(node, cst.Call):
        texts, where = _matched_texts(node, site)
    elif isinstance(node.comparisons[0].operator, (cst.In, cst.NotIn, cst.Equal)):
        texts, where = strings(node.left), site.code(node.comparisons[0].comparator)
    else:
        return None
    text = next((text for text in texts if _CUDA_MESSAGE.search(text)), None)
    if text is None or not _ERROR_TEXT.search(where):
        return None
    advice = (
        "catch torch.OutOfMemoryError (torch 2.5 or newer) instead"
        if "memory" in text.lower()
        else "catch the exception's class, or test for the NPU's text too"
    )
    if re.fullmatch(r"\W*out of memory\W*", text, re.I):
        return Report(
            "this relies on the text of an error: torch_npu's says 'NPU out of memory', which "
            f"still matches in that spelling; better {advice}"
        )
    return Report(f"torch_npu's errors never contain {text!r}, so this does not match: {advice}")


def _matched_texts(call: cst.Call, site: Site) -> tuple[list[str], str]:
    """The pattern or prefix that a call looks for, and what it looks in."""
    callee, args = terminal(call.func), [arg.value for arg in call.args]
    if callee in ("search", "match", "findall", "compile") and len(args) == 2:
        return strings(args[0]), site.code(args[1])
    if callee in ("startswith", "endswith", "find", "count") and isinstance(
        call.func, cst.Attribute
    ):
        return (strings(args[0]), site.code(call.func.value)) if args else ([], "")
    return [], ""

"""Tests for the text of errors that CUDA raises."""

from __future__ import annotations

import ast
import re

import libcst as cst

from cuda2npu.rule import FixLevel, Report, Site, leave, report, rule
from cuda2npu_codemods.expressions import matched, string, strings, terminal
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

_TORCH_ONLY = re.compile(
    r"CUDA (out of memory|error)|CU(BLAS|DNN|FFT)_STATUS_[A-Z]|device-side assert|no kernel image"
)
"""What only an error of CUDA says, whatever holds its text."""
_BARE = re.compile(r"\W*(cuda|cublas|cudnn|cufft|nccl)\w*\W*", re.I)
_EXCEPTION_TEXT = re.compile(
    r"\b(str|repr)\((\w+\.)*(e|ex|err|exc|error|exception|\w+_(err|exc|error|exception))\)"
    r"|(traceback\.)?format_exc|\b(e|ex|exc|err|error|exception)\.args\["
)
"""The text of a caught exception and nothing that may be another text."""


@rule(
    "NPU139",
    "cuda-error-text",
    on=(cst.Comparison, cst.Call),
    words=MESSAGE_WORDS,
    fix=FixLevel.NONE,
    missed_by_shim=True,
    quiet=True,
    why="an error of an NPU has another text",
    examples=(
        report("if 'CUDA out of memory' in str(e): pass"),
        report("if 'out of memory' in str(e): pass"),
        report("import re\nok = re.search('CUDA error', msg)"),
        report("ok = str(e).startswith('CUDA out of memory')"),
        report("with pytest.raises(RuntimeError, match='CUDA out of memory'): pass"),
        report("with self.assertRaisesRegex(RuntimeError, 'CUDA error'): pass"),
        leave("with pytest.raises(RuntimeError, match='shape'): pass"),
        report("if 'CUDA' in str(e): pass"),
        report("trace = traceback.format_exc()\nif 'CUDA' in trace: pass"),
        report("trace = str(e).lower()\nif 'cuda' in trace: pass"),
        report("def failed(trace): return 'CUDA out of memory' in trace"),
        report("def failed(line): return re.search('CUDA error: device-side', line)"),
        leave('TRACE = "RuntimeError: CUDA error: 700"\nok = "CUDA error" in clean(TRACE)'),
        leave("trace = str(device)\nif 'cuda' in trace: pass"),
        leave("def failed(trace): return 'out of memory' in trace"),
        report("if 'cublas' in str(e).lower(): pass"),
        leave("if 'cuda' in str(device): pass"),
        leave("if 'CUDA' in message_kind: pass"),
        leave("raise RuntimeError('CUDA out of memory')"),
        leave("if 'CUDA' in options: pass"),
    ),
)
def cuda_error_text(node: cst.Comparison | cst.Call, site: Site) -> Report | None:
    if isinstance(node, cst.Call):
        expected = _expected(node)
        if expected is not None:
            return _advice(expected)
        sides = matched(node)
    elif isinstance(node.comparisons[0].operator, (cst.In, cst.NotIn, cst.Equal)):
        sides = (node.left, node.comparisons[0].comparator)
    else:
        return None
    if not sides:
        return None
    texts, where = strings(sides[0]), _source(sides[1], site)
    for text in texts:
        if _relies_on_cuda(text, where) or _is_of_torch(text, site):
            return _advice(text)
    return None


def _is_of_torch(text: str, site: Site) -> bool:
    """A text that only torch writes, unless the file holds an error of its own that says it."""
    literals = (n.value for n in ast.walk(site.file.tree) if isinstance(n, ast.Constant))
    return bool(_TORCH_ONLY.search(text)) and not any(
        isinstance(other, str) and text in other and text != other for other in literals
    )


def _source(node: cst.CSTNode, site: Site) -> str:
    """The expression, or the one that the variable is bound to."""
    bound = site.binding(node.value) if isinstance(node, cst.Name) else None
    code = ast.unparse(bound) if bound is not None else ""
    return code if _EXCEPTION_TEXT.match(code) else site.code(node)


_EXPECTS = ("raises", "assertRaisesRegex", "warns", "assertWarnsRegex", "RaisesExc")


def _expected(call: cst.Call) -> str | None:
    """The text that a test expects of an error: ``pytest.raises(RuntimeError, match=…)``."""
    if terminal(call.func) not in _EXPECTS:
        return None
    texts = [
        string(arg.value) or ""
        for index, arg in enumerate(call.args)
        if (arg.keyword.value in ("match", "expected_regex") if arg.keyword else index == 1)
    ]
    return next(filter(_CUDA_MESSAGE.search, texts), None)


def _advice(text: str) -> Report:
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
    if _BARE.fullmatch(text):
        return Report(
            f"this looks for {text!r} in the text of an error: torch_npu's errors speak of the NPU "
            f"and of CANN, so that it does not match; {advice}"
        )
    return Report(f"torch_npu's errors never contain {text!r}, so this does not match: {advice}")


def _relies_on_cuda(text: str, where: str) -> bool:
    if _CUDA_MESSAGE.search(text):
        return bool(_ERROR_TEXT.search(where))
    return bool(_BARE.fullmatch(text) and _EXCEPTION_TEXT.search(where))

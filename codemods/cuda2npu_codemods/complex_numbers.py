"""Complex numbers, for which few operators of the NPU have a kernel."""

from __future__ import annotations

import ast
import re

import libcst as cst

from cuda2npu.rule import FixLevel, Report, Site, leave, report, rule
from cuda2npu_codemods.numerics import on_cpu

_WHY = "complex numbers: many NPU operators have no complex kernel and fall to the CPU. "
_INSTEAD = {
    "rotary": "Rotary embeddings can be written with cos and sin of real tensors, or "
    "torch_npu.npu_rotary_mul",
    "spectrum": "Compute spectra where the data is loaded, or keep their real and imaginary parts "
    "as two channels of a real tensor, as torch.view_as_real gives them",
    "": "Compute with the real and the imaginary part, as torch.view_as_real gives them, or on "
    "the CPU",
}
_SIGNS = {
    "rotary": re.compile(r"rotary|rope\b|_cis\b|rotated|theta|\bx?[qk]_?\b|query|\bfreqs\b", re.I),
    "spectrum": re.compile(r"i?stft|spectr|\bspecs?\b|\bmag(nitude)?\b|wiener|torchaudio", re.I),
}
"""Words that show what the numbers are."""


@rule(
    "NPU421",
    "complex-numbers",
    on=cst.Call,
    words=("view_as_complex", "polar"),
    fix=FixLevel.NONE,
    missed_by_shim=True,
    quiet=True,
    why=_WHY + _INSTEAD["rotary"] + ". " + _INSTEAD["spectrum"],
    examples=(
        report("q = torch.view_as_complex(q.float().reshape(*q.shape[:-1], -1, 2))"),
        report("freqs = torch.polar(torch.ones_like(f), f)"),
        report("def mask(spec, m): return spec * torch.view_as_complex(m)"),
        leave("y = cmath.polar(z)"),
        leave("y = torch.polar(r.cpu(), f.cpu())"),
    ),
)
def complex_numbers(node: cst.Call, site: Site) -> Report | None:
    if site.name(node.func) not in ("torch.view_as_complex", "torch.polar"):
        return None
    if node.args and on_cpu(site, node.args[0].value):
        return None
    return Report(_WHY + _INSTEAD[_kind(site)])


def _kind(site: Site) -> str:
    """What the numbers are, by the words of the function, of the class, or of the file."""
    around = [site.statement, *site.enclosing]
    for text in (*map(ast.unparse, around), site.file.text):
        shown = [kind for kind, signs in _SIGNS.items() if signs.search(text)]
        if shown:
            return shown[0] if len(shown) == 1 else ""
    return ""

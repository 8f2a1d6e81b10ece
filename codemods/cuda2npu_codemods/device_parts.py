"""Device strings that are taken apart: by a slice of fixed length, or by a pattern."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import libcst as cst

from cuda2npu.rule import Fix, FixLevel, Report, Site, leave, report, rewrite, rule
from cuda2npu_codemods.arguments import Use
from cuda2npu_codemods.expressions import is_device, string, walk, with_value
from cuda2npu_codemods.uses import use_of
from cuda2npu_codemods.words import DEVICE

_POSITION = re.compile(r"\[\s*(\d*\s*:\s*)?([4-9]|\d\d+)\b")
_SHORTEST = len("cuda")


def part_edits(node: cst.SimpleString, site: Site) -> dict[cst.CSTNode, cst.CSTNode] | None:
    """The numbers that count the letters of a compared name, one less; None when one stays.

    ``npu`` is a letter shorter than ``cuda``: ``d[:4] == "cuda"`` and the ``d[5:]`` behind
    ``d.startswith("cuda:")`` move together with the literal, or the literal stays, too.
    """
    subject = _subject(node, site)
    if subject is None or not _POSITION.search(site.file.text):
        return {}
    own, bounds = [*_own_bounds(node, site)], [*_bounds(subject, site)]
    if len(bounds) != _count(subject, site) or _is_cut_before(subject, site):
        return None
    if not own and not bounds:
        return {}
    root = [*site.ancestors(node)][-1]
    literals = [part for part in walk(root) if "cuda" in (string(part) or "")]
    length = len(string(node) or "")
    if any(int(bound.value) != length for bound in own) or _is_in_container(node, site):
        return None
    if bounds and (len(literals) > 1 or any(int(b.value) not in (length, 5) for b in bounds)):
        return None
    return {bound: cst.Integer(str(int(bound.value) - 1)) for bound in (*own, *bounds)}


def _is_in_container(node: cst.SimpleString, site: Site) -> bool:
    return isinstance(site.parent(node), cst.Element)


def _subject(node: cst.SimpleString, site: Site) -> cst.BaseExpression | None:
    """What the literal is tested on: ``d`` of ``d.startswith(…)`` and of ``d[:4] == …``."""
    parent = site.parent(node)
    call = site.parent(parent) if isinstance(parent, cst.Arg) else None
    if isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute):
        return call.func.value if call.func.attr.value == "startswith" else None
    while isinstance(parent, (cst.Element, cst.Tuple, cst.List, cst.ComparisonTarget)):
        parent = site.parent(parent)
    if not isinstance(parent, cst.Comparison):
        return None
    sides = [parent.left, *(target.comparator for target in parent.comparisons)]
    other = next((side for side in sides if not _holds(side, node)), None)
    is_cut = isinstance(other, cst.Subscript) and isinstance(other.slice[0].slice, cst.Slice)
    return other.value if isinstance(other, cst.Subscript) and is_cut else other


def _holds(side: cst.CSTNode, node: cst.CSTNode) -> bool:
    return any(part is node for part in walk(side))


def _own_bounds(node: cst.SimpleString, site: Site) -> Iterator[cst.Integer]:
    """The end of the slice that the literal itself is compared with."""
    comparison = next((a for a in site.ancestors(node) if isinstance(a, cst.Comparison)), None)
    if comparison is None or isinstance(site.parent(node), cst.Arg):
        return
    for side in (comparison.left, *(target.comparator for target in comparison.comparisons)):
        if isinstance(side, cst.Subscript):
            yield from _ends(side)


def _bounds(subject: cst.BaseExpression, site: Site) -> Iterator[cst.Integer]:
    """The other positions behind a name that this statement takes from the same expression."""
    text = site.code(subject)
    for part in walk([*site.ancestors(subject)][-1]):
        if not isinstance(part, cst.Subscript) or site.code(part.value) != text:
            continue
        holder = site.parent(part)
        if isinstance(holder, cst.ComparisonTarget):
            holder = site.parent(holder)
        if not isinstance(holder, cst.Comparison) or "cuda" not in site.code(holder):
            yield from _ends(part)


def _ends(part: cst.Subscript) -> Iterator[cst.Integer]:
    index = part.slice[0].slice
    if isinstance(index, cst.Slice):
        ends = (index.lower, index.upper)
    else:
        ends = (index.value, None) if isinstance(index, cst.Index) else (None, None)
    for end in ends:
        if isinstance(end, cst.Integer) and _is_behind(end.evaluated_value):
            yield end


def _is_behind(position: object) -> bool:
    return isinstance(position, int) and position >= _SHORTEST


def _count(subject: cst.BaseExpression, site: Site) -> int:
    """How many such positions the function around the statement has."""
    try:
        text = ast.dump(ast.parse(f"({site.code(subject)})", mode="eval").body)
    except SyntaxError:
        return 0
    scope = [*ast.walk(next(iter(site.enclosing), site.file.tree))]
    compared = {
        id(side)
        for part in scope
        if isinstance(part, ast.Compare) and "cuda" in ast.unparse(part)
        for side in (part.left, *part.comparators)
    }
    return sum(
        sum(map(_is_behind, _positions(part.slice)))
        for part in scope
        if isinstance(part, ast.Subscript) and id(part) not in compared
        if ast.dump(part.value) == text
    )


def _positions(index: ast.expr) -> Iterator[object]:
    for end in (index.lower, index.upper) if isinstance(index, ast.Slice) else (index,):
        yield getattr(end, "value", None)


def _is_cut_before(subject: cst.BaseExpression, site: Site) -> bool:
    """``kind = str(x.device)[:4]`` and then ``kind == "cuda"``."""
    value = site.binding(subject.value) if isinstance(subject, cst.Name) else None
    return isinstance(value, ast.Subscript) and (
        isinstance(value.slice, ast.Slice) and any(map(_is_behind, _positions(value.slice)))
    )


@rule(
    "NPU123",
    "device-part-of-fixed-length",
    on=cst.SimpleString,
    words=("cuda",),
    fix=FixLevel.NONE,
    quiet=True,
    why='a device string is cut at a fixed position, and "npu" is a letter shorter than "cuda": '
    "the test was left, and is false for an NPU. Test device.type and read device.index of a "
    "torch.device instead, or split at the colon",
    examples=(
        report(
            'def f(device):\n    if device.startswith("cuda:"):\n        return int(device[5:])'
        ),
        report('def f(device):\n    ok = device[:5] == "cuda"'),
        report('kind = str(x.device)[:4]\nif kind == "cuda": pass\ndevice = kind'),
        report('def f(device):\n    ok = device[:4] == "cuda" and device[5:]\n    i = device[5:]'),
        report('def f(device):\n    ok = device[:4] in ("cuda", "cpu")'),
        leave('def f(device):\n    a = device[:4] == "cuda"\n    b = device[:5] == "cuda:"'),
        leave('def f(device):\n    if device.startswith("cuda:"): return device.split(":")[1]'),
        leave('def f(key):\n    if key.startswith("cuda:"): return key[5:]'),
    ),
)
def device_part_of_fixed_length(node: cst.SimpleString, site: Site) -> Report | None:
    value = string(node) or ""
    if not DEVICE.fullmatch(value.removesuffix(":")) or part_edits(node, site) is not None:
        return None
    if use_of(site, node) is Use.DEVICE:
        return Report()
    subject = _subject(node, site)
    cut = site.binding(subject.value) if isinstance(subject, cst.Name) else None
    return Report() if cut is not None and "device" in ast.unparse(cut) else None


@rule(
    "NPU117",
    "device-pattern",
    on=cst.SimpleString,
    words=("cuda",),
    fix=FixLevel.SAFE,
    quiet=True,
    why="a regular expression takes a CUDA device string apart; on the NPU it is npu:…",
    examples=(
        rewrite(
            'import re\nm = re.fullmatch(r"cuda:[0-9]+", str(x.device))',
            'import re\nm = re.fullmatch(r"npu:[0-9]+", str(x.device))',
        ),
        leave('import re\nm = re.match(r"cuda:(.*)", key)'),
    ),
)
def device_pattern(node: cst.SimpleString, site: Site) -> Fix | None:
    value = string(node) or ""
    arg = site.parent(node)
    call = site.parent(arg) if isinstance(arg, cst.Arg) else None
    if not re.match(r"\^?cuda\b", value) or not isinstance(call, cst.Call):
        return None
    if (site.name(call.func) or "").partition(".")[0] != "re" or call.args[0] is not arg:
        return None
    subject = call.args[-1].value
    return Fix({node: with_value(node, "cuda", "npu")}) if is_device(site, subject) else None


@rule(
    "NPU145",
    "device-in-bytes",
    on=cst.Comparison,
    words=("cuda",),
    fix=FixLevel.NONE,
    quiet=True,
    why="this looks for the name of a CUDA device in bytes, such as those of a pickle: on an NPU "
    "they say npu, so that the test is quietly false. npu is a letter shorter, so that positions "
    "behind the name differ, too",
    examples=(
        report("if b'cuda' in buf: buf = patched(buf)"),
        report("ok = name == b'cuda:0'"),
        leave("if b'cuda_version' in buf: pass"),
        leave("if 'cuda' in str(buf.device): pass"),
        leave("write(b'cuda')"),
    ),
)
def device_in_bytes(node: cst.Comparison, site: Site) -> Report | None:
    for side in (node.left, *(target.comparator for target in node.comparisons)):
        value = side.evaluated_value if isinstance(side, cst.SimpleString) else None
        if isinstance(value, bytes) and DEVICE.fullmatch(value.decode("latin-1")):
            return Report()
    return None

"""The laws over made-up sources: CUDA idioms in every kind of statement, scope and byte form."""

from __future__ import annotations

import ast
import codecs
import os

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from laws import judge

from cuda2npu.engine import rewrite_bytes
from cuda2npu.model import Options, SourceError, Target
from cuda2npu.releases import RELEASES

settings.register_profile(
    "default", max_examples=150, deadline=None, suppress_health_check=list(HealthCheck)
)
settings.register_profile("ci", settings.get_profile("default"), derandomize=True)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=5000)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default")
)

IMPORTS = """
import torch
import torch as th
import torch, os
import torch.cuda
import torch.cuda as tc
import torch.cuda.amp as amp
import torch.nn.functional as F
import torch.distributed as dist
import torch_npu
import numpy as np
from torch import cuda
from torch import cuda, nn
from torch.cuda import amp
from torch.cuda.amp import autocast as ac, GradScaler
from torch.cuda.amp import (autocast,  # why
    GradScaler)
from torch.backends import cudnn
from torch import *
import torch; import os
"""

CHAINS = """
torch.cuda.is_available() torch.cuda.current_device() th.cuda.amp.autocast() tc.empty_cache()
amp.GradScaler(enabled=True) ac(True) cuda.Stream() x.cuda() model.cuda(0) x.cuda(rank)
x.cuda(device=d,non_blocking=True) x.is_cuda self.net.cuda super().cuda(device)
torch.cuda.FloatTensor(3) torch.device('cuda') torch.device(f"cuda:{rank}") x.to('cuda:0')
x.to("cuda",torch.float64) torch.zeros(3,device='cuda') torch.load(p,map_location='cuda:0')
torch.load(p,map_location=lambda s,l:s.cuda()) torch.Generator('cuda') torch.cuda.nvtx.range('a')
dist.init_process_group(backend='nccl') dist.init_process_group('cpu:gloo,cuda:nccl')
torch.cuda.nccl.version() torch.cuda.get_device_capability()
isinstance(x,torch.cuda.OutOfMemoryError)
torch.cuda.CUDAGraph() torch.autocast('cuda') F.interpolate(x,scale_factor=2,mode='bilinear')
x.double() torch.float64 torch.tensor(0.,dtype=torch.double) np.float64(1)
nn.Upsample(mode='bilinear')
os.environ['CUDA_VISIBLE_DEVICES'] torch.backends.cudnn.benchmark cfg.cuda args.no_cuda d['cuda']
'cuda:%d'%rank 'cuda:{}'.format(rank) 'cuda:'+str(rank) 'cuda' b'cuda' "it's cuda" r'\\cuda' u'cuda'
torch.cuda.amp.custom_fwd torch.cuda.synchronize cuda device nccl x y rank 1 None
getattr(torch,'cuda') mock.patch('torch.cuda.is_available') torch.npu.is_available() x.npu()
torch.cuda.set_device(rank) torch.cuda.device(0) torch.cuda.memory_allocated()//2**20
""".split()

COMMENTS = ["", "", "  # cuda", "  # noqa", " # x.cuda() 昇", "  # cuda2npu: ignore", "#"]

EXPRESSIONS = [
    "(<A>)", "f(<A>)", "f(*<A>, k=<A>)", "(<A>).cuda()", "(<A>).to('cuda')", "not <A>",
    "(lambda cuda, x=1: <A>)", "[<A> for x in y if <A>]", "{**<A>}", "(y := <A>)", "(cuda := <A>)",
    "f(  # cuda\n  <A> ,\n)", "(<A> if <B> else 'cpu')", "(<A>) == (<B>)", "(<A>, <B>,)",
    "{'cuda': <A>, <B>: 1}", "(<A> and <B>)", "g(<A>, device=<B>)", "(<A>)[<B>]",
    "(<A>\n + \n<B>)", "F<A>",
]  # fmt: skip

STATEMENTS = [
    "<A>", "x = <A>", "cuda = <A>", "self.cuda = x[0] = <A>", "x: int = <A>", "x: (<A>) = <B>",
    "x += <A>", "assert <A>, 'cuda'", "del x; x = \\\n  <A>", "a ;x = <A> ;b", "x = <A>; y = <B>;",
    "print(f'''cuda\n{x}''', <A>)", "'''cuda\n  x.cuda()'''", "pass", "global cuda", '"cuda"',
    "x = 'a' 'cuda'", "import torch", "import torch as th", "from torch import cuda",
    "import torch; import os", "from torch.cuda.amp import autocast as ac, GradScaler",
]  # fmt: skip

CHAIN = st.sampled_from(CHAINS)
EXPRESSION = st.sampled_from(EXPRESSIONS)
STATEMENT = st.sampled_from(STATEMENTS)
COMMENT = st.sampled_from(COMMENTS)
INDENT = st.sampled_from(["    ", "  ", "\t", "       "])
THIRD = st.integers(0, 2)


@st.composite
def _expression(draw: st.DrawFn, depth: int) -> str:
    if depth > 2 or draw(THIRD):
        return draw(CHAIN)
    return draw(_fill(draw(EXPRESSION), depth + 1))


@st.composite
def _fill(draw: st.DrawFn, template: str, depth: int) -> str:
    first = draw(_expression(depth))
    if template == "F<A>":
        return _in_f_string(first)
    second = draw(_expression(depth)) if "<B>" in template else ""
    return template.replace("<A>", first).replace("<B>", second)


def _in_f_string(inner: str) -> str:
    plain = not set(inner) & set("'\"\\\n#{}!:")
    return f"f'cuda:{{{inner}!r:>10}} {{{{cuda}}}}'" if plain else f"('cuda:', {inner})"


@st.composite
def _line(draw: st.DrawFn) -> str:
    text = draw(_fill(draw(STATEMENT), 0))
    return text + (draw(COMMENT) if "\\" not in text else "")


@st.composite
def _block(draw: st.DrawFn, depth: int = 0) -> str:
    return "\n".join(
        draw(_line()) if depth > 2 or draw(THIRD) else draw(_compound(depth))
        for _ in range(draw(st.integers(1, 3)))
    )


def _indent(block: str, by: str) -> str:
    """Indents lines that begin statements; those inside brackets and strings may stand as is."""
    return "".join(f"{by}{line}\n" for line in block.split("\n") if line.strip())


@st.composite
def _compound(draw: st.DrawFn, depth: int) -> str:
    body = _indent(draw(_block(depth + 1)), draw(INDENT))
    return (
        draw(HEAD)
        .replace("<BODY>", body.rstrip("\n"))
        .replace("<INNER>", _indent(body, " ").rstrip("\n"))
        .replace("<E>", draw(_expression(0)))
    )


HEADS = [
    "if <E>:\n<BODY>",
    "if <E>: x = <E>",
    "if x:\n<BODY>\nelif <E>:  # cuda\n<BODY>\nelse :\n<BODY>",
    "for x in <E>:\n<BODY>\nelse:\n<BODY>",
    "while (<E>):\n<BODY>",
    "with <E>:\n<BODY>",
    "with <E> as x, open(f) as cuda:\n<BODY>",
    "with (<E>\n  as x):\n<BODY>",
    "try:\n<BODY>\nexcept <E>:\n<BODY>",
    "try:\n<BODY>\nexcept (torch.cuda.OutOfMemoryError, <E>) as cuda:\n<BODY>\nfinally:\n<BODY>",
    "def f(x, cuda=<E>, *, y: int = <E>) -> 'cuda':\n<BODY>",
    "def cuda(self): return <E>",
    "def f(torch):\n<BODY>",
    "@f(<E>)\n@torch.cuda.amp.custom_fwd\ndef g(x):\n<BODY>",
    "@ torch.no_grad()  # cuda\nclass A(f(<E>), metaclass=M):\n<BODY>",
    "class cuda:\n 'cuda'\n def cuda(self):\n  return <E>\n def f(self):\n<INNER>",
    "async def f(x):\n async with <E> as y:\n  await x\n async for z in <E>: pass\n return <E>",
    "match <E>:\n case 'cuda':\n  x = <E>\n case {'cuda': cuda} | [cuda] if <E>: x\n case _: pass",
    "if torch.cuda.is_available():\n<BODY>\nelse:\n<BODY>",
    "if 'npu' in device:\n<BODY>\nelse:\n<BODY>",
    "if TYPE_CHECKING:\n import torch\n<BODY>",
    "if __name__ == '__main__':\n<BODY>",
]

HEAD = st.sampled_from(HEADS)

HEADERS = [
    "",
    '"""Runs on cuda."""\n',
    "#!/usr/bin/env python\n# cuda\n",
    "from __future__ import annotations\n",
    "# cuda2npu: skip-file\n",
    "\n\n\x0c\n",
]


@st.composite
def sources(draw: st.DrawFn) -> str:
    """A text that parses, more often than not with something to rewrite."""
    imports = draw(st.lists(st.sampled_from(IMPORTS.strip().splitlines()), max_size=4))
    if any(line.startswith("    ") or line.endswith("# why") for line in imports):
        imports = ["from torch.cuda.amp import (autocast,  # why", "    GradScaler)"]
    blocks = [draw(_block()) for _ in range(draw(st.integers(1, 4)))]
    return draw(st.sampled_from(HEADERS)) + "\n".join([*imports, *blocks]) + "\n"


@st.composite
def encoded(draw: st.DrawFn) -> bytes:
    """A source's bytes in some encoding, with some line ends."""
    text = draw(sources())
    form = draw(st.sampled_from(["utf-8", "bom", "gbk", "latin-1", "utf-8-sig"]))
    cookie = "" if form in ("utf-8", "bom") else f"# -*- coding: {form} -*-\n"
    if form == "latin-1":
        text = text.replace("昇", "é")
    ends = draw(st.sampled_from(["\n", "\n", "\r\n", "\r", "mixed"]))
    lines = (cookie + text).split("\n")
    if draw(st.booleans()) and not lines[-1]:
        lines.pop()
    if ends == "mixed":
        text = "".join(
            line + draw(st.sampled_from(["\n", "\r\n", "\r"])) for line in lines[:-1]
        ) + lines[-1]  # fmt: skip
    else:
        text = ends.join(lines)
    data = text.encode("utf-8" if form in ("bom", "utf-8-sig") else form)
    return codecs.BOM_UTF8 + data if form == "bom" else data


OPTIONS = st.builds(
    Options,
    unsafe=st.booleans(),
    preserve_numerics=st.booleans(),
    torch_npu=st.sampled_from(RELEASES),
)


def _parses(data: bytes) -> bool:
    try:
        ast.parse(data)
    except (SyntaxError, ValueError):
        return False
    return True


@given(encoded(), OPTIONS)
def test_laws_over_made_up_sources(data: bytes, options: Options) -> None:
    verdict = judge(data, options)
    assert verdict.broken == []
    assert bool(verdict.refused) <= (not _parses(data)), verdict.refused
    if b"npu" not in data.replace(b"cuda2npu", b""):
        # Else a run may make whole what somebody ported in part, and by hand is left alone.
        assert verdict.vanished == []


@given(encoded())
def test_the_shim_target_keeps_every_other_byte(data: bytes) -> None:
    options = Options(target=Target.SHIM)
    try:
        new, result = rewrite_bytes(data, options, path="f.py")
    except SourceError:
        return
    assert result.changed == (new != data)
    again, second = rewrite_bytes(new, options, path="f.py")
    assert again == new
    assert not second.changed
    assert _parses(new) or not result.changed


@given(st.binary(max_size=60), st.sampled_from([b"x.cuda()", b"nccl", b"# cuda\n", b"'cuda'"]))
def test_no_bytes_raise_another_exception(noise: bytes, word: bytes) -> None:
    for data in (noise + word, word + noise, b"# coding: " + noise[:12] + b"\n" + word):
        assert judge(data).broken == []


@given(st.text(max_size=40), encoded(), st.integers(0, 2000))
def test_broken_sources_raise_no_other_exception(noise: str, data: bytes, at: int) -> None:
    place = at % (len(data) + 1)
    verdict = judge(data[:place] + noise.encode("utf-8", "surrogatepass") + data[place:])
    assert verdict.broken == []


def test_most_made_up_sources_parse_and_many_change() -> None:
    """The strategy must not quietly come to make nothing but junk."""
    seen: list[tuple[bool, bool]] = []

    @settings(max_examples=200, derandomize=True, database=None)
    @given(encoded())
    def look(data: bytes) -> None:
        seen.append((_parses(data), judge(data).changed))

    look()
    assert sum(parses for parses, _ in seen) > 0.4 * len(seen)
    assert sum(changed for _, changed in seen) > 0.3 * len(seen)

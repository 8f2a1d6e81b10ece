"""What must survive a rewrite byte by byte, and what must be refused with a line and advice."""

from __future__ import annotations

import codecs

import pytest

from cuda2npu.engine import rewrite_bytes
from cuda2npu.model import Options, Result, SourceError

OPTIONS = Options()
PLAIN = b"import torch\n\n\ndef f(x):\n    y = x.cuda()  # cuda\n    return y.to('cuda')\n"


def _rewrite(data: bytes) -> bytes:
    new, result = rewrite_bytes(data, OPTIONS, path="f.py")
    assert result.changed
    again, second = rewrite_bytes(new, OPTIONS, path="f.py")
    assert again == new
    assert not second.changed
    return new


def _expected(data: bytes, newline: bytes = b"\n") -> bytes:
    """The rewritten form of sources that move ``x`` to the device and import torch first."""
    new = data.replace(b"x.cuda()", b"x.npu()").replace(b"to('cuda')", b"to('npu')")
    line = b"import torch" + newline
    return new.replace(line, line + b"import torch_npu  # noqa: F401" + newline, 1)


KEPT = {
    "LF": PLAIN,
    "CRLF": PLAIN.replace(b"\n", b"\r\n"),
    "lone CR": PLAIN.replace(b"\n", b"\r"),
    "BOM": codecs.BOM_UTF8 + PLAIN,
    "BOM and CRLF": codecs.BOM_UTF8 + PLAIN.replace(b"\n", b"\r\n"),
    "BOM and utf-8 cookie": codecs.BOM_UTF8 + b"# coding: utf-8\n" + PLAIN,
    "utf-8-sig cookie": b"# coding: utf-8-sig\n" + PLAIN,
    "GBK": "# -*- coding: gbk -*-\n# 昇腾处理器\ns = '中文'\n".encode("gbk") + PLAIN,
    "GBK before a change": b"# coding=gbk\n" + PLAIN + "t = '中文', x.cuda(), '昇'\n".encode("gbk"),
    "latin-1": b"# vim: set fileencoding=latin-1 :\n" + PLAIN + b"t = '\xe9\xff', x.cuda()\n",
    "latin-1 before its cookie": b"# \xe9 coding: latin-1\n" + PLAIN,
    "latin-1 and lone CR": b"# coding: latin-1\r" + PLAIN.replace(b"\n", b"\r") + b"# \xe9",
    "wide characters before a change": "s = '昇😀', x.cuda(), 'é'\n".encode() + PLAIN,
    "tabs": PLAIN.replace(b"    ", b"\t"),
    "form feed": PLAIN.replace(b"\n\n\n", b"\n\x0c\n\x0c\n"),
    "form feed before a statement": PLAIN + b"\x0cz = x.cuda()\n\x0c",
    "no last newline": PLAIN.rstrip(b"\n"),
    "white space at line ends": PLAIN.replace(b"cuda\n", b"cuda \t \n") + b"   \n\t\n",
    "blank lines at the end": PLAIN + b"\n\n  \n",
    "shebang": b"#!/usr/bin/env python\n# coding: utf-8\n" + PLAIN,
    "odd indents": PLAIN + b"if y:\n  if z:\n         x.cuda()\n  else: x.cuda(); y\n",
    "line continuation": PLAIN + b"a = \\\n   x.cuda() \\\n  + b\n",
    "semicolons": PLAIN + b"a ; x.cuda() ;b;\n",
    "NEL and line separator in strings": PLAIN + "s = '\x85\u2028\x0b', x.cuda()\n".encode(),
}  # fmt: skip


@pytest.mark.parametrize("data", KEPT.values(), ids=KEPT.keys())
def test_every_other_byte_survives(data: bytes) -> None:
    newline = b"\r\n" if b"\r\n" in data else b"\r" if b"\r" in data else b"\n"
    assert _rewrite(data) == _expected(data, newline)


def test_mixed_line_ends_survive_and_the_first_one_is_used() -> None:
    data = b"import os\r\nimport torch\nx = 1\ry = x.cuda()\r\nz = y.to('cuda')\n"
    assert _rewrite(data) == (
        b"import os\r\nimport torch\nimport torch_npu  # noqa: F401\r\n"
        b"x = 1\ry = x.npu()\r\nz = y.to('npu')\n"
    )


def test_import_behind_a_last_line_without_end() -> None:
    data = b"x.cuda()\r\nimport torch"
    assert _rewrite(data) == b"x.npu()\r\nimport torch\r\nimport torch_npu  # noqa: F401"


@pytest.mark.parametrize(
    "data",
    [b"", b"\n", b"x = 1", b"\xff\xfe\x00", b"print 'hello'\n", b"# coding: nonsense\n", b"def ("],
)
def test_without_a_trigger_word_nothing_is_even_read(data: bytes) -> None:
    new, result = rewrite_bytes(data, OPTIONS, path="f.py")
    assert new is data
    assert result == Result("f.py", "", changed=False)


CONFLICT = b"""import torch
x = 1
<<<<<<< HEAD
y = x.cuda()
=======
y = x.cuda(0)
>>>>>>> other
"""

REFUSED = {
    "undecodable": (b"import torch\nx.cuda()\ns = '\xe9'\n", "line 3", "UTF-8"),
    "undecodable in a comment": (b"# \xc4\xe3\nx.cuda()\n", "line 1", "UTF-8"),
    "undecodable behind a BOM": (codecs.BOM_UTF8 + b"x.cuda()\n# \xff\n", "line 2", "UTF-8"),
    "undecodable after lone CR": (b"x.cuda()\ry\r# \xff", "line 3", "UTF-8"),
    "wrong GBK": (b"# coding: gbk\nx.cuda()\ns = '\xff'\n", "line 3", "UTF-8"),
    "unknown cookie": (b"#!x\n# coding: klingon\nx.cuda()\n", "line 2", "klingon"),
    "BOM against cookie": (
        codecs.BOM_UTF8 + b"# coding: gbk\nx.cuda()\n",
        "line 1",
        "byte order mark",
    ),
    "no text codec": (b"# coding: base64\nx.cuda()\n", "line 1", "base64"),
    "UTF-16": (codecs.BOM_UTF16_LE + b"x.cuda()\n", "line 1", "UTF-8"),
    "null byte": (b"import torch\nx.cuda()\ny = '\0'\n", "line 3", "null byte"),
    "Python 2 print": (b"import torch\nprint 'x', x.cuda()\n", "line 2", "Python 2"),
    "Python 2 except": (
        b"try:\n    x.cuda()\nexcept ValueError, e:\n    pass\n",
        "line 3",
        "Python 2",
    ),
    "Python 2 backticks": (b"x.cuda()\ny = `x`\n", "line 2", "Python 2"),
    "Python 2 exec": (b"x.cuda()\nexec 'y = 1'\n", "line 2", "Python 2"),
    "conflict markers": (CONFLICT, "line 3", "conflict"),
    "unfinished string": (b"x.cuda()\ny = 'abc\n", "line 2", "Mend"),
    "unfinished text": (b"x.cuda()\ny = '''abc\n", "line 2", "Mend"),
    "unfinished bracket": (b"x.cuda()\ny = f(\n", "line 2", "Mend"),
    "async as a name": (b"import torch\nx.cuda(async=True)\n", "line 2", "non_blocking"),
    "template": (b"x.cuda()\n{% if y %}\n", "line 2", "Mend"),
    "indent": (b"x.cuda()\n    y = 1\n", "line 2", "Mend"),
    "nesting": (b"x = x.cuda()\ny = " + b"(" * 5000 + b")" * 5000 + b"\n", "line 2", "nest"),
    "operators": (b"x = x.cuda()\ny = " + b"-" * 100_000 + b"1\n", "nest", "nest"),
    "attributes": (b"x = x.cuda()\ny = x" + b".a" * 100_000 + b"\n", "nest", "nest"),
    "sum": (b"x = x.cuda()\ny = x" + b"+x" * 100_000 + b"\n", "nest", "nest"),
    "nesting beside a word": (b"y = (" + b"[" * 5000 + b"x.cuda()\n", "line 1", "nest"),
}


@pytest.mark.parametrize(("data", "where", "advice"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_with_line_and_advice(data: bytes, where: str, advice: str) -> None:
    with pytest.raises(SourceError) as caught:
        rewrite_bytes(data, OPTIONS, path="f.py")
    message = str(caught.value)
    assert where in message
    assert advice in message
    assert message.endswith("Left as it was.")


@pytest.mark.parametrize("depth", [10, 50, 90, 200, 500, 1000, 3000])
@pytest.mark.parametrize("form", ["({})", "[{}]", "-{}", "f({})", "{}.a", "{}+x", "lambda:{}"])
def test_depth_never_ends_in_another_exception(form: str, depth: int) -> None:
    before, after = form.split("{}")
    text = f"import torch\ny = {before * depth}x.cuda(){after * depth}\n"
    try:
        new, result = rewrite_bytes(text.encode(), OPTIONS, path="f.py")
    except SourceError:
        pass
    else:
        assert result.findings
        assert not result.changed or b"x.npu()" in new


@pytest.mark.parametrize("depth", [10, 50, 90, 99, 150])
def test_deep_blocks(depth: int) -> None:
    lines = [f"{' ' * level}if x:\n" for level in range(depth)]
    text = "import torch\n" + "".join(lines) + " " * depth + "y = x.cuda()\n"
    try:
        new, _ = rewrite_bytes(text.encode(), OPTIONS, path="f.py")
    except SourceError:
        pass
    else:
        assert b"x.npu()" in new


def test_long_elif_chain() -> None:
    """``elif`` nests in the tree, although not in the text."""
    arms = "".join(f"elif x == {i}:\n    y = {i}\n" for i in range(2000))
    text = f"import torch\nif x.is_cuda:\n    pass\n{arms}else:\n    y = x.cuda()\n"
    try:
        new, _ = rewrite_bytes(text.encode(), OPTIONS, path="f.py")
    except SourceError:
        pass
    else:
        assert b"x.npu()" in new


def test_a_case_is_edited_by_itself() -> None:
    data = (
        b"import torch\nmatch torch.device('cuda').type, x.cuda():\n"
        b"    case ('cuda', y) if (torch.cuda.is_available()): x.cuda()\n"
    )
    new = data.replace(b"torch.cuda", b"torch.npu").replace(b"x.cuda", b"x.npu")
    new = new.replace(b"device('cuda')", b"device('npu')")
    assert _rewrite(data).replace(b"case ('npu'", b"case ('cuda'") == new.replace(
        b"import torch\n", b"import torch\nimport torch_npu  # noqa: F401\n"
    )


def test_import_behind_a_last_line_that_ends_in_a_wide_character() -> None:
    data = "x.cuda()\nimport torch  # 昇".encode()
    assert _rewrite(data).endswith("# 昇\nimport torch_npu  # noqa: F401".encode())


def test_an_edit_inside_a_replaced_node_is_left_as_a_finding() -> None:
    new, result = rewrite_bytes(b"(torch.cuda.OutOfMemoryError).cuda()\n", OPTIONS, path="f.py")
    assert result.changed
    assert b"torch.OutOfMemoryError" in new or result.remaining


def test_a_handler_in_brackets() -> None:
    data = b"import torch\ntry: x\nexcept (f(x.cuda())\n  + y): z\nexcept (A, g(x.cuda())): z\n"
    assert _rewrite(data) == _expected(data)


def test_brackets_around_a_replaced_name_stay() -> None:
    data = b"import torch\ntry: x.cuda()\nexcept(torch.cuda.OutOfMemoryError)as e: z\n"
    assert b"except(torch.OutOfMemoryError)as e: z" in _rewrite(data)

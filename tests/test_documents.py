"""The engine for files that hold no Python: edits by place, suppressions, bytes kept."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuda2npu.formats import document
from cuda2npu.model import FixLevel, Options, Result, SourceError
from cuda2npu.rule import Fix, Report, Rule, rule
from cuda2npu.tokens import DocumentSite, Token


def words(text: str) -> Iterator[Token]:
    """A format of words, which refuses a text with an exclamation mark."""
    if "!" in text:
        raise SourceError("line 1: no words")
    for match in re.finditer(r"#.*|([^\s#]+)", text):
        if match[1]:
            yield Token(match[0], *match.span())


def _rule(code: str, old: str, new: str | None, level: FixLevel = FixLevel.SAFE) -> Rule:
    @rule(code, f"{old}-{code}", on=Token, words=(old,), fix=level, why=f"{old}!", examples=())
    def replaced(token: Token, site: DocumentSite) -> Fix | Report | None:
        at = token.text.find(old)
        if at < 0:
            return None
        return Report() if new is None else Fix({token.part(at, at + len(old)): new})

    return replaced


CUDA = _rule("NPU830", "cuda", "npu")


@pytest.fixture(autouse=True)
def _rules(monkeypatch: pytest.MonkeyPatch) -> None:
    _use(monkeypatch, CUDA)


def _use(monkeypatch: pytest.MonkeyPatch, *rules: Rule) -> None:
    monkeypatch.setattr(document, "selected_rules", lambda options: rules)


def run(data: bytes, options: Options | None = None) -> tuple[bytes, Result]:
    return document.rewrite_document(data, options or Options(), path="a.words", tokenize=words)


def test_only_the_place_of_an_edit_changes() -> None:
    new, result = run(b"a\tcuda:0  b\r\n\r\ncuda")
    assert new == b"a\tnpu:0  b\r\n\r\nnpu"
    assert [(f.line, f.column, f.end_line, f.end_column) for f in result.applied] == [
        (1, 3, 1, 9),
        (3, 1, 3, 5),
    ]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("bom", [b"", codecs.BOM_UTF8])
def test_bytes_around_an_edit_are_kept(end: bytes, last: bool, bom: bytes) -> None:
    data = bom + "昇 cuda é".encode() + end + b"b" + (end if last else b"")
    new, result = run(data)
    assert new == data.replace(b"cuda", b"npu")
    assert result.findings[0].line == 1
    assert result.findings[0].column == 3


def test_nothing_to_do_gives_the_same_object() -> None:
    data = b"nothing\r\n"
    new, result = run(data)
    assert new is data
    assert not result.changed
    assert run(new)[1].findings == ()


def test_a_second_run_changes_nothing() -> None:
    new, _ = run(b"cuda:0 cudacuda")
    assert run(new)[0] == b"npu:0 npunpu"


def test_the_first_of_two_edits_of_one_place_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    _use(monkeypatch, CUDA, _rule("NPU831", "cuda:0", "npu:1"))
    new, result = run(b"cuda:0")
    assert new == b"npu:0"
    assert [(f.code, f.applied, f.fix) for f in result.findings] == [
        ("NPU830", True, FixLevel.SAFE),
        ("NPU831", False, FixLevel.NONE),
    ]


def test_edits_of_different_pieces_of_a_token_compose(monkeypatch: pytest.MonkeyPatch) -> None:
    _use(monkeypatch, CUDA, _rule("NPU831", ":0", ":1"))
    assert run(b"x cuda:0 y")[0] == b"x npu:1 y"


def test_levels_are_applied_as_the_user_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    _use(monkeypatch, _rule("NPU830", "cuda", "npu", FixLevel.UNSAFE))
    data = b"cuda"
    new, result = run(data)
    assert new is data
    assert result.remaining[0].fix is FixLevel.UNSAFE
    assert run(data, Options(unsafe=True))[0] == b"npu"


def test_a_report_edits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _use(monkeypatch, _rule("NPU830", "cuda", None))
    assert run(b"cuda")[1].remaining[0].message == "cuda!"


def test_comments_keep_rules_away() -> None:
    assert run(b"cuda # cuda2npu: ignore\ncuda")[0] == b"cuda # cuda2npu: ignore\nnpu"
    kept = b"cuda # cuda2npu: ignore[NPU830]\n"
    assert run(kept)[0] is kept
    assert run(b"cuda # cuda2npu: ignore[NPU101]\n")[0].startswith(b"npu")
    assert "no rule has the code" in run(b"cuda # cuda2npu: ignore[X1]\n")[1].notes[0]


def test_a_skipped_file_is_not_even_read() -> None:
    data = b"! # cuda2npu: skip-file\ncuda"
    assert run(data)[0] is data


def test_a_text_that_the_parser_refuses_is_refused() -> None:
    with pytest.raises(SourceError, match="no words"):
        run(b"cuda !")
    with pytest.raises(SourceError, match="byte 0xff"):
        run(b"cuda \xff")


def test_an_edit_that_breaks_the_text_is_never_handed_back(monkeypatch: pytest.MonkeyPatch) -> None:
    _use(monkeypatch, _rule("NPU830", "cuda", "npu!"))
    with pytest.raises(RuntimeError, match="cannot be read"):
        run(b"cuda")


def test_a_rule_without_its_word_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    _use(monkeypatch, _rule("NPU830", "nccl", "hccl"))
    assert run(b"cuda")[1].findings == ()


@given(st.text(alphabet="cuda:01 \n\r\t昇", max_size=60))
def test_every_other_character_stays(text: str) -> None:
    new, result = run(text.encode())
    first = re.sub(r"(\S*?)cuda(\S*)", r"\1npu\2", text)  # the rule edits one place of a word
    assert new.decode() == first
    assert result.changed == (first != text)

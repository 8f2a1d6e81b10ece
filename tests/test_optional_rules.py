"""Rules that are off by default: what turns them on, and what they cost while they are off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import libcst as cst
import pytest

from cuda2npu import engine, packs
from cuda2npu.formats import has_trigger
from cuda2npu.model import Options, Target
from cuda2npu.rule import FixLevel, Outcome, Report, Rule, Site, report, rule

WORD = "zz_slowly"


def _says(node: cst.Call, site: Site) -> Outcome:
    return Report() if isinstance(node.func, cst.Name) and node.func.value == WORD else None


def _rule(code: str, *, default: bool = False, word: str = WORD) -> Rule:
    make = rule(
        code, f"rule-{code}", on=cst.Call, words=(word,), fix=FixLevel.NONE, default=default,
        why="it can be faster", examples=(report(f"{word}()"),),
    )  # fmt: skip
    return make(_says)


RULES = (
    _rule("ACME101", default=True, word="cuda"),
    _rule("ACME701"),
    _rule("NPU101", default=True, word="cuda"),
    _rule("NPU701"),
    _rule("NPU711"),
)


def _forget() -> None:
    for cached in (
        packs.selected_rules, packs.trigger_pattern, packs.document_pattern, packs.rule_words,
        packs.rule_word_pattern, engine._dispatch,
    ):  # fmt: skip
        cached.cache_clear()


@pytest.fixture(autouse=True)
def _rules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(packs, "load_rules", lambda: RULES)
    _forget()
    yield
    _forget()


def selected(options: Options) -> list[str]:
    return [rule.code for rule in packs.selected_rules(options)]


ON = ["ACME101", "NPU101"]


@pytest.mark.parametrize(
    ("select", "extend", "ignore", "codes"),
    [
        ("", "", "", ON),
        ("NPU", "", "", ["NPU101"]),
        ("N", "", "", ["NPU101"]),
        ("NPU7", "", "", ["NPU701", "NPU711"]),
        ("NPU701", "", "", ["NPU701"]),
        ("NPU NPU7", "", "", ["NPU101", "NPU701", "NPU711"]),
        ("NPU1 NPU70", "", "", ["NPU101", "NPU701"]),
        ("NPU7", "", "NPU71", ["NPU701"]),
        ("", "NPU7", "", [*ON, "NPU701", "NPU711"]),
        ("", "NPU7 ACME701", "NPU1", ["ACME101", "ACME701", "NPU701", "NPU711"]),
        ("", "NPU", "", ON),
        ("NPU1", "NPU711", "", ["NPU101", "NPU711"]),
        ("NPU1", "ACME", "", ["ACME101", "NPU101"]),
        ("", "NPU7", "NPU7", ON),
    ],
)
def test_selected(select: str, extend: str, ignore: str, codes: list[str]) -> None:
    options = Options(tuple(select.split()), tuple(extend.split()), tuple(ignore.split()))
    assert selected(options) == sorted(codes)


def test_another_target_has_other_rules() -> None:
    assert selected(Options(("NPU7",), target=Target.SHIM)) == []


def test_their_words_open_files_only_when_they_are_on() -> None:
    source = f"{WORD}()\n".encode()
    assert not has_trigger(source, "a.py", Options())
    assert not has_trigger(source, "a.py", Options(("NPU1",)))
    assert not has_trigger(source, "requirements.txt", Options(("NPU7",)))
    assert has_trigger(source, "a.py", Options(("NPU7",)))
    assert has_trigger(source, "a.py", Options(extend_select=("NPU711",)))
    assert WORD not in packs.rule_words(Options())


def test_rules_about_documents_open_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda2npu.tokens import Command

    documents = replace(_rule("NPU702"), on=(Command,))
    monkeypatch.setattr(packs, "load_rules", lambda: (documents,))
    _forget()
    assert has_trigger(WORD.encode(), "a.sh", Options(("NPU7",)))
    assert not has_trigger(WORD.encode(), "a.py", Options(("NPU7",)))


def codes(text: str, options: Options) -> list[str]:
    _, result = engine.rewrite_bytes(text.encode(), options, path="a.py")
    return [finding.code for finding in result.findings]


def test_they_speak_when_they_are_on() -> None:
    text = f"import torch\n{WORD}(torch.cuda)\n"
    assert codes(text, Options()) == ["ACME101", "NPU101"]
    assert codes(text, Options(("NPU701",))) == ["NPU701"]
    ignored = f"import torch\n{WORD}(torch.cuda)  # cuda2npu: ignore[NPU7]\n"
    assert codes(ignored, Options(extend_select=("NPU7",))) == ["ACME101", "NPU101"]


def test_they_speak_where_the_run_time_patch_is_used() -> None:
    text = f"from torch_npu.contrib import transfer_to_npu\n{WORD}(torch.cuda)\n"
    assert codes(text, Options(extend_select=("NPU701",))) == ["NPU701"]

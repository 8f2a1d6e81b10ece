"""Every rule's examples: the rule's documentation is its unit test."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cuda2npu import formats
from cuda2npu.file_rules import UNREADABLE
from cuda2npu.model import Options, Result, Target
from cuda2npu.packs import load_rules, packs
from cuda2npu.rule import Example, Rule

CASES = [(rule, example) for rule in load_rules() for example in rule.examples]


def _options(rule: Rule, example: Example) -> Options:
    target = Target.NPU if Target.NPU in rule.targets else Target.SHIM
    options = Options(unsafe=rule.fix.value == "unsafe", target=target)
    return options if example.release is None else replace(options, torch_npu=example.release)


def _rewrite(example: Example, options: Options) -> Result:
    """Rewrite the example as a file of its name; its expected text must be readable, too."""
    formats.rewrite_bytes(example.after.encode(), options, path=example.path)
    return formats.rewrite_bytes(example.before.encode(), options, path=example.path)[1]


@pytest.mark.parametrize(("rule", "example"), CASES, ids=lambda v: getattr(v, "code", None))
def test_example(rule: Rule, example: Example) -> None:
    result = _rewrite(example, _options(rule, example))
    mine = [finding for finding in result.findings if finding.code == rule.code]
    if example.kind == "leave":
        assert mine == []
    elif example.kind == "report":
        assert mine
        assert not any(finding.applied for finding in mine)
    else:
        assert result.text == example.after
        assert any(finding.applied for finding in mine)
        again = replace(example, before=result.text)
        assert not _rewrite(again, _options(rule, example)).changed


@pytest.mark.parametrize("rule", load_rules(), ids=lambda rule: rule.code)
def test_metadata(rule: Rule) -> None:
    if rule is UNREADABLE:
        return  # an example would be a gap of LibCST
    assert rule.examples, "a rule without an example is not documented"
    assert any(example.kind != "leave" for example in rule.examples)
    documents = rule.is_about_documents
    words = {
        word for pack in packs() for word in (pack.document_words if documents else pack.words)
    }
    for word in rule.words:
        assert any(known in word for known in words), f"no file is parsed for {word!r}"


def test_names_are_unique() -> None:
    names = [rule.name for rule in load_rules()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("unsafe", [False, True])
@pytest.mark.parametrize("rule", load_rules(), ids=lambda rule: rule.code)
def test_no_edit_is_left_for_a_second_run(rule: Rule, unsafe: bool) -> None:
    for example in rule.examples:
        options = replace(_options(rule, example), unsafe=unsafe)
        result = _rewrite(example, options)
        assert not any(options.applies(finding.fix) for finding in result.remaining)
        assert not _rewrite(replace(example, before=result.text), options).changed

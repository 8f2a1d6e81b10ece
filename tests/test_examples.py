"""Every rule's examples: the rule's documentation is its unit test."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from laws import NOT_FOUND_AGAIN, vanished

from cuda2npu.pack import Pack
from cuda2npu.packs import load_rules
from cuda2npu.rule import Example, Rule, leave, report, rewrite
from cuda2npu.testing import check_example, check_examples, check_metadata, twice

CASES = [(rule, example) for rule in load_rules() for example in rule.examples]


@pytest.mark.parametrize(("rule", "example"), CASES, ids=lambda v: getattr(v, "code", None))
def test_example(rule: Rule, example: Example) -> None:
    check_example(rule, example)


@pytest.mark.parametrize("rule", load_rules(), ids=lambda rule: rule.code)
def test_what_a_run_leaves_is_found_again(rule: Rule) -> None:
    pairs = [pair for example in rule.examples for pair in twice(rule, example)]
    assert [law for pair in pairs for law in vanished(*pair)] == []


@pytest.mark.parametrize("code", NOT_FOUND_AGAIN)
def test_what_is_not_found_again_is_of_a_rule_that_needs_the_exception(code: str) -> None:
    (rule,) = (rule for rule in load_rules() if rule.code == code)
    pairs = [pair for example in rule.examples for pair in twice(rule, example)]
    left = [finding.code for first, _ in pairs for finding in first.remaining]
    found = [finding.code for _, second in pairs for finding in second.remaining]
    assert left.count(code) > found.count(code)


@pytest.mark.parametrize("rule", load_rules(), ids=lambda rule: rule.code)
def test_metadata(rule: Rule) -> None:
    check_metadata(rule)


def _with(*examples: Example) -> Rule:
    """The rule NPU101 with other examples."""
    (known,) = (rule for rule in load_rules() if rule.code == "NPU101")
    return replace(known, examples=examples)


@pytest.mark.parametrize(
    ("example", "fault"),
    [
        (rewrite("x = net.cuda()", "x = net.xpu()"), "became 'x = net.npu()"),
        (rewrite("cuda = 1", "cuda = 2"), "is not edited by this rule"),
        (leave("import torch\nx = torch.ones(2).cuda()"), "is not left alone, but found"),
        (report("import torch\nx = torch.ones(2).cuda()"), "is edited"),
        (report("cuda = 1"), "is not found"),
        (rewrite("x.cuda(", "x.npu()"), "'x.cuda(' cannot be read: line 1"),
    ],
)
def test_an_example_that_does_not_hold_is_named(example: Example, fault: str) -> None:
    with pytest.raises(AssertionError, match=f"NPU101.*{re.escape(fault)}"):
        check_example(_with(example), example)


def test_metadata_that_do_not_hold_are_named() -> None:
    with pytest.raises(AssertionError, match="NPU101 has no example of what it finds"):
        check_metadata(_with(leave("cuda = 1")))
    with pytest.raises(AssertionError, match="'nowhere' opens no file"):
        check_metadata(replace(_with(report("cuda()")), words=("nowhere",)))
    with pytest.raises(AssertionError, match="NPU101 has the name of NPU010, torch-cuda-"):
        check_metadata(replace(_with(report("cuda()")), name="torch-cuda-from-import"))


def test_a_pack_is_checked_whole() -> None:
    with pytest.raises(AssertionError, match="the pack ours is not installed"):
        check_examples(Pack("ours", ("cuda",), ()))

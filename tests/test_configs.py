"""YAML, TOML and JSON: every piece is found where it stands, and edits change values alone."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cuda2npu import formats
from cuda2npu.formats import json as json_format
from cuda2npu.formats import toml as toml_format
from cuda2npu.formats import yaml as yaml_format
from cuda2npu.knowledge import BACKEND, DEVICE, FOREIGN, Knowledge
from cuda2npu.model import FixLevel, Options, SourceError
from cuda2npu.tokens import ConfigKey, ConfigValue, Token, Variable

TOML: Any = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
EVERYTHING = Options(unsafe=True)
Path = tuple[str | int, ...]

_WORDS = (
    "device dist_backend devices env environment name value CUDA_VISIBLE_DEVICES NCCL_DEBUG a.b "
    "distributed_type x-y accelerator 昇 runtime nvidia.com/gpu tf32 # true"
).split()
_VALUES = (
    "cuda cuda:0 nccl npu hccl gpu cpu:gloo,cuda:nccl CUDA_VISIBLE_DEVICES=0 MULTI_GPU é 昇 1 null "
    "it's {} - \\"
).split()
KEYS = st.sampled_from([*_WORDS, "x y", ""])
TEXTS = st.sampled_from([*_VALUES, "", "a: b", "# c", 'say "x"', "two\nlines", " cuda ", "\t"])
LEAVES = TEXTS | st.integers(-3, 9) | st.booleans() | st.none()
DATA = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.fixed_dictionaries({"device": st.just("cuda"), "rest": inner})
    ),
    max_leaves=12,
)


def leaves(data: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if isinstance(data, dict):
        for key, value in data.items():
            yield from leaves(value, (*path, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from leaves(value, (*path, index))
    else:
        yield path, data


def hold_places(text: str, tokens: Iterable[Token]) -> list[ConfigValue]:
    """Every token stands where it says; the values are handed back."""
    values, last = [], 0
    for token in tokens:
        assert text[token.start : token.end] == token.text
        assert last <= token.start
        last = token.end
        if isinstance(token, ConfigValue):
            values.append(token)
    return values


def plain(text: str) -> str:
    """A text in which the CUDA and the NPU spelling of a thing are the same."""
    text = re.sub(r"ASCEND_RT_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", text)
    text = re.sub(r"MULTI_NPU", "MULTI_GPU", text)
    return re.sub(r"\bhccl\b", "nccl", re.sub(r"\bnpu\b", "cuda", text))


def normal(data: Any) -> Any:
    if isinstance(data, dict):
        return {plain(str(key)): normal(value) for key, value in data.items()}
    if isinstance(data, list):
        return [normal(value) for value in data]
    return plain(data) if isinstance(data, str) else data


def hold_edits(text: str, path: str, load: Any) -> bool:
    """Edits change the spelling of devices and backends and nothing else, once."""
    data = text.encode()
    new, result = formats.rewrite_bytes(data, EVERYTHING, path=path)
    assert (new != data) == result.changed
    assert plain(new.decode()) == plain(text)
    assert normal(load(new.decode())) == normal(load(text))
    assert formats.rewrite_bytes(new, EVERYTHING, path=path)[0] == new
    return result.changed


def _load_json(text: str) -> Any:
    return json.loads(text)


def _load_yaml(text: str) -> Any:
    return list(yaml.load_all(text, Loader=yaml.BaseLoader))


@settings(deadline=None)  # the first call loads every rule
@given(DATA, st.sampled_from([None, 1, 2, "\t"]), st.booleans())
def test_json(data: Any, indent: int | str | None, ascii_only: bool) -> None:
    text = json.dumps(data, indent=indent, ensure_ascii=ascii_only)
    values = hold_places(text, json_format.tokens(text))
    seen = {token.path: token.value for token in values}
    for path, value in leaves(data):
        if path in seen:  # else it names an environment variable
            assert seen[path] == (value if isinstance(value, str) else json.dumps(value))
    assert set(seen) <= {path for path, _ in leaves(data)}
    hold_edits(text, "c.json", _load_json)


@settings(deadline=None)
@given(
    DATA,
    st.sampled_from([None, True, False]),
    st.sampled_from([None, "'", '"', "|", ">"]),
    st.sampled_from(["", "# cuda\n", "---\n", "%YAML 1.1\n---\n"]),
    st.sampled_from(["\n", "\r\n"]),
)
def test_yaml(data: Any, flow: bool | None, style: str | None, head: str, end: str) -> None:
    text = yaml.safe_dump(data, default_flow_style=flow, default_style=style, allow_unicode=True)
    text = (head + text).replace("\n", end)
    loaded = _load_yaml(text)[0]
    values = hold_places(text, yaml_format.tokens(text))
    found = dict(leaves(loaded))
    for token in values:
        assert found[token.path] == token.value
    hold_edits(text, "c.yaml", _load_yaml)


def test_both_parsers_of_yaml_tell_the_same_places(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "a: &x [cuda, 昇, 'it''s']\nb: *x\n? {c: d}\n: e\nf: |\n  cuda\n  x\n\ng: !Ref cuda # h\n"
    )
    fast = list(yaml_format.tokens(text))
    monkeypatch.setattr(yaml_format, "_LOADER", yaml.SafeLoader)
    slow = list(yaml_format.tokens(text))
    assert [(t.start, t.path) for t in fast] == [(t.start, t.path) for t in slow]  # type: ignore[attr-defined]


KEY = st.sampled_from(["device", "a", '"x y"', "'c.d'", "a.b", "dist_backend", "env", "e . f"])
STRING = st.sampled_from(
    ['"cuda"', "'cuda:0'", '"nccl"', '"""cuda"""', "'''\nnccl'''", '"a\\"b # c"', '""', "''",
     '"""\na "quoted" line\\\n  more"""', "'#'", '"CUDA_VISIBLE_DEVICES=1"', '"\\u00e9 昇"']
)  # fmt: skip
ATOM = STRING | st.sampled_from(["1", "true", "-inf", "0x1f", "1979-05-27 07:32:00", "1e3"])


@st.composite
def toml_values(draw: st.DrawFn, depth: int = 0) -> str:
    kind = draw(st.integers(0, 4 if depth < 2 else 0))
    if kind == 3:
        gap = draw(st.sampled_from([" ", "\n  ", " # cuda\n ", ""]))
        items = draw(st.lists(toml_values(depth + 1), max_size=3))
        tail = draw(st.sampled_from(["", ","])) if items else ""
        return "[" + gap + ("," + gap).join(items) + tail + gap + "]"
    if kind == 4:
        keys = draw(st.lists(st.sampled_from(["device", "a.b", "'q'"]), max_size=2, unique=True))
        return "{ " + ", ".join(f"{key} = {draw(toml_values(2))}" for key in keys) + " }"
    return draw(ATOM)


@st.composite
def toml_texts(draw: st.DrawFn) -> str:
    lines = []
    for _ in range(draw(st.integers(1, 3))):
        header = draw(st.sampled_from(["", "[t]", "[ t.u ]", "[[list]]", "[list.sub]", '["q.r"]']))
        lines.append(header + draw(st.sampled_from(["", " # c"])))
        for key in draw(st.lists(KEY, max_size=3, unique=True)):
            lines.append(f"{draw(st.sampled_from(['', '  ']))}{key} = {draw(toml_values())}")
    return draw(st.sampled_from(["\n", "\r\n"])).join(lines)


@settings(deadline=None)
@given(toml_texts())
def test_toml(text: str) -> None:
    try:
        data = TOML.loads(text)
    except TOML.TOMLDecodeError:
        assume(False)
    values = hold_places(text, toml_format.tokens(text))
    found = dict(leaves(data))
    for token in values:
        value = found[token.path]
        assert token.value == value if isinstance(value, str) else isinstance(token.value, str)
    hold_edits(text, "c.toml", TOML.loads)


def test_most_made_up_toml_is_toml() -> None:
    seen = []

    @given(toml_texts())
    def look(text: str) -> None:
        try:
            TOML.loads(text)
            seen.append(True)
        except TOML.TOMLDecodeError:
            seen.append(False)

    look()
    assert sum(seen) > 0.3 * len(seen)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("c.yaml", "a: [cuda"),
        ("c.yaml", "a: b: cuda"),
        ("c.yaml", "{% if x %}\ndevice: cuda\n{% endif %}\n"),
        ("c.yaml", "a: *unknown_is_fine_here\n\tb: cuda"),
        ("c.yaml", "device: cuda\x07"),
        ("c.json", '{"a": "cuda",}'),
        ("c.json", '// cuda\n{"a": 1}'),
        ("c.json", "[" * 100_000 + "cuda"),
        ("c.toml", 'device = "cuda'),
        ("pyproject.toml", "device = cuda"),
        ("environment.yml", "a: [cuda"),
    ],
)
def test_what_is_no_config_is_refused_with_a_reason(path: str, text: str) -> None:
    with pytest.raises(SourceError, match="Left as it was"):
        formats.rewrite_bytes(text.encode(), EVERYTHING, path=path)


@pytest.mark.parametrize(
    "text",
    [
        "device: {{ device }}\nbackend: nccl\n",
        "image: {{ .Values.image | quote }}\ndevice: cuda\n",
        "device: ${oc.env:DEVICE,cuda}\n",
        "a: !Ref cuda\nb: !!python/object:os.system {cuda: 1}\n",
        "device: cuda\ndevice: cuda\n",
        "a: &a {device: cuda}\nb: {<<: *a}\n",
        "--- {device: cuda}\n--- [cuda]\n...\n",
        "",
        "cuda\n",
    ],
)
def test_templates_and_odd_yaml_do_not_break(text: str) -> None:
    hold_edits(text, "c.yaml", lambda text: None)


def test_values_with_escapes_are_reported_not_edited() -> None:
    data = b'{"x": "cuda", "device": "c\\u0075da"}'
    new, result = formats.rewrite_bytes(data, EVERYTHING, path="c.json")
    assert new is data
    assert [finding.code for finding in result.remaining] == ["NPU831"]


@pytest.mark.parametrize(
    ("kinds", "fix", "applied"),
    [
        (frozenset(), FixLevel.UNSAFE, False),
        (frozenset({BACKEND}), FixLevel.SAFE, True),
        (frozenset({BACKEND, FOREIGN}), FixLevel.NONE, False),
        (frozenset({DEVICE, BACKEND}), FixLevel.UNSAFE, False),
    ],
)
def test_a_value_moves_when_the_code_that_reads_it_is_known(
    kinds: frozenset[str], fix: FixLevel, applied: bool
) -> None:
    knowledge = Knowledge(
        sinks={"dist_backend": kinds}, readers={"dist_backend": ("horovod in a.py:3",)}
    )
    data = b"dist:\n  dist_backend: nccl\n"
    new, result = formats.rewrite_bytes(data, Options(), path="c.yaml", knowledge=knowledge)
    (finding,) = result.findings
    assert (finding.fix, finding.applied) == (fix, applied)
    assert (new == b"dist:\n  dist_backend: hccl\n") == applied
    assert ("horovod in a.py:3" in finding.message) == (FOREIGN in kinds)


def test_a_key_of_any_name_that_feeds_a_device_is_one() -> None:
    sinks = {"where": frozenset({DEVICE})}
    for files, after in (({"conf/c.yaml"}, b"where: npu\n"), ({"d.yaml"}, b"where: cuda\n")):
        known = Knowledge(sinks=sinks, files=frozenset(files))
        path = "a/conf/c.yaml"
        new, result = formats.rewrite_bytes(b"where: cuda\n", Options(), path=path, knowledge=known)
        assert new == after
        assert len(result.findings) == 1
    assert formats.rewrite_bytes(b"where: cuda\n", EVERYTHING, path="c.yaml")[1].findings == ()


def test_names_of_variables_are_told_from_keys() -> None:
    text = (
        'env: {CUDA_VISIBLE_DEVICES: "0"}\nCUDA_VISIBLE_DEVICES: 1\n'
        "environment:\n- A=1=2\n- B\nvars:\n- name: C\n  value: 3\nenv_cfg: {D: 4}\n"
    )
    tokens = list(yaml_format.tokens(text))
    named = [(token.text, token.value) for token in tokens if isinstance(token, Variable)]
    assert named == [("CUDA_VISIBLE_DEVICES", "0"), ("A", "1=2"), ("B", None)]
    keys = [token.key for token in tokens if isinstance(token, ConfigKey)]
    assert "CUDA_VISIBLE_DEVICES" in keys
    assert "D" in keys


@pytest.mark.parametrize(
    ("text", "applied"),
    [
        ("distributed_type: MULTI_GPU\nnum_machines: 2\nmachine_rank: 0\n", True),
        ("distributed_type: MULTI_GPU\nmode: fast\n", False),
    ],
)
def test_a_config_of_accelerate_is_known_by_its_keys(text: str, applied: bool) -> None:
    new, result = formats.rewrite_bytes(text.encode(), Options(), path="a.yaml")
    assert (b"MULTI_NPU" in new) == applied
    assert [finding.code for finding in result.findings] == ["NPU833"]

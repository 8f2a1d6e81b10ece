"""The house rules, read from the sources: who imports whom, and how long things are."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "src" / "cuda2npu"
PACKS = ROOT / "codemods" / "cuda2npu_codemods"

LAYERS = (
    ("model", "pack", "knowledge", "words"),
    ("fingerprint",),
    ("tokens", "rule", "releases"),
    (
        "source",
        "scopes",
        "statements",
        "facts",
        "packs",
        "trees",
        "suppress",
        "parsing",
        "file_rules",
    ),
    ("site", "imports", "unused", "ported", "shim"),
    ("engine",),
    ("formats",),
    (
        "exclude",
        "boundary",
        "files",
        "writing",
        "config",
        "workers",
        "places",
        "project",
        "survey",
        "gathering",
    ),
    ("baseline", "changed", "cluster", "testing"),
    ("report",),
    ("simulator",),
    ("running",),
    ("smoke", "benchmark"),
    ("doctor",),
    ("export",),
    ("cli", "__main__"),
)
"""A module imports from its own layer and those above it in this list."""

FORBIDDEN = ("libcst.matchers", "libcst.codemod", "libcst.metadata")
PACK_IMPORTS = tuple(
    f"cuda2npu.{module}." for module in ("rule", "pack", "tokens", "releases", "knowledge")
)
WITH_TORCH = tuple(
    f"cuda2npu.{part}" for part in ("simulator", "running", "smoke", "benchmark", "export")
)
MODULE_LINES = 400
FUNCTION_LINES = 50
FILES = sorted([*CORE.rglob("*.py"), *PACKS.rglob("*.py")])


def _layer(module: str) -> int | None:
    part = module.split(".")[1] if module.startswith("cuda2npu.") else ""
    return next((index for index, names in enumerate(LAYERS) if part in names), None)


def _module(path: Path) -> str:
    base = ROOT / ("src" if path.is_relative_to(CORE) else "codemods")
    return ".".join(path.relative_to(base).with_suffix("").parts).removesuffix(".__init__")


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


@pytest.mark.parametrize("path", FILES, ids=_module)
def test_imports_run_one_way(path: Path) -> None:
    own = _module(path)
    for line, name in _imports(path):
        place = f"{own}:{line} imports {name}"
        assert not name.startswith(FORBIDDEN), place
        top = name.partition(".")[0]
        if top in ("torch", "torch_npu"):
            assert own.startswith(WITH_TORCH), place
        if own.startswith("cuda2npu_codemods"):
            if top == "cuda2npu":
                assert name.startswith(PACK_IMPORTS), place
            continue
        assert top != "cuda2npu_codemods", place
        mine, theirs = _layer(own), _layer(name)
        if mine is not None and theirs is not None:
            assert theirs <= mine, place


@pytest.mark.parametrize("path", sorted(CORE.glob("*.py")), ids=_module)
def test_every_module_has_its_layer(path: Path) -> None:
    assert path.stem == "__init__" or _layer(_module(path)) is not None


@pytest.mark.parametrize("path", FILES, ids=_module)
def test_nothing_is_too_long(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MODULE_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            # A decorator of a rule holds its metadata and examples; it is no code.
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= FUNCTION_LINES, f"{node.name} has {length} lines"


def test_no_console_makes_an_emoji_of_a_place() -> None:
    """``:100:`` is an emoji to rich, and the middle of ``train.py:100: …`` to us."""
    for path in CORE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Console"):
                options = {each.arg: ast.unparse(each.value) for each in node.keywords}
                assert options.get("emoji") == "False", f"{path}:{node.lineno}"

from __future__ import annotations

from pathlib import Path

import pytest

from cuda2npu import packs
from cuda2npu.config import Settings, configure, nearest
from cuda2npu.model import Target, UsageError


@pytest.fixture(autouse=True)
def _codes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "rule_codes", lambda: ("NPU101", "NPU102", "NPU401"))


def settings_file(folder: Path, body: str, section: str = "[tool.cuda2npu]\n") -> Path:
    path = folder / "pyproject.toml"
    path.write_text(section + body)
    return path


def test_no_settings(tmp_path: Path) -> None:
    config = configure(Settings(), str(tmp_path))
    assert config.options.select == ()
    assert config.options.target is Target.NPU
    assert config.jobs is None


def test_every_key(tmp_path: Path) -> None:
    settings_file(
        tmp_path,
        'select = ["NPU1"]\nignore = ["NPU102"]\npreserve-numerics = true\nunsafe = true\n'
        'target = "shim"\nexclude = ["gen/"]\njobs = 3\n',
    )
    (tmp_path / "src").mkdir()
    config = configure(Settings(), str(tmp_path / "src" / "a.py"))
    options = config.options
    assert (options.select, options.ignore) == (("NPU1",), ("NPU102",))
    assert (options.preserve_numerics, options.unsafe, options.target) == (True, True, Target.SHIM)
    assert config.exclude.matches("x/gen", folder=True)
    assert config.jobs == 3


def test_the_command_line_wins(tmp_path: Path) -> None:
    settings_file(tmp_path, 'select = ["NPU1"]\nunsafe = true\njobs = 3\n')
    given = Settings(select=("NPU4",), unsafe=False, jobs=1)
    config = configure(given, str(tmp_path))
    assert config.options.select == ("NPU4",)
    assert config.options.unsafe is False
    assert config.jobs == 1


def test_what_is_selected_on_the_command_line_stands_alone(tmp_path: Path) -> None:
    settings_file(tmp_path, 'select = ["NPU1"]\nextend-select = ["NPU401"]\n')
    options = configure(Settings(), str(tmp_path)).options
    assert (options.select, options.extend_select) == (("NPU1",), ("NPU401",))
    options = configure(Settings(select=("NPU102",)), str(tmp_path)).options
    assert (options.select, options.extend_select) == (("NPU102",), ())
    options = configure(Settings(extend_select=("NPU102",)), str(tmp_path)).options
    assert (options.select, options.extend_select) == (("NPU1",), ("NPU102",))


def test_a_nearer_file_without_a_section_is_passed_over(tmp_path: Path) -> None:
    settings_file(tmp_path, "jobs = 3\n")
    (tmp_path / "sub").mkdir()
    settings_file(tmp_path / "sub", 'dependencies = ["cuda2npu"]\n', "[project]\n")
    assert configure(Settings(), str(tmp_path / "sub")).jobs == 3


def test_the_nearest_section_is_the_only_one(tmp_path: Path) -> None:
    settings_file(tmp_path, "jobs = 3\nunsafe = true\n")
    (tmp_path / "sub").mkdir()
    settings_file(tmp_path / "sub", "jobs = 2\n")
    config = configure(Settings(), str(tmp_path / "sub"))
    assert (config.jobs, config.options.unsafe) == (2, False)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("selct = []\n", r"selct: unknown key; the nearest is select"),
        ("preserve_numerics = true\n", r"the nearest is preserve-numerics"),
        ("jobs = true\n", r"jobs: must be a number, not True"),
        ("jobs = 0\n", r"jobs: must be at least 1, not 0"),
        ('select = "NPU1"\n', r"select: must be a list of strings, not 'NPU1'"),
        ("exclude = [1]\n", r"exclude: must be a list of strings"),
        ('unsafe = "yes"\n', r"unsafe: must be true or false"),
        ("target = 1\n", r"target: must be a string, not 1"),
        ('target = "cuda"\n', r"target: 'cuda' is none of npu, shim"),
        ('ignore = ["NPU9"]\n', r"ignore: no rule has the code 'NPU9'; the nearest is NPU"),
        ('torch-npu = "17"\n', r"torch-npu: .*17"),
        ("jobs = \n", r"pyproject.toml: "),
        ('exclude = ["[z-a]"]\n', r"exclude pattern"),
    ],
)
def test_errors_name_the_file_and_the_key(tmp_path: Path, body: str, message: str) -> None:
    path = settings_file(tmp_path, body)
    with pytest.raises(UsageError, match=message) as caught:
        configure(Settings(), str(tmp_path))
    if "exclude pattern" not in message:
        assert str(path) in str(caught.value)


def test_a_section_that_is_no_table(tmp_path: Path) -> None:
    settings_file(tmp_path, "cuda2npu = 1\n", "[tool]\n")
    with pytest.raises(UsageError, match="must be a table"):
        configure(Settings(), str(tmp_path))


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes(b"# cuda2npu \xff\n")
    with pytest.raises(UsageError, match=r"pyproject\.toml"):
        configure(Settings(), str(tmp_path))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Settings(select=("NPU9",)), "--select: no rule has the code 'NPU9'"),
        (Settings(ignore=("npu1010",)), "--ignore: .*the nearest is NPU101"),
        (Settings(select=("NPU199",)), "--select: .*the nearest is NPU102"),
        (Settings(select=("NPU300",)), "--select: .*the nearest is NPU401"),
        (Settings(select=()), "--select: names no rule"),
        (Settings(torch_npu="foo"), r"--torch-npu: unknown torch_npu release 'foo' \(known: "),
        (Settings(select=("",)), "--select: no rule"),
        (Settings(target="x"), "--target: 'x' is none of"),
        (Settings(jobs=-1), "--jobs: must be at least 1"),
        (Settings(torch_npu="17"), "--torch-npu: "),
    ],
)
def test_errors_of_the_command_line(tmp_path: Path, given: Settings, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        configure(given, str(tmp_path))


def test_nearest_always_answers() -> None:
    assert nearest("zzz", ["a", "b"]) in {"a", "b"}


def test_codes_in_small_letters(tmp_path: Path) -> None:
    options = configure(Settings(select=("npu1",), ignore=("npu401",)), str(tmp_path)).options
    assert (options.select, options.ignore) == (("NPU1",), ("NPU401",))

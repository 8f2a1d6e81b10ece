"""Settings: the command line first, then ``[tool.cuda2npu]`` of the nearest pyproject.toml."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from cuda2npu.exclude import Exclude
from cuda2npu.model import Options, Target, UsageError


class Settings(NamedTuple):
    """What one place, the command line or the file, says; None where it says nothing."""

    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] | None = None
    preserve_numerics: bool | None = None
    unsafe: bool | None = None
    target: str | None = None
    torch_npu: str | None = None
    exclude: tuple[str, ...] | None = None
    jobs: int | None = None
    baseline: str | None = None
    force_exclude: bool | None = None
    extend_select: tuple[str, ...] | None = None
    chip: str | None = None


class Config(NamedTuple):
    """What a run is done with."""

    options: Options
    exclude: Exclude
    jobs: int | None
    baseline: Path | None = None


KEYS = tuple(name.replace("_", "-") for name in Settings._fields)
CHIP_RULE = "NPU903"
"""The rule that a chip turns on, unless other rules are selected."""
_LISTS = ("select", "extend-select", "ignore", "exclude")
_SWITCHES = ("preserve-numerics", "unsafe", "force-exclude")


def configure(command_line: Settings, first_path: str) -> Config:
    """Merge the two places and check every value; raises UsageError."""
    file, in_file = _find(Path(first_path)) or (None, Settings())

    def value(name: str) -> tuple[Any, str]:
        """A setting and the words that name its place in an error."""
        key = name.replace("_", "-")
        given = getattr(command_line, name)
        if given is not None:
            return given, f"--{key}"
        return getattr(in_file, name), f"{file}: [tool.cuda2npu] {key}"

    if command_line.select == ():
        raise UsageError("--select: names no rule; leave it out for all that are on by default")
    if command_line.select is not None:  # only these, whatever the file adds to its own
        in_file = in_file._replace(extend_select=None)
    patterns, origin = value("exclude")
    release, chip = _release(*value("torch_npu")), _chip(*value("chip"))
    added = _codes(*value("extend_select"))
    selected = _codes(*value("select"))
    asks_chip = bool(chip) and (not selected or CHIP_RULE.startswith(selected))
    _check_chip(chip, release, (*selected, *added), value("chip")[1])
    in_config = file is not None and origin != "--exclude"
    options = Options(
        select=selected,
        extend_select=(*added, CHIP_RULE) if asks_chip else added,
        ignore=_codes(*value("ignore")),
        preserve_numerics=bool(value("preserve_numerics")[0]),
        unsafe=bool(value("unsafe")[0]),
        target=_target(*value("target")),
        torch_npu=release,
        chip=chip,
    )
    base = file.parent if file and in_config else None
    exclude = Exclude(patterns or (), base, force=bool(value("force_exclude")[0]))
    baseline = command_line.baseline
    if baseline is None and file is not None and in_file.baseline is not None:
        baseline = str(file.parent / in_file.baseline)
    return Config(
        options, exclude, _jobs(*value("jobs")), Path(baseline) if baseline is not None else None
    )


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that is most like this one."""
    from difflib import get_close_matches

    return get_close_matches(word, list(known), n=1, cutoff=0)[0]


def unknown_code(code: str, known: Iterable[str]) -> str:
    """What to say of a code that no rule has, nor a beginning of its code."""
    if not any(map(str.isdecimal, code)):
        return f"no rule has a code that begins with {code!r}. `cuda2npu rules` lists them all."
    return (
        f"no rule has the code {code!r}; the nearest is {_nearest_code(code, known)}. "
        "`cuda2npu rules` lists them all."
    )


def _nearest_code(code: str, known: Iterable[str]) -> str:
    """The known code of the same family with the nearest number; ``NPU1`` counts as 100."""

    def number(text: str) -> int:
        return int("".join(filter(str.isdecimal, text))[:3].ljust(3, "0"))

    def distance(rule: str) -> tuple[bool, int]:
        return number(rule) // 100 != number(code) // 100, abs(number(rule) - number(code))

    return min(known, key=distance)


def _find(start: Path) -> tuple[Path, Settings] | None:
    """The nearest pyproject.toml, upwards, that has a section for cuda2npu."""
    place = start.absolute()
    for folder in (place, *place.parents):
        path = folder / "pyproject.toml"
        try:
            data = path.read_bytes()
        except OSError:
            continue
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise UsageError(f"{path}: is UTF-16; TOML must be UTF-8")
        if b"cuda2npu" in data:  # saves the TOML parser in most projects
            section = _section(path, data)
            if section is not None:
                return path, _settings(path, section)
    return None


def _section(path: Path, data: bytes) -> Any:
    parser: Any = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        tool = parser.loads(data.decode("utf-8-sig")).get("tool")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        fault = f"byte 0x{data[error.start]:02x} in line {line} is not UTF-8, as TOML must be"
        raise UsageError(f"{path}: {fault}") from None
    except ValueError as error:  # TOMLDecodeError is one
        raise UsageError(f"{path}: {error}") from None
    return tool.get("cuda2npu") if isinstance(tool, dict) else None


def _settings(path: Path, section: Any) -> Settings:
    if not isinstance(section, dict):
        raise UsageError(f"{path}: tool.cuda2npu must be a table")
    for key, value in section.items():
        place = f"{path}: [tool.cuda2npu] {key}"
        if key not in KEYS:
            raise UsageError(f"{place}: unknown key; the nearest is {nearest(key, KEYS)}")
        if not _has_type(key, value):
            raise UsageError(f"{place}: must be {_type_name(key)}, not {value!r}")
    values: dict[str, Any] = {
        key.replace("-", "_"): tuple(value) if key in _LISTS else value
        for key, value in section.items()
    }
    return Settings(**values)


def _has_type(key: str, value: object) -> bool:
    if key in _LISTS:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    if key in _SWITCHES:
        return isinstance(value, bool)
    if key == "jobs":
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, str)


def _type_name(key: str) -> str:
    if key in _LISTS:
        return "a list of strings"
    if key in _SWITCHES:
        return "true or false"
    return "a number" if key == "jobs" else "a string"


def _codes(given: tuple[str, ...] | None, place: str) -> tuple[str, ...]:
    """Codes or beginnings of codes, each of which must match a rule; in small letters, too."""
    if not given:
        return ()
    from cuda2npu.packs import rule_codes

    known = rule_codes()
    for code in given:
        if not code or not any(rule.startswith(code.upper()) for rule in known):
            raise UsageError(f"{place}: {unknown_code(code, known)}")
    return tuple(map(str.upper, given))


def _target(given: str | None, place: str) -> Target:
    names = [target.value for target in Target]
    if given is None:
        return Target.NPU
    if given not in names:
        raise UsageError(f"{place}: {given!r} is none of {', '.join(names)}")
    return Target(given)


def _release(given: str | None, place: str) -> str:
    if given is None:
        return Options().torch_npu
    from cuda2npu.releases import resolve_release

    try:
        return str(resolve_release(given))
    except ValueError as error:
        raise UsageError(f"{place}: {error}") from None


def _chip(given: str | None, place: str) -> str:
    if given is None:
        return ""
    from cuda2npu.releases.chips import family

    try:
        return family(given)
    except ValueError as error:
        raise UsageError(f"{place}: {error}") from None


def _check_chip(chip: str, release: str, selected: tuple[str, ...], place: str) -> None:
    """A chip needs a release that has a support page, and its rule needs a chip."""
    if not chip:
        if CHIP_RULE in selected:
            raise UsageError(f"{CHIP_RULE} needs --chip NAME, or chip in [tool.cuda2npu]")
        return
    from cuda2npu.releases.support import page_release, page_releases

    if page_release(release) is None:
        first = page_releases()[0]
        raise UsageError(f"{place}: torch_npu {release} has no support page; the first is {first}")


def _jobs(given: int | None, place: str) -> int | None:
    if given is not None and given < 1:
        raise UsageError(f"{place}: must be at least 1, not {given}")
    return given

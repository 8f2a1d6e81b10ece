"""A temporary copy of the project in which the script, its modules and configs are rewritten.

Folders that hold a rewritten file are made anew; all else in them is a link to the original, so
that data beside the script is found. Nothing is written to the user's folders.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from cuda2npu.exclude import Exclude
from cuda2npu.files import Job
from cuda2npu.formats import has_trigger, is_data, is_python
from cuda2npu.gathering import collect
from cuda2npu.gathering.roots import project_files
from cuda2npu.knowledge import Knowledge
from cuda2npu.model import Finding, FixLevel, Options
from cuda2npu.project import Mode, convert_bytes
from cuda2npu.smoke.spec import SmokeError

_DATA_PARALLEL = "NPU141"


class Own(NamedTuple):
    """What rewriting makes of a file for which the user gave a rewritten one."""

    text: bytes
    findings: list[Finding]


@dataclass(slots=True)
class Overlay:
    """The rewritten project beside the original."""

    root: Path
    copy: Path
    files: dict[Path, Path] = field(default_factory=dict)
    """Original files by their copies."""
    findings: list[Finding] = field(default_factory=list)
    """Everything that was found, with the places in the original files."""
    errors: list[str] = field(default_factory=list)
    knowledge: Knowledge = field(default_factory=Knowledge)
    """What the files of the project say about each other."""
    own: dict[Path, Own] = field(default_factory=dict)
    """By the copies of files that the user rewrote."""

    def original(self, path: str) -> Path | None:
        """The file of the user's that a path in the copy stands for."""
        known = self.files.get(Path(path))
        if known is not None:
            return known
        place = Path(path)
        return self.root / place.relative_to(self.copy) if place.is_relative_to(self.copy) else None

    def reads(self, path: Path) -> Path | None:
        """The original that a file stands for which was read; None where it is a rewritten one."""
        if path in self.files:
            return None
        return self.original(str(path)) or path

    @property
    def applied(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.applied]

    def left(self) -> list[Finding]:
        """What rewriting left for a person to do."""
        return [finding for finding in self.findings if not finding.applied]

    def across_devices(self) -> list[Finding]:
        """What spreads one process over several devices, which no NPU program does."""
        return [finding for finding in self.findings if finding.code == _DATA_PARALLEL]

    def numerics(self) -> list[Finding]:
        return [f for f in self.applied if f.fix is FixLevel.NUMERICS]


def rewritten(
    paths: list[Path], root: Path, copy: Path, options: Options, given: Path | None = None
) -> Overlay:
    """Rewrite ``paths``, all below ``root`` and the script first, into ``copy``.

    ``given`` is what the user rewrote: a file that takes the place of the script, or a folder
    whose files take the places of those of the project.
    """
    overlay = Overlay(root, copy)
    jobs = [Job(str(path), str(root), named=True) for path in paths]
    overlay.knowledge = collect(project_files(jobs, Exclude()), options)
    for path in paths:
        target = _target(path, root, copy, overlay)
        stand_in = _stand_in(path, paths[0], root, given)
        own, findings, error = _rewrite(path, options, overlay.knowledge)
        target.write_bytes(own if stand_in is None else _read(stand_in))
        shutil.copystat(path, target)  # by its time it is known whether it is still the copy
        if stand_in is not None:
            overlay.own[target] = Own(own, findings)
            continue
        overlay.findings += findings
        overlay.errors += error
    _link_rest(overlay)
    return overlay


def not_rewritten(read: list[Path], overlay: Overlay, options: Options) -> list[str]:
    """What of the user's was read as it is, although rewriting would change it, and why."""
    originals = dict.fromkeys(path for path in map(overlay.reads, read) if path is not None)
    found = [*overlay.errors]
    for path in originals:
        if _rewrite(path, options, overlay.knowledge)[0] != _read(path):
            did = "ran" if is_python(str(path)) else "was read"
            found.append(f"{path}: {did} as it is, for CUDA: {_why(path, overlay)}")
    return found


def _why(path: Path, overlay: Overlay) -> str:
    if not path.is_relative_to(overlay.root):
        return f"it is outside the project ({overlay.root})"
    if path in overlay.files.values():
        return "it was opened by its place in the working folder, not imported"
    return "the reference did not read it, so that it was not in the copy"


def _stand_in(path: Path, script: Path, root: Path, given: Path | None) -> Path | None:
    if given is None:
        return None
    if given.is_file():
        return given if path == script else None
    places = [given / path.relative_to(root)]
    if path.is_relative_to(script.parent):
        places.append(given / path.relative_to(script.parent))
    found = next((place for place in places if place.is_file()), None)
    if found is None and path == script:
        raise SmokeError(f"{given} holds no {script.name}")
    return found


def _rewrite(
    path: Path, options: Options, known: Knowledge
) -> tuple[bytes, list[Finding], list[str]]:
    data, name = _read(path), str(path)
    if not is_python(name) and (is_data(name, len(data)) or not has_trigger(data, name, options)):
        return data, [], []
    outcome = convert_bytes(name, data, options, Mode.DIFF, known, strict=False)
    error = [f"{path}: {outcome.error}"] if outcome.error else []
    return outcome.after if outcome.changed else data, [*outcome.findings], error


def _target(path: Path, root: Path, copy: Path, overlay: Overlay) -> Path:
    target = copy / path.relative_to(root)
    target.parent.mkdir(parents=True, exist_ok=True)
    overlay.files[target] = path
    return target


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SmokeError(f"{path}: cannot be read: {error.strerror}") from None


def _link_rest(overlay: Overlay) -> None:
    folders = {copy.parent for copy in overlay.files}
    folders |= {p for f in set(folders) for p in f.parents if p.is_relative_to(overlay.copy)}
    for folder in folders:
        for entry in (overlay.root / folder.relative_to(overlay.copy)).iterdir():
            place = folder / entry.name
            if entry.name != "__pycache__" and not place.exists():
                place.symlink_to(entry)

"""Fetches the real packages that the laws and the benchmark run over, pinned, as sources.

``python tools/corpus.py`` unpacks them into ``.cache/corpus/NAME-VERSION/`` with plain pip. What
is there already is not fetched again. Nothing of them is ever installed, imported or run.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).resolve().parent.parent / ".cache" / "corpus"


class Package(NamedTuple):
    """One pinned wheel: an archive that can be unpacked without building anything."""

    name: str
    version: str
    sha256: str
    python: str = ""
    """The Python a binary wheel is for; empty for a pure one."""

    @property
    def folder(self) -> Path:
        return FOLDER / f"{self.name}-{self.version}"


PACKAGES = (
    Package("timm", "1.0.20", "f6e62f780358476691996c47aa49de87b95cc507edf923c3042f74a07e45b7fe"),
    Package(
        "transformers",
        "4.57.1",
        "b10d05da8fa67dc41644dbbf9bc45a44cb86ae33da6f9295f5fbf5b7890bd267",
    ),
    Package(
        "accelerate", "1.11.0", "a628fa6beb069b8e549460fc449135d5bd8d73e7a11fd09f0bc9fc4ace7f06f1"
    ),
    Package(
        "ultralytics",
        "8.3.220",
        "2c59923cc2a1ed8f5ebdf865820c5f9829c721f6a7933712bee39519bad3caec",
    ),
    Package(
        "diffusers", "0.35.2", "d50d5e74fdd6dcf55e5c1d304bc52cc7c2659abd1752740d736d7b54078b4db5"
    ),
    # The wheel holds the same Python files as the sdist but its setup.py, and pip hands out
    # an sdist only after building its metadata.
    Package(
        "fairseq",
        "0.12.2",
        "08fa308c760f995cdc13d9c385e2b9d923a78b48275d8b4d78f3a854c71a8f29",
        python="3.8",
    ),
)


class CorpusError(Exception):
    """The corpus cannot be had. The text says why and what to do."""


def fetch(names: tuple[str, ...] = ()) -> list[Path]:
    """The folders of the packages, all of them when none is named; fetches what is missing."""
    chosen = [package for package in PACKAGES if not names or package.name in names]
    for package in chosen:
        if not package.folder.is_dir():
            _unpack(package)
    return [package.folder for package in chosen]


def python_files(folders: list[Path]) -> list[Path]:
    """Every Python source below the folders, in order."""
    return sorted(path for folder in folders for path in folder.rglob("*.py") if path.is_file())


def _unpack(package: Package) -> None:
    """A folder appears whole or not at all: it is filled under another name first."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
        archive = _download(package, Path(scratch))
        found = hashlib.sha256(archive.read_bytes()).hexdigest()
        if found != package.sha256:
            raise CorpusError(
                f"{archive.name}: sha256 is {found}, expected {package.sha256}. "
                "Not unpacked: the index serves another file than the pinned one."
            )
        content = Path(scratch) / "content"
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(content)
        try:
            content.rename(package.folder)
        except OSError:
            if not package.folder.is_dir():  # else another process was faster
                raise


def _download(package: Package, folder: Path) -> Path:
    requirement = f"{package.name}=={package.version}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--dest", str(folder), requirement]
    if package.python:
        short = package.python.replace(".", "")
        command += ["--python-version", package.python, "--implementation", "cp"]
        command += ["--abi", f"cp{short}", "--platform", "manylinux1_x86_64"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    archives = list(folder.glob("*.whl"))
    if done.returncode or not archives:
        reason = done.stderr.strip().splitlines()[-1:] or ["pip said nothing"]
        raise CorpusError(
            f"{requirement} could not be fetched: {reason[0]}\n"
            f"The package index is needed once; or unpack its wheel into {package.folder}."
        )
    return archives[0]


def main() -> int:
    try:
        for folder in fetch():
            print(f"{folder.name}: {len(python_files([folder]))} Python files")
    except CorpusError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

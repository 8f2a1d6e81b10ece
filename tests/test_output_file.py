"""Where a command may put a file, and where one would be lost."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cuda2npu.model import UsageError
from cuda2npu.report.output_file import check_output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("output")
    for name in ("train.py", "spec.json", "old.json"):
        (path / name).write_text("kept")
    (path / "folder.json").mkdir()
    (path / "linked.json").symlink_to("train.py")
    (path / "same.json").symlink_to("spec.json")
    (path / "loop.json").symlink_to("loop.json")
    (path / "to_new.json").symlink_to("new.json")
    (path / "null.json").symlink_to(os.devnull)
    os.mkfifo(path / "pipe.json")
    with closing(socket.socket(socket.AF_UNIX)) as end:
        end.bind(os.path.relpath(path / "socket.json"))
        yield path


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("train.py", "the name has to end in .json"),
        (os.devnull, "the name has to end in .json"),
        ("linked.json", "train.py, whose name does not end in .json"),
        ("null.json", "is a link to /dev/null, whose name"),
        ("pipe.json", "is no file, but a device, pipe or socket"),
        ("socket.json", "is no file, but a device, pipe or socket"),
        ("folder.json", "is a folder"),
        (".", "is a folder"),
        ("missing/a.json", "there is no folder"),
        ("spec.json", "is read by this very command"),
        ("same.json", "is read by this very command"),
        ("loop.json", "cannot be written: "),
        (f"{'a' * 300}.json", "cannot be written: File name too long"),
    ],
)
def test_no_file_is_lost(folder: Path, name: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"--output .*{message}"):
        check_output("--output", folder / name, (".json",), (folder / "spec.json",))


@pytest.mark.parametrize("name", ["old.json", "new.json", "to_new.json", "NEW.JSON"])
def test_what_can_be_written(folder: Path, name: str) -> None:
    check_output("--output", folder / name, (".json",), (folder / "spec.json", folder / "none"))

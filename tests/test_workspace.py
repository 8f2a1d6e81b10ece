"""The temporary folders of runs. No torch."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cuda2npu.running.workspace import workspace

STAYS = """
import sys, time
from cuda2npu.running.workspace import workspace
with workspace() as folder:
    print(folder, flush=True)
    time.sleep(60)
"""


def test_what_a_killed_run_left_goes_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of a run that lives stays, and so does one that is just being made."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    folders, processes = [], []
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-c", STAYS], env=environment, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        folders.append(Path(process.stdout.readline().strip()))
        processes.append(process)
    young = tmp_path / "cuda2npu-run-young"
    young.mkdir()
    for folder in folders:
        os.utime(folder, (1_000_000_000, 1_000_000_000))
    killed, living = processes
    killed.kill()
    killed.communicate()
    try:
        with workspace() as own:
            assert [folder.exists() for folder in (*folders, young, own)] == [
                False,
                True,
                True,
                True,
            ]
        assert not own.exists()
    finally:
        living.kill()
        living.communicate()

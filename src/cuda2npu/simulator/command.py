"""``cuda2npu simulate``: becomes the command, with the simulated NPU in its environment."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from cuda2npu.simulator import SWITCH
from cuda2npu.simulator.build import libraries
from cuda2npu.simulator.environment import Simulation, real_npus, simulation, variables

CANNOT_RUN = 126
NOT_FOUND = 127


def simulate(
    command: Sequence[str], devices: int, chip: str, memory: str | None, force: bool
) -> NoReturn:
    """Replace this process by the command, so that its exit code and its signals are its own."""
    asked = simulation(devices, chip, memory)
    environ = dict(os.environ)
    real = real_npus()
    if real and not force:
        environ.pop(SWITCH, None)
        _say(f"real NPU found ({real[0]}): the command runs on it, nothing is simulated")
    else:
        environ.update(variables(asked, libraries(), environ))
        _say(banner(asked))
    _become(command, environ)


def banner(asked: Simulation) -> str:
    return (
        f"simulated NPU ({asked.devices} x {asked.chip}): names, placement, dtypes and control "
        "flow are checked; kernel accuracy and speed are not"
    )


def _become(command: Sequence[str], environ: dict[str, str]) -> NoReturn:
    # As in an activated environment: python, torchrun and pytest are those beside torch_npu.
    search = [str(Path(sys.executable).parent), environ.get("PATH", os.defpath)]
    environ["PATH"] = os.pathsep.join(search)
    program = shutil.which(command[0], path=environ["PATH"])
    if program is None:
        _say(f"{command[0]}: command not found")
        raise SystemExit(NOT_FOUND)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(program, list(command), environ)
    except OSError as error:
        _say(f"{command[0]}: {error.strerror}")
    raise SystemExit(CANNOT_RUN)


def _say(words: str) -> None:
    print(f"cuda2npu: {words}", file=sys.stderr, flush=True)

"""Runs the console blocks of a page as they are written and compares what they print.

A block is fenced as ``console``. A line that starts with ``$ `` is a command, ``> `` goes on with
it, and what follows is its output: stdout and stderr together, trailing blanks aside. ``…`` alone
on a line stands for any lines, within a line for any characters. A command without output may
print anything. It must succeed unless the next one is ``echo $?``.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_END = "~~ end of a command: "


@dataclass
class Step:
    """A command of a page, and the lines that the page shows under it."""

    command: str
    shown: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"$ {self.command}"

    def prints(self, output: str) -> bool:
        """Whether the output is the one that is shown."""
        pattern = "".join(
            r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + r"\n"
            for line in self.shown
        )
        lines = "".join(line.rstrip() + "\n" for line in output.splitlines())
        return not self.shown or re.fullmatch(pattern, lines) is not None


def steps(page: str) -> list[Step]:
    """The commands of a page's console blocks, in order."""
    found: list[Step] = []
    for block in _BLOCK.findall(page):
        of_block: list[Step] = []
        for line in block.splitlines():
            if line.startswith("$ "):
                of_block.append(Step(line[2:]))
            elif f"{line} ".startswith("> ") and of_block and not of_block[-1].shown:
                of_block[-1].command += "\n" + line[2:]
            elif of_block:
                of_block[-1].shown.append(line.rstrip())
        found += of_block
    return found


def run(page: Iterable[Step], folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """Run the commands in one shell, in a folder; what went otherwise than the page says."""
    todo = list(page)
    script = ["exec 2>&1", "status=0", "last() { return $status; }"]
    for step in todo:
        script += [f"last; eval {shlex.quote(step.command)}", "status=$?"]
        script += [f'printf "\\n{_END}%d\\n" $status']
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-c", "\n".join(script)],
        cwd=folder,
        env={**os.environ, "COLUMNS": "100", **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    parts = re.split(rf"^{_END}(\d+)\n", done.stdout, flags=re.MULTILINE)
    outputs, statuses = parts[0::2], [int(status) for status in parts[1::2]]
    if len(statuses) < len(todo):
        yield f"the shell ended at: {todo[len(statuses)]}\n{outputs[-1]}"
    told = [step.command == "echo $?" for step in [*todo[1:], Step("")]]
    for step, output, status, known in zip(todo, outputs, statuses, told, strict=False):
        text = output.removesuffix("\n")
        if status and not known:
            yield f"{step}\nended with {status}:\n{text}"
        if not step.prints(text):
            shown = "\n".join(step.shown)
            yield f"{step}\n--- shown on the page\n{shown}\n--- printed\n{text}"

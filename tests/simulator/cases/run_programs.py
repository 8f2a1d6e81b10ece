"""Runs small programs one after the other, each as a script, and prints what became of each."""

import contextlib
import io
import runpy
import sys
from pathlib import Path

import torch
from support import keep

torch.save(7, "last.pt")
Path("runs_cuda").mkdir()
Path("last.pt").rename("runs_cuda/last.pt")

outcomes = {}
for program in sorted(Path.cwd().glob("*.py")):
    sys.argv = [program.name, "--cuda"]
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
            runpy.run_path(str(program), run_name="__main__")
        outcomes[program.stem] = printed.getvalue().strip()
    except (Exception, SystemExit) as error:
        outcomes[program.stem] = type(error).__name__
keep(outcomes)

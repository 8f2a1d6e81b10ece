"""``rules`` and ``simulate``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from cuda2npu.config import unknown_code
from cuda2npu.model import UsageError
from cuda2npu.report import Output
from cuda2npu.report.usage import ERROR, usage_errors


def rules(
    code: Annotated[
        str | None, typer.Argument(help="A rule's code, or the beginning of some: NPU101, NPU7.")
    ] = None,
) -> None:
    """List the rules, or explain one."""
    from cuda2npu.packs import load_rules
    from cuda2npu.report.rules import print_rule, print_rules

    with usage_errors():
        known = {rule.code: rule for rule in load_rules()}
        if code is None:
            print_rules(load_rules())
            return
        begun = [rule for key, rule in known.items() if code and key.startswith(code.upper())]
        if not begun:
            raise UsageError(unknown_code(code, known))
    if code.upper() in known:
        print_rule(known[code.upper()])
    else:
        print_rules(begun)


def simulate(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND…", help="What to run.")],
    devices: Annotated[int, typer.Option(metavar="N", help="How many NPUs.")] = 1,
    chip: Annotated[str, typer.Option(metavar="NAME", help="The system on chip.")] = "Ascend910B1",
    memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Per NPU, such as 16GiB; the chip's own by default."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Even where there is a real NPU.")] = False,
) -> None:
    """Run any command with a simulated Ascend NPU; the exit code is the command's."""
    from cuda2npu.simulator import SimulatorError
    from cuda2npu.simulator.command import simulate as run

    try:
        run(command, devices, chip, memory, force)
    except SimulatorError as error:
        Output(sys.stderr).write(f"error: {error}\n")
        raise typer.Exit(ERROR) from None

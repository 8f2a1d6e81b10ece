"""The command line. Everything that is not needed by every call is imported late."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from cuda2npu import __version__, files, project
from cuda2npu.config import Config, Settings, configure, nearest_code
from cuda2npu.files import Plan, WriteError
from cuda2npu.model import UsageError
from cuda2npu.project import Mode, Outcome
from cuda2npu.report import Output, check_format, reporter, wants_color
from cuda2npu.report.progress import Progress
from cuda2npu.report.summary import Summary
from cuda2npu.smoke.cli import register as register_smoke

FINDINGS = 1
ERROR = 2
SIGNALLED = 128
"""What a shell adds to the number of the signal that ended a program."""
BROKEN_PIPE = SIGNALLED + 13

app = typer.Typer(
    help="Move PyTorch code from CUDA to Huawei Ascend NPUs (torch_npu).",
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Paths = Annotated[list[str], typer.Argument(metavar="PATH", help="Files and folders; - is stdin.")]
Select = Annotated[
    list[str] | None,
    typer.Option(metavar="CODES", help="Only these rules: NPU101,NPU2 or repeated."),
]
Ignore = Annotated[
    list[str] | None,
    typer.Option(metavar="CODES", help="Not these rules."),
]
PreserveNumerics = Annotated[
    bool | None,
    typer.Option(
        "--preserve-numerics/--change-numerics",
        help="Report edits that change results instead of making them.",
    ),
]
Unsafe = Annotated[
    bool | None,
    typer.Option("--unsafe/--no-unsafe", help="Also make edits that are only probably right."),
]
TargetName = Annotated[
    str | None,
    typer.Option("--target", metavar="NAME", help="npu: write NPU code; shim: only load the shim."),
]
Release = Annotated[
    str | None,
    typer.Option("--torch-npu", metavar="RELEASE", help="The torch_npu release to write for."),
]
ExcludeGlobs = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude", metavar="GLOB", help="Leave these out, as .gitignore; named files, too."
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", "-j", metavar="N", help="Worker processes; the default is all cores."),
]
StdinName = Annotated[
    str, typer.Option("--stdin-filename", metavar="NAME", help="What to call stdin in messages.")
]
Color = Annotated[str, typer.Option(metavar="WHEN", help="auto, always or never.")]


def _version(value: bool) -> None:
    if value:
        typer.echo(f"cuda2npu {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version.")
    ] = False,
) -> None:
    pass


@app.command()
def check(
    paths: Paths,
    format: Annotated[
        str, typer.Option(metavar="NAME", help="full, concise, json or github.")
    ] = "full",
    select: Select = None,
    ignore: Ignore = None,
    preserve_numerics: PreserveNumerics = None,
    unsafe: Unsafe = None,
    target: TargetName = None,
    torch_npu: Release = None,
    exclude: ExcludeGlobs = None,
    jobs: Jobs = None,
    stdin_filename: StdinName = "<stdin>",
    color: Color = "auto",
) -> None:
    """Report CUDA-only code and change nothing. Exit 0: none, 1: findings, 2: error."""
    with _usage_errors():
        check_format(format)
        settings = Settings(
            _split(select), _split(ignore), preserve_numerics, unsafe, target, torch_npu,
            _tuple(exclude), jobs,
        )  # fmt: skip
        run = _Run(Mode.CHECK, _configure(settings, paths, stdin_filename), color)
        show = reporter(format, run.stdout_color)
        if _is_stdin(paths):
            run.stdin(stdin_filename, lambda outcome: run.stdout.write(show.add(outcome)))
        else:
            plan = files.discover(paths, run.config.exclude)
            run.all(plan, lambda outcome: run.stdout.write(show.add(outcome)))
        run.stdout.write(show.end())
    run.end()


@app.command()
def rewrite(
    paths: Paths,
    diff: Annotated[bool, typer.Option("--diff", help="Print a patch and write nothing.")] = False,
    output: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write a converted copy to this folder.")
    ] = None,
    select: Select = None,
    ignore: Ignore = None,
    preserve_numerics: PreserveNumerics = None,
    unsafe: Unsafe = None,
    target: TargetName = None,
    torch_npu: Release = None,
    exclude: ExcludeGlobs = None,
    jobs: Jobs = None,
    stdin_filename: StdinName = "<stdin>",
    color: Color = "auto",
) -> None:
    """Rewrite files in place. Exit 0: done, 2: a file could not be done, all others are."""
    with _usage_errors():
        if output is not None and (diff or _is_stdin(paths)):
            raise UsageError("--output goes neither with --diff nor with stdin")
        settings = Settings(
            _split(select), _split(ignore), preserve_numerics, unsafe, target, torch_npu,
            _tuple(exclude), jobs,
        )  # fmt: skip
        mode = Mode.DIFF if diff else Mode.WRITE
        run = _Run(mode, _configure(settings, paths, stdin_filename), color)
        if _is_stdin(paths):
            run.stdin(stdin_filename, run.show_diff if diff else run.show_source)
        elif output is not None:
            run.all(files.plan_output(paths, run.config.exclude, output), run.show_remaining)
        else:
            plan = files.discover(paths, run.config.exclude)
            run.all(plan, run.show_diff if diff else run.show_remaining)
    run.end()


@app.command()
def rules(
    code: Annotated[str | None, typer.Argument(help="A rule's code, such as NPU101.")] = None,
) -> None:
    """List the rules, or explain one."""
    from cuda2npu.packs import load_rules
    from cuda2npu.report.rules import print_rule, print_rules

    with _usage_errors():
        known = {rule.code: rule for rule in load_rules()}
        if code is None:
            print_rules(load_rules())
            return
        if code.upper() not in known:
            raise UsageError(
                f"no rule has the code {code!r}; the nearest is {nearest_code(code, known)}"
            )
    print_rule(known[code.upper()])


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
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


register_smoke(app)


class _Run:
    """One call of check or rewrite: what it prints where, and the code it exits with."""

    def __init__(self, mode: Mode, config: Config, color: str) -> None:
        if color not in ("auto", "always", "never"):
            raise UsageError(f"--color {color}: is none of auto, always, never")
        self.mode = mode
        self.config = config
        self.stdout = Output(sys.stdout)
        self.stderr = Output(sys.stderr)
        self.stdout_color = wants_color(color, sys.stdout)
        self.stderr_color = wants_color(color, sys.stderr)
        self.summary = Summary(mode, self.stderr_color)
        self._waiting = 0
        self._interrupted = 0  # the signal that asked for the end

    def all(self, plan: Plan, show: Callable[[Outcome], None]) -> None:
        """Do every file of a plan and show each outcome as soon as its turn comes."""
        progress = Progress(len(plan.jobs), sys.stderr)
        self.summary.skipped(plan.excluded, plan.notebooks)
        for fault in plan.errors:
            self.summary.errors.append(fault)
            show(Outcome(fault.path, error=fault.message))
        if plan.jobs and files.size(plan.jobs[0].path) > project.POOL_BYTES:
            progress.begin()
        with self._interruptible():
            outcomes = project.run(
                plan.jobs,
                self.config.options,
                self.mode,
                workers=self.config.jobs,
                stopped=self._stopped,
            )
            for outcome in chain(outcomes, self._copies(plan)):
                if outcome.findings or outcome.changed:
                    progress.clear()
                self.summary.add(outcome)
                show(outcome)
                progress.tell(self.summary.files)
        progress.clear()
        self._waiting = max(len(plan.jobs) - self.summary.files, 0)

    def stdin(self, name: str, show: Callable[[Outcome], None]) -> None:
        data = _read_stdin()
        if name != "<stdin>" and self.config.exclude.covers_named(Path(name)):
            self.summary.skipped([name], 0)
            outcome = Outcome(name, after=data)
        else:
            options = replace(self.config.options, named=True)
            outcome = project.process_bytes(name, data, options, self.mode)
        self.summary.add(outcome)
        show(outcome)

    def end(self) -> None:
        """Print the summary and leave with the exit code."""
        if self.stdout.broken and self.mode is not Mode.WRITE:  # as every program in a pipe
            raise typer.Exit(BROKEN_PIPE)
        stopped = bool(self._interrupted)
        with suppress(UsageError):  # nowhere to say that there is nowhere to say it
            self.stderr.write(self.summary.text(stopped=stopped, waiting=self._waiting))
        if stopped:
            raise typer.Exit(SIGNALLED + self._interrupted)
        if self.summary.errors:
            raise typer.Exit(ERROR)
        if self.mode is Mode.CHECK and self.summary.findings:
            raise typer.Exit(FINDINGS)

    def show_remaining(self, outcome: Outcome) -> None:
        """Findings that the rewritten file still has, on stdout."""
        self.stdout.write(self._full(outcome, self.stdout_color))

    def show_diff(self, outcome: Outcome) -> None:
        """A patch on stdout, and nothing else there; findings go to stderr."""
        if outcome.changed:
            from cuda2npu.report.diff import diff

            patch = diff(outcome.path, outcome.before, outcome.after, self.stdout_color)
            self.stdout.write(patch)
        self.stderr.write(self._full(outcome, self.stderr_color))

    def show_source(self, outcome: Outcome) -> None:
        """The rewritten source of stdin on stdout, and nothing else there."""
        self.stdout.write(outcome.after)
        self.stderr.write(self._full(outcome, self.stderr_color))

    def _full(self, outcome: Outcome, color: bool) -> str:
        if not outcome.findings:
            return ""
        pairs = zip(outcome.findings, outcome.excerpts, strict=True)
        left = [(finding, line) for finding, line in pairs if not finding.applied]
        findings = tuple(finding for finding, _ in left)
        excerpts = tuple(line for _, line in left)
        return reporter("full", color).add(outcome._replace(findings=findings, excerpts=excerpts))

    def _copies(self, plan: Plan) -> Iterator[Outcome]:
        """Copy what ``--output`` does not convert; tells the failures alone."""
        for copy in plan.copies:
            if self._stopped():
                return
            try:
                files.copy_file(copy)
            except WriteError as error:
                yield Outcome(copy.path, error=str(error))

    def _stopped(self) -> bool:
        """A reader of stdout that went away ends a run that only prints."""
        left = self.stdout.broken and self.mode is not Mode.WRITE
        return bool(self._interrupted) or left

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """The first Ctrl-C ends the run after the files in work, the second one at once.

        So do SIGTERM and SIGHUP, unless the caller, such as nohup, has them ignored.
        """

        def stop(number: int, _: object) -> None:
            self._interrupted = number
            for each in previous:
                signal.signal(each, stop_at_once)
            with suppress(UsageError):
                self.stderr.write("\nFinishing the files in work; Ctrl-C again stops at once.\n")

        def stop_at_once(number: int, _: object) -> None:
            raise SystemExit(SIGNALLED + number)

        numbers = [getattr(signal, name, None) for name in ("SIGINT", "SIGTERM", "SIGHUP")]
        previous = {n: signal.getsignal(n) for n in numbers if n is not None}
        previous = {n: old for n, old in previous.items() if old is not signal.SIG_IGN}
        for number in previous:
            signal.signal(number, stop)
        try:
            yield
        finally:
            for number, old in previous.items():
                signal.signal(number, old)


def _read_stdin() -> bytes:
    if sys.stdin is None:
        raise UsageError("standard input is closed")
    try:
        return sys.stdin.buffer.read()
    except OSError as error:
        raise UsageError(f"standard input cannot be read: {error.strerror}") from None


@contextmanager
def _usage_errors() -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        Output(sys.stderr).write(f"error: {error}\n")
        raise typer.Exit(ERROR) from None


def _configure(settings: Settings, paths: list[str], stdin_name: str) -> Config:
    if _is_stdin(paths):
        return configure(settings, "." if stdin_name == "<stdin>" else stdin_name)
    return configure(settings, paths[0])


def _is_stdin(paths: list[str]) -> bool:
    if "-" in paths and len(paths) > 1:
        raise UsageError("- for stdin stands alone, without other paths")
    return paths == ["-"]


def _tuple(values: list[str] | None) -> tuple[str, ...] | None:
    return tuple(values) if values else None


def _split(values: list[str] | None) -> tuple[str, ...] | None:
    """Values of an option that may be repeated and may hold commas."""
    if not values:
        return None
    return tuple(part.strip() for value in values for part in value.split(",") if part.strip())


def main() -> None:
    """The entry point."""
    app()

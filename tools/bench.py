"""The speed figures: ratios within one run, on the same files, in one process.

``make bench`` prints a table of targets and measurements; it never fails because of one.
"""

from __future__ import annotations

import ast
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import bench_simulator
import libcst as cst
from corpus import CorpusError, fetch, python_files
from libcst.metadata import MetadataWrapper, QualifiedNameProvider
from rich.console import Console
from rich.progress import track
from rich.table import Table

from cuda2npu import packs
from cuda2npu.engine import rewrite_bytes
from cuda2npu.gathering import collect
from cuda2npu.knowledge import Knowledge
from cuda2npu.model import FixLevel, Options, SourceError
from cuda2npu.rule import Rule

Sources = list[tuple[str, bytes]]
Row = tuple[str, str, str]
OPTIONS = Options()
EMPTY_APP = """
import typer
app = typer.Typer()
@app.command()
def one() -> None: pass
@app.command()
def two() -> None: pass
app()
"""


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def medians(works: list[Callable[[], object]], rounds: int = 3) -> list[float]:
    """Each work's median time; the works take turns, so that all meet the same weather."""
    times = [[seconds(work) for work in works] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*times, strict=True)]


def rewrite_all(sources: Sources, known: Knowledge | None = None) -> None:
    for path, data in sources:
        knowledge = known and known.seen_from(path)
        try:
            rewrite_bytes(data, OPTIONS, path=path, knowledge=knowledge)
        except SourceError as error:
            print(f"{path}: {error}", file=sys.stderr)


def parse_all(sources: Sources) -> None:
    for _, data in sources:
        ast.parse(data)


class _Names(cst.CSTTransformer):
    METADATA_DEPENDENCIES = (QualifiedNameProvider,)

    def leave_Call(  # noqa: N802
        self, original_node: cst.Call, updated_node: cst.Call
    ) -> cst.Call:
        self.get_metadata(QualifiedNameProvider, original_node, set())
        return updated_node


def plain_libcst(sources: Sources) -> None:
    for _, data in sources:
        MetadataWrapper(cst.parse_module(data)).visit(_Names()).code  # noqa: B018


def _never(node: cst.CSTNode, site: object) -> None:
    return None


def more_rules() -> tuple[Rule, ...]:
    """200 rules, half with words that occur nowhere and half with words of rules that exist."""
    words = ["cuda", "torch.cuda.", "nccl"]
    kinds: list[type[cst.CSTNode]] = [cst.Call, cst.Attribute, cst.Name, cst.SimpleString]
    return tuple(
        Rule(
            code=f"XXX{n:03}", name=f"synthetic-{n}", on=(kinds[n % 4],),
            words=(words[n % 3] if n % 2 else f"quux_{n}_{'zyxwv'[n % 5]}ord",),
            fix=FixLevel.NONE, quiet=False, why="", examples=(), function=_never, since="2.1.0",
            default=True, targets=frozenset([OPTIONS.target]), source="",
        )
        for n in range(200)
    )  # fmt: skip


def forget() -> None:
    from cuda2npu import engine

    for cached in (packs.rule_words, packs.rule_word_pattern, packs.selected_rules):
        cached.cache_clear()
    engine._dispatch.cache_clear()


def with_more_rules(sources: Sources) -> float:
    """How much longer 200 more rules take."""
    rules = packs.load_rules()
    ratios = []
    for _ in range(3):
        forget()
        rewrite_all(sources[:20])
        before = seconds(lambda: rewrite_all(sources))
        with mock.patch.object(packs, "load_rules", return_value=rules + more_rules()):
            forget()
            rewrite_all(sources[:20])
            ratios.append(seconds(lambda: rewrite_all(sources)) / before)
    forget()
    return statistics.median(ratios)


def engine_rows() -> Iterator[Row]:
    trigger = packs.trigger_pattern(OPTIONS)
    folders = fetch(("timm", "transformers", "diffusers"))
    every = [(str(path), path.read_bytes()) for path in python_files(folders)]
    sources = [(path, data) for path, data in every if trigger.search(data)]
    size = sum(len(data) for _, data in sources)
    yield "files with a trigger word", "", f"{len(sources)} of {len(every)}, {size / 1e6:.1f} MB"
    rewrite_all(sources[:20])
    paths = [path for path, _ in every]
    known = collect(paths, OPTIONS)
    rewriting, collecting, parsing = medians(
        [
            lambda: rewrite_all(sources, known),
            lambda: collect(paths, OPTIONS),
            lambda: parse_all(sources),
        ]
    )
    whole = rewriting + collecting
    yield "rewrite / ast.parse", "≤ 2", f"{whole / parsing:.2f}  ({whole:.2f} s)"
    yield "of that, project knowledge", "", f"{collecting / parsing:.2f}  ({collecting:.2f} s)"
    import gc

    gc.disable()
    bare = seconds(lambda: parse_all(sources))
    gc.enable()
    yield "rewrite / ast.parse without collector", "", f"{rewriting / bare:.2f}"
    sample = sources[:: max(len(sources) // 8, 1)][:8]
    per_byte = seconds(lambda: plain_libcst(sample)) / sum(len(data) for _, data in sample)
    yield "plain LibCST / rewrite, per byte", "≥ 10", f"{per_byte * size / rewriting:.0f}"
    yield "200 more rules", "≤ 1.10", f"{with_more_rules(sources):.2f}"


def run(command: list[str]) -> float:
    environ = {**os.environ, "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": ""}
    start = time.perf_counter()
    subprocess.run(command, capture_output=True, check=False, env=environ)
    return time.perf_counter() - start


def command_rows(folder: Path) -> Iterator[Row]:
    (folder / "app.py").write_text(EMPTY_APP)
    (folder / "plain.py").write_text("import os\n\nprint(os.getcwd())\n")
    small = [folder / f"small{n}.py" for n in range(20)]
    for path in small:
        path.write_text("import torch\n\n\ndef f(x):\n    return x.cuda().to('cuda:0')\n")
    check = [sys.executable, "-m", "cuda2npu", "check"]
    commands = [
        [sys.executable, str(folder / "app.py"), "one"],
        [*check, str(folder / "plain.py")],
        [*check, *map(str, small)],
    ]
    for command in commands:
        run(command)  # writes the byte code
    times = [[run(command) for command in commands] for _ in range(11)]
    empty, nothing, twenty = (statistics.median(column) for column in zip(*times, strict=True))
    yield "empty Typer application", "", f"{empty * 1000:.0f} ms"
    yield "check without trigger word / empty", "≤ 1.3", f"{nothing / empty:.2f}"
    yield "check of 20 small CUDA files / empty", "≤ 3", f"{twenty / empty:.2f}"


def jobs_rows() -> Iterator[Row]:
    folder = str(fetch(("diffusers",))[0])
    command = [sys.executable, "-m", "cuda2npu", "check", folder, "--format", "json"]
    one, two = (
        statistics.median(run([*command, "--jobs", jobs]) for _ in range(3)) for jobs in "12"
    )
    yield "--jobs 1 / --jobs 2 on diffusers", "", f"{one / two:.2f}  ({one:.1f} s, {two:.1f} s)"


def main() -> None:
    warnings.simplefilter("ignore")
    console = Console()
    table = Table("figure", "target", "measured", title="cuda2npu, ratios of one run")
    try:
        with tempfile.TemporaryDirectory() as name:
            parts: list[Callable[[], Iterator[Row]]] = [
                engine_rows, lambda: command_rows(Path(name)), jobs_rows, bench_simulator.rows,
            ]  # fmt: skip
            for part in track(parts, "measuring", console=Console(stderr=True), transient=True):
                for row in part():
                    table.add_row(*row)
    except (CorpusError, bench_simulator.BenchError) as error:
        console.print(f"error: {error}", markup=False)
    console.print(table)


if __name__ == "__main__":
    main()

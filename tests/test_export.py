"""``cuda2npu export`` as it is typed, on small networks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from needs import needs

from cuda2npu.export.report import Report
from cuda2npu.export.spec import RESULT, SPEC, Result, Spec

pytestmark = needs("torch", "torch_npu", "onnx", "onnxscript", "onnxruntime")

NETS = """
import torch
from torch import nn

class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)

    def forward(self, image):
        return nn.functional.gelu(self.norm(self.conv(image))).mean((2, 3))

class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(10, 8), nn.Linear(8, 4)

    def forward(self, ids, mask=None, *, scale):
        found = self.out(self.embed(ids))
        if mask is not None:
            found = found * mask[..., None]
        return {"words": found * scale, "sum": found.sum(1)}

class Fork(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x * 2
        return x * 3

class Total(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 4)

    def forward(self, ids):
        if int(ids.sum()) > 100:
            return self.embed(ids)
        return self.embed(ids) * 2

class Clipped(nn.Module):
    def forward(self, x):
        if x.abs().max() > 5:
            return x * 100
        return x * 2

class Eighth(nn.Module):
    def forward(self, x):
        return x * 3 if x.shape[0] == 8 else x

class Mean(nn.Module):
    def forward(self, x):
        return x / float(len(x)) / 1e4

class Silent(nn.Module):
    def forward(self, x):
        return None

class Noise(nn.Module):
    def forward(self, x):
        return x + torch.rand_like(x)

class Sized(nn.Module):
    def __init__(self, width):
        super().__init__()

def leaves():
    raise SystemExit(0)

def words():
    ids = torch.randint(0, 10, (2, 6))
    return Words(), {"ids": ids, "mask": torch.ones(2, 6), "scale": torch.tensor(2.0)}

def fork():
    return Fork(), torch.ones(2, 3)

number = 3
"""

SCRIPT = """
import io, os, sys, warnings
import torch
from torch.onnx import export
import nets

assert sys.argv[1:] == ["--flag", "value"]
image = torch.randn(1, 3, 8, 8)
net = nets.Conv().train()
axes = {"dynamic_axes": {"img": {0: "batch"}}, "input_names": ["img"], "output_names": ["out"]}
export(net, image, "traced.onnx", opset_version=13, dynamo=False, **axes)
assert net.training
net.eval()
program = export(net, (image,), dynamic_shapes=({0: "batch"},), input_names=["img"])
program.save("saved.onnx")

class Baked(torch.nn.Module):
    def forward(self, x):
        return x.reshape(int(x.shape[0]), -1) + 1

torch.onnx.export(
    Baked(), (torch.randn(2, 3, 4),), "baked.onnx", input_names=["x"],
    dynamic_axes={"x": {0: "n"}}, dynamo=False, opset_version=13,
)
export(torch.jit.trace(net, image), (image,), "jit.onnx", opset_version=13, dynamo=False)

class Times(torch.nn.Module):
    def forward(self, x, unused, times=3):
        return x * times

arguments = torch.ones(2), torch.ones(3)
export(Times(), (*arguments, 2), "number.onnx", opset_version=13, dynamo=False)
export(
    Times(), (*arguments, {"times": torch.ones(2)}), "last.onnx", opset_version=13, dynamo=False,
    input_names=["a", "b", "c"],
)
def small(name, size):
    torch.onnx.export(
        torch.nn.Linear(size, 2), (torch.ones(1, size),), name, dynamo=False, opset_version=13
    )

small("twice.onnx", 3)
small("twice.onnx", 4)
small("junk.onnx", 3)
open("junk.onnx", "w").write("junk")
small("gone.onnx", 3)
os.remove("gone.onnx")
memory = io.BytesIO()
with warnings.catch_warnings():
    warnings.simplefilter("error", UserWarning)
    kind = torch.onnx.OperatorExportTypes.ONNX_ATEN_FALLBACK
    export(net, (image,), memory, dynamo=False, opset_version=13, operator_export_type=kind)
assert memory.getvalue()
print("the end of the script")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export")
    (path / "nets.py").write_text(NETS)
    (path / "script.py").write_text(SCRIPT)
    (path / "never.py").write_text("print(1)\n")
    (path / "fails.py").write_text("def go():\n    raise ValueError('no weights')\n\ngo()\n")
    (path / "sleeps.py").write_text("import time\ntime.sleep(600)\n")
    (path / "linked.onnx").symlink_to("nets.py")
    os.mkfifo(path / "piped.atc.sh")
    (path / "bin").mkdir()
    atc = path / "bin" / "atc"
    atc.write_text(
        "#!/bin/sh\nprintf '%s\\n' \"$@\" > atc.args\n"
        'case "$*" in *Ascend910B2*) echo "E16002: no parser"; exit 1;; esac\n'
        "touch saved.om traced.om words.om\n"
    )
    atc.chmod(0o755)
    return path


def cuda2npu(*arguments: str, cwd: Path, path: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200", "OMP_NUM_THREADS": "1"}
    if path:
        environment["PATH"] = f"{path}{os.pathsep}{environment['PATH']}"
    return subprocess.run(
        [sys.executable, "-m", "cuda2npu", "export", *arguments],
        cwd=cwd, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.fixture(scope="module")
def script(folder: Path) -> dict[str, dict[str, Any]]:
    """The exports of the script by the names of their files, of one run."""
    done = cuda2npu("script.py", "--json", "--soc", "910B1", "--", "--flag", "value", cwd=folder)
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    assert (report["verdict"], report["error"]) == ("differs", "")
    assert any("atc of CANN is not on PATH" in note for note in report["notes"])
    return {Path(each["file"]).name: each for each in report["exports"]}


FIXED = dict.fromkeys(["example", "other values", "large values", "small values"], "ok")


def statuses(export: dict[str, Any]) -> dict[str, str]:
    return {row["case"]: row["status"] for row in export["rows"]}


def test_a_script_exports_as_it_does_alone(script: dict[str, Any], folder: Path) -> None:
    traced = script["traced.onnx"]
    assert Path(traced["file"]) == folder / "traced.onnx"
    assert (traced["exporter"], traced["opset"]) == ("trace", 13)
    assert traced["inputs"] == [
        {"name": "img", "dtype": "float", "shape": ["batch", 3, 8, 8], "example": [1, 3, 8, 8]}
    ]
    assert statuses(traced) == {**FIXED, "batch=2": "ok"}
    assert not traced["findings"]
    assert traced["place"].startswith(f"{folder / 'script.py'}:")
    commands = Path(traced["script"]).read_text()
    assert "--input_shape=img:-1,3,8,8 " in commands
    assert "--soc_version=Ascend910B1" in commands


def test_a_program_that_is_saved_later(script: dict[str, Any]) -> None:
    saved = script["saved.onnx"]
    assert (saved["exporter"], saved["opset"]) == ("dynamo", 20)
    assert statuses(saved) == {**FIXED, "batch=2": "ok"}
    names = {each["name"]: each for each in saved["findings"]}
    assert "Gelu" in names["operator"]["message"]
    assert "opset_version=18" in names["opset"]["advice"]


def test_a_size_that_is_baked_in(script: dict[str, Any]) -> None:
    baked = script["baked.onnx"]
    assert statuses(baked) == {**FIXED, "n=4": "differs"}
    (row,) = (row for row in baked["rows"] if row["status"] == "differs")
    assert row["reasons"] == ["shape [4, 12] → [2, 24]"]
    assert "script.py:19: the trace keeps one way" in baked["findings"][0]["message"]


def test_an_export_to_memory(script: dict[str, Any]) -> None:
    memory = script[""]
    assert statuses(memory) == FIXED
    assert memory["script"] is None
    assert [each["name"] for each in memory["findings"]] == ["export-type"]


@pytest.mark.parametrize("name", ["junk.onnx", "gone.onnx"])
def test_a_file_that_the_script_changes(
    script: dict[str, dict[str, Any]], folder: Path, name: str
) -> None:
    assert [each["name"] for each in script[name]["findings"]] == ["changed"]
    assert script[name]["script"] is None
    assert not (folder / name).with_suffix(".atc.sh").exists()


def test_a_file_that_is_exported_twice(script: dict[str, dict[str, Any]], folder: Path) -> None:
    assert not script["twice.onnx"]["findings"]
    commands = (folder / "twice.atc.sh").read_text()
    assert ":1,4 " in commands
    assert "# DIFFERS" not in commands
    assert "# DIFFERS from its module: n=4, " in (folder / "baked.atc.sh").read_text()


def test_modules_and_arguments_of_all_kinds(script: dict[str, Any]) -> None:
    for name in ("jit.onnx", "last.onnx"):
        assert statuses(script[name]) == FIXED
        assert not script[name]["findings"]
    (finding,) = script["number.onnx"]["findings"]
    assert finding["name"] == "not-compared"
    assert "give the exporter input_names" in finding["message"]


def test_a_callable_with_two_dynamic_axes(folder: Path) -> None:
    done = cuda2npu(
        "nets.py:words", "--dynamic", "batch", "--dynamic", "ids:1=seq", "--dynamic", "mask:1=seq",
        "--sizes", "batch=2,4", "--sizes", "seq=6,9", "-o", "words.onnx", "--soc", "Ascend910B1",
        "--precision-mode", "origin", cwd=folder, path=str(folder / "bin"),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ids int64[batch, seq], mask float[batch, seq], scale float[]" in done.stdout
    assert done.stdout.count(" ok") == 14, "two outputs in seven cases"
    assert "batch=4, seq=9" in done.stdout
    assert f"atc {folder / 'words.om'}" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("good: worst max abs")
    assert (folder / "atc.args").read_text().splitlines() == [
        "--framework=5",
        "--model=./words.onnx",
        "--output=./words",
        "--input_format=ND",
        "--input_shape=ids:-1,-1;mask:-1,-1;scale:",
        "--dynamic_dims=2,6,2,6;2,9,2,9;4,6,4,6;4,9,4,9",
        "--soc_version=Ascend910B1",
        "--precision_mode_v2=origin",
    ]
    assert not list(folder.glob(".cuda2npu-*"))


def test_a_branch_on_values(folder: Path) -> None:
    traced = cuda2npu("nets:fork", "--exporter", "trace", "-o", "fork.onnx", cwd=folder)
    assert traced.returncode == 1
    assert "differs fork.onnx: other values, 2: max abs 1 > 0.001" in traced.stdout
    line = NETS.splitlines().index("        if x.sum() > 0:") + 1
    assert f"finding fork.onnx: one-way: nets.py:{line}: the trace keeps one way" in traced.stdout


@pytest.fixture(scope="module")
def on_npu(folder: Path) -> subprocess.CompletedProcess[str]:
    return cuda2npu(
        "nets:Conv", "--inputs", "image=2x3x8x8", "--device", "npu", "--dynamic", "image:0",
        "--soc", "Ascend910B2", "-o", "npu.onnx", "--json", cwd=folder, path=str(folder / "bin"),
    )  # fmt: skip


def test_on_the_simulated_npu(on_npu: subprocess.CompletedProcess[str]) -> None:
    report = json.loads(on_npu.stdout)
    assert report["simulated"]
    assert "torch_npu" in report["environment"]
    assert statuses(report["exports"][0])["image_0=4"] == "ok"
    assert not report["exports"][0]["findings"]


def test_atc_that_refuses(on_npu: subprocess.CompletedProcess[str]) -> None:
    report = json.loads(on_npu.stdout)
    (done,) = report["compiled"]
    assert done == {"tool": "atc", "file": "", "text": "ended with code 1\nE16002: no parser"}
    assert (report["verdict"], on_npu.returncode) == ("not compiled", 1)


CASES = {
    "branch": Spec("nets:fork", output="branch.onnx"),
    "noise": Spec("nets:Noise", output="noise.onnx", inputs=("2x3",), exporter="trace"),
    "total": Spec("nets:Total", output="total.onnx", inputs=("2x6:int64:5",), exporter="trace"),
    "clipped": Spec("nets:Clipped", output="clipped.onnx", inputs=("2x6",), exporter="trace"),
    "eighth": Spec(
        "nets:Eighth",
        output="eighth.onnx",
        inputs=("2x6",),
        exporter="trace",
        dynamic=("batch",),
        sizes=("batch=1,2,8",),
    ),
    "mean": Spec(
        "nets:Mean",
        output="mean.onnx",
        inputs=("2x6",),
        exporter="trace",
        dynamic=("batch",),
    ),
    "fixed": Spec("nets:Mean", output="fixed.onnx", inputs=("2x6",), exporter="trace"),
    "leaves": Spec("nets:leaves"),
    "old": Spec("nets:Mean", output="old.onnx", inputs=("2x6",), opset=7),
    "new": Spec("nets:Mean", output="new.onnx", inputs=("2x6",), opset=99),
    "silent": Spec("nets:Silent", output="silent.onnx", inputs=("2x6",)),
    "number": Spec("nets:number"),
    "no inputs": Spec("nets:Conv"),
    "too many": Spec("nets:Conv", inputs=("1x3", "1x3"), output="many.onnx"),
    "no axis": Spec("nets:Conv", inputs=("1x3x8x8",), dynamic=("x:0",), output="axis.onnx"),
    "short": Spec("nets:Conv", inputs=("1x3x8x8",), dynamic=("image:7",), output="short.onnx"),
    "class": Spec("nets:Sized", inputs=("1x3",)),
    "missing": Spec("nets.py:Missing"),
    "no file": Spec("none.py:net"),
    "nowhere": Spec("nowhere:net"),
}


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, Result]:
    """What the exporting process leaves of each case; one process does them all."""
    folders = {name: folder / "cases" / name for name in CASES}
    for name, spec in CASES.items():
        (folders[name] / "staging").mkdir(parents=True)
        replace(spec, staging=str(folders[name] / "staging")).write(folders[name] / SPEC)
    runner = "import sys; from cuda2npu.export.child import main; [main(x) for x in sys.argv[1:]]"
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    command = [sys.executable, "-c", runner, *map(str, folders.values())]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return {name: Result.read(place / RESULT) for name, place in folders.items()}


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("number", "nets:number: is int, not a module, a class of one, or a function"),
        ("no inputs", "nets:Conv: gives a module without inputs; say --inputs"),
        ("too many", "Conv.forward does not take these inputs: too many positional"),
        ("no axis", "--dynamic x: is no input; there are image"),
        ("short", "--dynamic image:7: image has 4 axes"),
        ("class", "missing 1 required positional argument: 'width'"),
        ("leaves", "nets:leaves: ends the process with code 0, before there is a module"),
        ("new", "--opset 99: this onnx knows the opsets up to"),
        ("missing", "nets.py:Missing: nets.py has no Missing"),
        ("no file", "none.py: no such file"),
        ("nowhere", "nowhere: no such module"),
    ],
)
def test_a_target_that_is_none(results: dict[str, Result], case: str, message: str) -> None:
    assert message in results[case].error
    assert not results[case].exports


def test_a_branch_that_torch_export_refuses(results: dict[str, Result], folder: Path) -> None:
    result = results["branch"]
    assert result.traceback.endswith("in forward\n    if x.sum() > 0:")
    assert f"{folder / 'nets.py'}" in result.traceback
    assert "use torch.cond" in result.error
    assert not (folder / "branch.onnx").exists()


def test_random_numbers_are_told_of(results: dict[str, Result]) -> None:
    (exported,) = results["noise"].exports
    assert exported.differs
    assert exported.notes == ["the module computes something else each time it is called"]


@pytest.mark.parametrize(
    ("case", "differing"),
    [
        ("total", []),  # within the range of an embedding nothing goes the other way
        ("clipped", ["large values"]),
        ("eighth", ["batch=8"]),
        ("mean", ["batch=4"]),
    ],
)
def test_a_trace_that_keeps_one_way_is_never_good(
    results: dict[str, Result], case: str, differing: list[str]
) -> None:
    (exported,) = results[case].exports
    assert [row.case for row in exported.rows if row.reasons] == differing
    (finding,) = exported.findings
    assert finding.name == "one-way"
    assert "nets.py:" in finding.message
    assert Report("nets", results[case]).code == 1


def test_a_length_is_a_constant_where_all_sizes_are_fixed(results: dict[str, Result]) -> None:
    assert Report("nets", results["fixed"]).verdict == "good"


def test_every_listed_size_is_compared(results: dict[str, Result]) -> None:
    (exported,) = results["eighth"].exports
    assert [row.case for row in exported.rows if "=" in row.case] == ["batch=1", "batch=8"]


def test_a_wrong_scale_of_small_values(results: dict[str, Result]) -> None:
    (exported,) = results["mean"].exports
    row = exported.rows[-1]
    assert row.relative == pytest.approx(1)
    assert row.reasons == ("relative error 1 > 0.0141",)


def test_an_opset_that_the_exporter_does_not_write(results: dict[str, Result]) -> None:
    (exported,) = results["old"].exports
    (finding,) = exported.findings
    assert finding.name == "other-opset"
    assert finding.message == f"the exporter wrote opset {exported.opset}, not 7"


def test_the_line_where_a_process_is_left(results: dict[str, Result]) -> None:
    assert results["leaves"].traceback.endswith("in leaves\n    raise SystemExit(0)")


def test_a_module_that_returns_nothing(results: dict[str, Result]) -> None:
    (exported,) = results["silent"].exports
    assert [each.name for each in exported.findings] == ["no-output"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("missing.py",), "missing.py: no such file"),
        (("nets",), "nets: no such file; a callable is written module:callable"),
        (("nets:Conv", "--device", "cuda"), "--device cuda: is neither cpu nor npu"),
        (("nets:Conv", "--exporter", "jit"), "--exporter jit: is neither dynamo nor trace"),
        (("nets:Conv", "--soc", "H100"), "--soc H100: torch_npu knows no chip"),
        (("nets:Conv", "--inputs", "1x3,b"), "--inputs b: is no input"),
        (("nets:Conv", "-o", "missing/a.onnx"), "--output missing/a.onnx: there is no folder"),
        (("nets:Conv", "--compile"), "nothing is compiled: atc of CANN is not on PATH"),
        (
            "never.py -o a.onnx --inputs 1x3 --opset 11 --exporter trace --seed 1".split(),
            "for a callable alone: --opset, --exporter, --seed, --output, --inputs",
        ),
        (("never.py", "--opset", "3"), "--opset"),
        (("nets:words", "--", "--flag"), "a callable is given no arguments"),
        (("nets.py:words", "-o", "nets.py"), "--output nets.py: the name has to end in .onnx"),
        (("nets.py:words", "-o", "linked.onnx"), "linked.onnx: is a link to"),
        (("nets.py:words", "-o", "piped.onnx"), "piped.atc.sh: is no file, but a device"),
    ],
)
def test_bad_input_is_2(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    done = cuda2npu(*arguments, cwd=folder)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("never.py",), "error: never.py never calls torch.onnx.export"),
        (("fails.py",), "raise ValueError('no weights')\nerror: ValueError: no weights"),
        (("sleeps.py", "--timeout", "2"), "still running after --timeout 2 s, and ended"),
    ],
)
def test_what_cannot_run_is_2(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    done = cuda2npu(*arguments, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_package_names_the_extra(folder: Path) -> None:
    without = "import sys; sys.modules['onnxruntime'] = None; from cuda2npu.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", without, "export", "never.py"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "onnxruntime is not installed; do: pip install 'cuda2npu[export]'" in done.stderr

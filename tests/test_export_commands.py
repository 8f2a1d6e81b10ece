"""The command lines of atc and aoe, and what is written about shapes on the command line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from consoles import run, steps
from needs import needs

from cuda2npu.export.atc import Build, aoe, atc, om_name, script
from cuda2npu.export.shapes import Axis, Sizes, axis, sizes
from cuda2npu.export.spec import Exported, Input
from cuda2npu.model import UsageError
from cuda2npu.running.inputs import Drawn, drawn


def exported(file: str = "/models/net.onnx", **shapes: tuple[int | str, ...]) -> Exported:
    return Exported(file, "dynamo", inputs=[Input(n, "float", s) for n, s in shapes.items()])


IMAGE = exported(x=("batch", 3, 224, 224))
TOKENS = exported(ids=("batch", "seq"), mask=("batch", "seq"), scale=())


@pytest.mark.parametrize(
    ("model", "given", "expected"),
    [
        (exported(x=(1, 3, 8, 8)), (), ["--input_format=NCHW", "--input_shape=x:1,3,8,8"]),
        (exported(x=(1, 3, 4, 8, 8)), (), ["--input_format=NCDHW", "--input_shape=x:1,3,4,8,8"]),
        (exported(x=(1, 3, 8, 8), y=(2,)), (), ["--input_format=ND",
                                                "--input_shape=x:1,3,8,8;y:2"]),
        (IMAGE, (), ["--input_format=NCHW", "--input_shape=x:-1,3,224,224"]),
        (IMAGE, ("batch=1~16",), ["--input_format=NCHW", "--input_shape=x:1~16,3,224,224"]),
        (IMAGE, ("batch=8,1,2",), ["--input_format=NCHW", "--input_shape=x:-1,3,224,224",
                                   "--dynamic_batch_size=1,2,8"]),
        (exported(x=("n", 3, "h", "h")), ("n=1", "h=224,448"),
         ["--input_format=ND", "--input_shape=x:-1,3,-1,-1",
          "--dynamic_dims=1,224,224;1,448,448"]),
        (TOKENS, (), ["--input_format=ND", "--input_shape=ids:-1,-1;mask:-1,-1;scale:"]),
        (TOKENS, ("batch=1,4", "seq=64,128"),
         ["--input_format=ND", "--input_shape=ids:-1,-1;mask:-1,-1;scale:",
          "--dynamic_dims=1,64,1,64;1,128,1,128;4,64,4,64;4,128,4,128"]),
        (TOKENS, ("seq=64~128",), ["--input_format=ND",
                                   "--input_shape=ids:-1,64~128;mask:-1,64~128;scale:"]),
    ],
)  # fmt: skip
def test_shapes(model: Exported, given: tuple[str, ...], expected: list[str]) -> None:
    build = Build("Ascend910B1", sizes=sizes(given))
    own = ["--framework=5", "--model=./net.onnx", "--output=./net"]
    assert atc(model, build) == ["atc", *own, *expected, "--soc_version=Ascend910B1"]
    own[-1] = "--output=./net_tuned"
    assert aoe(model, build) == ["aoe", *own, *expected, "--job_type=2"]


@pytest.mark.parametrize(
    ("mode", "compiler", "tuner"),
    [
        ("origin", "--precision_mode_v2=origin", "--precision_mode=must_keep_origin_dtype"),
        ("fp16", "--precision_mode_v2=fp16", "--precision_mode=force_fp16"),
        ("force_fp32", "--precision_mode=force_fp32", "--precision_mode=force_fp32"),
    ],
)
def test_precision(mode: str, compiler: str, tuner: str) -> None:
    build = Build("Ascend910B1", mode, job=1)
    assert atc(IMAGE, build)[-1] == compiler
    assert aoe(IMAGE, build)[-2:] == ["--job_type=1", tuner]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Build(precision="fp8"), "--precision-mode fp8: is none of fp16, origin"),
        (lambda: Build("Ascend310P3", "mixed_bfloat16"), "Ascend310P3 has no bfloat16"),
        (lambda: Build("Ascend910B", "allow_fp32_to_bf16"), "Ascend910B has no bfloat16"),
        (lambda: Build(job=3), "--job-type 3"),
        (lambda: atc(IMAGE, Build("Ascend310B4")), "Ascend310B4 takes no ranges .* batch=1,2,4"),
        (lambda: atc(TOKENS, Build(sizes={"seq": Sizes((1, 2))})), "batch has no list of sizes"),
        (lambda: atc(IMAGE, Build(sizes={"batch": Sizes((4,))})), "1 combinations; atc takes 2"),
        (lambda: atc(IMAGE, Build(sizes={"batch": Sizes(tuple(range(1, 102)))})), "101 comb"),
    ],
)
def test_what_atc_does_not_take(make: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()  # type: ignore[operator]


def test_newer_chips_have_bfloat16() -> None:
    for chip in ("Ascend910B1", "Ascend910_9391", "Ascend310B1", ""):
        assert Build(chip, "mixed_bfloat16").soc == chip


def _tools(folder: Path) -> str:
    """A PATH whose atc and aoe write down what they were given."""
    (folder / "bin").mkdir()
    for tool in ("atc", "aoe"):
        path = folder / "bin" / tool
        path.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" > {tool}.args\n")
        path.chmod(0o755)
    return f"{folder / 'bin'}:/usr/bin:/bin"


HOSTILE = "my $(touch hacked) 'net';`id`.onnx"


def test_the_script_hands_over_each_word(tmp_path: Path) -> None:
    model = exported(str(tmp_path / HOSTILE), **{"x'; rm $HOME": ("n", 3)})
    build = Build("Ascend910B1", "origin", sizes("n=1,2 ".split()))
    path = tmp_path / "model.atc.sh"
    path.write_text(script(model, build))
    subprocess.run(["bash", "-n", path], check=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    environment = {"PATH": _tools(tmp_path)}
    for tool, words in (("atc", atc(model, build)), ("aoe", aoe(model, build))):
        subprocess.run(["bash", path, tool], cwd=elsewhere, env=environment, check=True)
        assert (tmp_path / f"{tool}.args").read_text().splitlines() == words[1:]
    assert not list(tmp_path.rglob("hacked"))
    assert om_name(HOSTILE) == "my___touch_hacked___net___id_"


def test_the_script_asks_for_the_chip(tmp_path: Path) -> None:
    path = tmp_path / "net.atc.sh"
    path.write_text(script(IMAGE, Build()))
    environment = {"PATH": _tools(tmp_path)}
    run = subprocess.run(["bash", path], env=environment, capture_output=True, text=True)
    assert run.returncode != 0
    assert "SOC_VERSION" in run.stderr
    subprocess.run(["bash", path], env={**environment, "SOC_VERSION": "Ascend310P3"}, check=True)
    assert "--soc_version=Ascend310P3" in (tmp_path / "atc.args").read_text().splitlines()


def test_the_script_sources_the_environment_of_cann(tmp_path: Path) -> None:
    path = tmp_path / "net.atc.sh"
    path.write_text(script(IMAGE, Build("Ascend910B1")))
    search = _tools(tmp_path)
    folder = tmp_path / "Ascend" / "cann"
    folder.mkdir(parents=True)
    (folder / "set_env.sh").write_text(f"false\nexport PATH={search}$UNSET\n")
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    subprocess.run(["bash", path], env=environment, check=True)
    assert (tmp_path / "atc.args").exists()
    wrong = subprocess.run(
        ["bash", path, "omg"], env=environment, capture_output=True, text=True, check=False
    )
    assert wrong.returncode == 2
    assert "[atc|aoe]" in wrong.stderr


def test_what_is_written_about_shapes() -> None:
    assert drawn("1x3x224x224") == Drawn("", (1, 3, 224, 224), "float32", 2)
    assert drawn("ids=1x16:int64:30522") == Drawn("ids", (1, 16), "int64", 30522)
    assert drawn("scalar:float16") == Drawn("", (), "float16", 2)
    assert axis("batch") == Axis("", 0, "batch")
    assert axis("ids:1=seq") == Axis("ids", 1, "seq")
    assert axis("0:2") == Axis("0", 2, "0_2")
    assert sizes(["a=4,1", "b=1~16"]) == {"a": Sizes((1, 4)), "b": Sizes((), 1, 16)}


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (drawn, "3,224", "is no input; write 1x3x224x224:float32"),
        (drawn, "1x3:float99", "float99 is none of float32"),
        (drawn, "0x3", "a size is 0"),
        (drawn, "8x3:int64:0", "whole numbers of int64 end at 1 to"),
        (drawn, "8x3:int8:129", "whole numbers of int8 end at 1 to 128"),
        (drawn, "8x32:float32:10", ":10 is the end of whole numbers, which float32 has none of"),
        (axis, "x:first", "is no axis; write x:0=batch"),
        (lambda text: sizes([text]), "batch", "write batch=1,2,4,8 or batch=1~16"),
        (lambda text: sizes([text]), "batch=9~3", "a range ends above its start"),
        (lambda text: sizes(["batch=4", text]), "batch=8", "batch is given twice"),
        (lambda text: sizes([text]), "batch=0,3", "sizes begin at 1"),
    ],
)
def test_what_cannot_be_read_is_named(parse: object, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        parse(text)  # type: ignore[operator]
    assert text in str(error.value)


@needs("torch", "onnx", "onnxscript", "onnxruntime")
def test_the_page_says_what_is_printed(tmp_path: Path) -> None:
    page = (Path(__file__).parent.parent / "docs" / "export.md").read_text(encoding="utf-8")
    (source,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "model.py").write_text(source)
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "cuda2npu"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m cuda2npu "$@"\n')
    program.chmod(0o755)
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "NO_COLOR": "1", "COLUMNS": "120"}
    any_error = re.sub(r"\d\.\d\de-\d\d", "…", page)
    assert list(run(steps(any_error), tmp_path, environment)) == []

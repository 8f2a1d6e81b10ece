"""What is found in an ONNX file that ATC would not take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from needs import missing, needs

from cuda2npu.export.operators import HIGHEST, LOWEST, SUPPORTED
from cuda2npu.export.spec import Finding, Input

pytestmark = needs("onnx")
if not missing("onnx"):
    import onnx
    from onnx import TensorProto, helper

    from cuda2npu.export import graph


def model(*nodes: Any, opset: int = 18, name: str = "x", **domains: int) -> Any:
    """A model with one input and one output, and these nodes between them."""
    value = helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])
    given = nodes or (helper.make_node("Relu", [name], ["y"]),)
    imports = [helper.make_opsetid("", opset)]
    imports += [helper.make_opsetid(key.replace("_", "."), n) for key, n in domains.items()]
    return helper.make_model(
        helper.make_graph(list(given), "g", [value], [out]), opset_imports=imports, ir_version=10
    )


def found(tmp_path: Path, made: Any) -> dict[str, Finding]:
    path = tmp_path / "model.onnx"
    onnx.save(made, path)
    return {each.name: each for each in graph.findings(path, graph.read(path))}


def test_nothing_is_wrong(tmp_path: Path) -> None:
    for opset in (LOWEST, 13, HIGHEST):
        assert found(tmp_path, model(opset=opset)) == {}
    made = model()
    assert graph.inputs(made) == [Input("x", "float", ("n", 3))]
    assert graph.opset(made) == 18


@pytest.mark.parametrize("opset", [LOWEST - 1, HIGHEST + 1, 23])
def test_an_opset(tmp_path: Path, opset: int) -> None:
    (finding,) = found(tmp_path, model(opset=opset)).values()
    assert finding.name == "opset"
    assert f"declares opset {opset}" in finding.message
    assert "opset_version=18" in finding.advice


def test_an_operator_that_a_newer_opset_brought(tmp_path: Path) -> None:
    made = found(tmp_path, model(helper.make_node("Gelu", ["x"], ["y"]), opset=20))
    assert set(made) == {"opset", "operator"}
    assert made["operator"].message.endswith(": Gelu")
    assert made["operator"].advice.startswith("opset_version=18 takes Gelu apart")


def test_an_operator_in_a_branch(tmp_path: Path) -> None:
    inner = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    branches = {
        name: helper.make_graph([helper.make_node("Mish", ["x"], ["y"])], name, [], [inner])
        for name in ("then_branch", "else_branch")
    }
    truth = helper.make_node("Constant", [], ["c"], value=helper.make_tensor("c", 9, [], [True]))
    made = found(tmp_path, model(truth, helper.make_node("If", ["c"], ["y"], **branches)))
    assert made["operator"].message.endswith(": Mish (2)")
    assert "takes Mish apart" not in made["operator"].advice


def test_operators_of_another_domain(tmp_path: Path) -> None:
    node = helper.make_node("ATen", ["x"], ["y"], domain="org.pytorch.aten", operator="relu")
    made = found(tmp_path, model(node, org_pytorch_aten=1))
    assert set(made) == {"domain", "domains"}
    assert "org.pytorch.aten::ATen" in made["domain"].message
    assert "ONNX_ATEN_FALLBACK" in made["domain"].advice
    assert "2 domains (ai.onnx, org.pytorch.aten)" in made["domains"].message


def test_operators_of_torch_npu_have_parsers(tmp_path: Path) -> None:
    node = helper.make_node("NPUOneHot", ["x"], ["y"], domain="npu")
    assert set(found(tmp_path, model(node, npu=1))) == {"domains"}


def test_a_name_that_the_trace_gives_is_no_fault(tmp_path: Path) -> None:
    """atc splits a shape from its name at the last colon."""
    assert found(tmp_path, model(name="onnx::Relu_0")) == {}


def test_a_file_that_is_wrong(tmp_path: Path) -> None:
    made = found(tmp_path, model(helper.make_node("Relu", ["nowhere"], ["y"])))
    assert "nowhere" in made["checker"].message
    shapes = helper.make_node("Reshape", ["x", "x"], ["y"])
    assert "checker" in found(tmp_path, model(shapes)), "shapes are inferred, too"


def test_the_operators_are_those_of_onnx() -> None:
    known = {schema.name for schema in onnx.defs.get_all_schemas_with_history()}
    assert known >= SUPPORTED
    assert {"Conv", "ArgMax", "LayerNormalization", "LogSoftmax"} <= SUPPORTED

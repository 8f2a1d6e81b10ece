"""What a variable may hold where it is read, and operations by whatever name."""

from __future__ import annotations

import ast
from textwrap import indent

import pytest
from cuda2npu_codemods.flow import Value
from cuda2npu_codemods.operations import Reader, flow_of


def reader(body: str) -> Reader:
    tree = ast.parse("def f(x, c):\n" + indent(body, "    "))
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    modules = {"torch": "torch", "F": "torch.nn.functional", "np": "numpy"}
    return Reader(flow_of(function), modules.get)


def returned(body: str) -> tuple[Reader, Value]:
    read = reader(body)
    return read, read.flow.returned()[-1]


@pytest.mark.parametrize(
    ("body", "sources"),
    [
        ("y = x + 1\nreturn y", ["x + 1"]),
        ("y = x + 1\ny = x + 2\nreturn y", ["x + 2"]),
        ("y = x + 1\nif c:\n    y = x + 2\nreturn y", ["x + 2", "x + 1"]),
        ("if c:\n    y = x + 1\nelse:\n    y = x + 2\n    return y", ["x + 2"]),
        ("y = x + 1\nif c:\n    y = x + 2\n    return y\nreturn y", ["x + 1"]),
        ("with c:\n    y = x + 1\nreturn y", ["x + 1"]),
        ("y = x\ny += 1\nreturn y", ["y + 1"]),
        ("y = x + 1\ny.masked_fill_(c, 0)\nreturn y", ["y.masked_fill_(c, 0)"]),
        ("y, z = x.chunk(2)\nreturn z", ["x.chunk(2)[1]"]),
        ("y, z = x, c + 1\nreturn z", ["c + 1"]),
        ("y = x + 1\ny[0] = 2\nreturn y", ["y"]),  # changed by no expression
        ("for y in x:\n    pass\nreturn y", ["y"]),
        ("y = x + 1\n" + "if c:\n    y = y + 1\n" * 9 + "return y", ["y"]),  # too many ways
    ],
)
def test_sources(body: str, sources: list[str]) -> None:
    read, value = returned(body)
    assert [ast.unparse(source.node) for source in read.flow.sources(value)] == sources


@pytest.mark.parametrize(
    ("expression", "name", "operands"),
    [
        ("torch.pow(x, 2)", "pow", ["x", "2"]),
        ("x.pow(2)", "pow", ["x", "2"]),
        ("x ** 2", "pow", ["x", "2"]),
        ("F.softmax(input=x, dim=-1)", "softmax", ["x"]),
        ("(x @ c).to(torch.float16)", "matmul", ["x", "c"]),
        ("torch.nn.SiLU()(x)", "silu", ["x"]),
        ("x.mul_(c)", "mul", ["x", "c"]),
    ],
)
def test_operations(expression: str, name: str, operands: list[str]) -> None:
    read, value = returned(f"return {expression}")
    operation = read.operation(value)
    assert operation is not None
    assert operation.name == name
    assert [ast.unparse(operand.node) for operand in operation.operands] == operands


@pytest.mark.parametrize("expression", ["np.power(x, 2)", "self.pow(x)", "x", "x // 2"])
def test_what_is_no_operation_of_torch(expression: str) -> None:
    read, value = returned(f"return {expression}")
    assert read.operation(value) is None


@pytest.mark.parametrize(
    ("body", "same"),
    [
        ("return (x, x)", True),
        ("y = x.float()\nreturn (x, y)", True),
        ("y = x\nx = x + 1\nreturn (x, y)", False),
        ("y = x + 1\nif c:\n    x = c\nreturn (x + 1, y)", False),
        ("return (c.a[0], c.a[0])", True),
        ("return (c.a[0], c.b[0])", False),
    ],
)
def test_same(body: str, same: bool) -> None:
    read, value = returned(body)
    assert isinstance(value.node, ast.Tuple)
    one, other = value.node.elts
    assert read.same(value.part(one), value.part(other)) is same

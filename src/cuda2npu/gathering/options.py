"""How a file defines the options of its command line."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cuda2npu.scopes import attribute_chain

_FIELD_PARSERS = {"HfArgumentParser": "", "TrlParser": "", "cli": "tyro"}
"""What makes an option of each field of a dataclass, with the module it is written behind."""
FIELD_PARSERS = (b"HfArgumentParser(", b"TrlParser(", b"tyro.cli(")
"""The same as they stand in a source."""


def options(call: ast.Call) -> Iterator[str]:
    """The long flags of ``add_argument("--accelerator")``, as their values are read."""
    if defines_option(call):
        for argument in call.args:
            if isinstance(argument, ast.Constant) and str(argument.value).startswith("--"):
                yield str(argument.value).lstrip("-").replace("-", "_")


def defines_option(call: ast.Call) -> bool:
    """Whether a call tells a parser of an option; ``add`` of configargparse by its flag alone."""
    callee = (attribute_chain(call.func) or ("",))[-1]
    if callee == "add":
        flag = getattr(call.args[0], "value", None) if call.args else None
        return isinstance(flag, str) and flag.startswith("-")
    return callee in ("add_argument", "add_option", "option")


def fields(node: ast.ClassDef) -> Iterator[str]:
    """The fields of a dataclass."""
    if any(map(_makes_dataclass, node.decorator_list)):
        for member in node.body:
            if isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
                yield member.target.id


def _makes_dataclass(decorator: ast.expr) -> bool:
    callee = decorator.func if isinstance(decorator, ast.Call) else decorator
    return (attribute_chain(callee) or ("",))[-1] == "dataclass"


def makes_field_parser(call: ast.Call) -> bool:
    """Whether a call makes a parser whose options are the fields of dataclasses."""
    chain = attribute_chain(call.func)
    module = _FIELD_PARSERS.get(chain[-1]) if chain else None
    return chain is not None and module is not None and (not module or module in chain[:-1])

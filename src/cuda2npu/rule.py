"""The rule interface: everything that a rule pack imports from cuda2npu.

A pack is a light object that an entry point of the group ``cuda2npu.packs`` names. It lists
its trigger words and the modules that hold its rules; the modules, and with them LibCST, are
imported only when a file contains one of the words.

A rule is a stateless function, decorated with its metadata::

    @rule(
        "NPU101", "tensor-cuda-call", on=cst.Call, words=("cuda",), fix=FixLevel.SAFE,
        why="...", examples=(rewrite("x.cuda()", "x.npu()"),),
    )
    def tensor_cuda_call(node: cst.Call, site: Site) -> Fix | Report | None: ...

It reads the original tree only. A fix maps nodes of that tree to their replacements, as small
as possible, so that fixes of several rules in one statement compose.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from cuda2npu.knowledge import BACKEND, DEVICE, FOREIGN, SINKS, Knowledge, OwnClass
from cuda2npu.model import FixLevel, Options, Target
from cuda2npu.pack import Pack
from cuda2npu.tokens import Token
from cuda2npu.words import names_backend, names_device

if TYPE_CHECKING:
    import libcst as cst

    Replacement = cst.CSTNode | tuple[cst.CSTNode, ...] | None
    """A node, several statements in place of one, or None to remove an argument or element."""

__all__ = [
    "BACKEND",
    "DEVICE",
    "FOREIGN",
    "FOREIGN_PACKAGES",
    "OTHER_RUNTIMES",
    "SINKS",
    "Example",
    "FileView",
    "Fix",
    "FixLevel",
    "Knowledge",
    "Options",
    "OwnClass",
    "Pack",
    "Report",
    "Rule",
    "Site",
    "Target",
    "leave",
    "names_backend",
    "names_device",
    "report",
    "rewrite",
    "rule",
]


FOREIGN_PACKAGES = frozenset(
    "cupy numba pycuda tensorflow jax mxnet paddle tensorrt onnxruntime onnx nvidia tvm "
    "taichi cuda cudf cuml cugraph rmm faiss kaldi triton_python_backend_utils xgboost "
    "lightgbm catboost torch_tensorrt torch2trt cucim kvikio ctranslate2 faster_whisper "
    "warp openvino llama_cpp spacy thinc requests httpx aiohttp urllib json yaml".split()
)
"""Packages whose devices, backends and ``cuda`` are not PyTorch's, or which only pass data on."""
OTHER_RUNTIMES = FOREIGN_PACKAGES - set("requests httpx aiohttp urllib json yaml".split())
"""Those of them that compute by themselves."""


@dataclass(frozen=True, slots=True)
class Fix:
    """An edit that a rule proposes."""

    edits: Mapping[Any, Replacement | str]
    """Nodes of the original tree with what takes their place, or tokens with their new text."""
    message: str = ""
    """What is wrong and what the edit does; the rule's ``why`` when empty."""
    level: FixLevel | None = None
    """The rule's own level when None."""
    quiet: bool | None = None
    """The rule's own when None."""
    at: cst.CSTNode | Token | None = None
    """The node or token that the finding points at; the visited one when None."""
    imports: tuple[str, ...] = ("torch_npu",)
    """Modules that the edited code needs to be imported."""


@dataclass(frozen=True, slots=True)
class Report:
    """A place that a person must look at."""

    message: str = ""
    quiet: bool | None = None
    at: cst.CSTNode | Token | None = None
    kernels: tuple[str, ...] = ()
    """The custom kernels that this is about, for the inventory of a project."""


_OFFER = re.compile(r",? or run with --unsafe| \(--unsafe does( it)?\)")


def without_offer(message: str) -> str:
    """A message about a place that no option edits."""
    return _OFFER.sub("", message)


Outcome = Fix | Report | None
RuleFunction = Callable[[Any, Any], Outcome]
"""Takes a LibCST node and a :class:`Site`, or a token and a ``DocumentSite``."""


@dataclass(frozen=True, slots=True)
class Example:
    """A case of a rule: unit test, documentation and ``cuda2npu rules CODE`` at once."""

    kind: Literal["rewrite", "report", "leave"]
    before: str
    after: str
    release: str | None = None
    """The torch_npu release written for, when the newest one would do otherwise."""
    path: str = "example.py"
    """The name of the file, which tells its format."""
    beside: tuple[tuple[str, str], ...] = ()
    """Other files of the project, by their names."""
    chip: str = ""
    """The chip of ``--chip``."""


Beside = Mapping[str, str] | None


def rewrite(
    before: str,
    after: str,
    *,
    release: str | None = None,
    path: str = "example.py",
    beside: Beside = None,
) -> Example:
    """A case that the rule edits."""
    return Example("rewrite", before, after, release, path, _files(beside))


def report(
    before: str,
    *,
    release: str | None = None,
    path: str = "example.py",
    beside: Beside = None,
    chip: str = "",
) -> Example:
    """A case that the rule reports and nothing edits."""
    return Example("report", before, before, release, path, _files(beside), chip)


def leave(
    before: str,
    *,
    release: str | None = None,
    path: str = "example.py",
    beside: Beside = None,
    chip: str = "",
) -> Example:
    """A case in which this rule says and does nothing."""
    return Example("leave", before, before, release, path, _files(beside), chip)


def _files(beside: Beside) -> tuple[tuple[str, str], ...]:
    return tuple((beside or {}).items())


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule function with its metadata. See the module's docstring for how one is made."""

    code: str
    name: str
    on: tuple[type[Any], ...]
    """LibCST nodes, or classes of :class:`cuda2npu.tokens.Token`, that the rule is asked about."""
    words: tuple[str, ...]
    """Substrings, one of which a statement must contain for the rule to be asked."""
    fix: FixLevel
    quiet: bool
    why: str
    examples: tuple[Example, ...]
    function: RuleFunction
    since: str
    """The lowest torch_npu release that the rule is for."""
    default: bool
    """Whether the rule runs without being selected."""
    targets: frozenset[Target]
    source: str
    """Where the fact behind the rule was read."""
    missed_by_shim: bool = False
    """Whether torch_npu's transfer_to_npu does not see to what the rule finds: then the rule is
    asked for ``--target shim``, too, and reports only."""

    def is_for(self, target: Target) -> bool:
        """Whether a run with this target asks the rule."""
        return target in self.targets or (target is Target.SHIM and self.missed_by_shim)

    def finds(self, outcome: Fix | Report, options: Options) -> tuple[FixLevel, str]:
        """The level and the message of what the rule says."""
        level = FixLevel.NONE
        message = outcome.message or self.why
        if options.target not in self.targets:
            return level, without_offer(message)
        if isinstance(outcome, Fix):
            level = outcome.level or self.fix
        return level, message

    @property
    def is_about_documents(self) -> bool:
        """Whether the rule is about files that hold no Python."""
        return any(issubclass(kind, Token) for kind in self.on)


def rule(
    code: str,
    name: str,
    *,
    on: type[cst.CSTNode] | type[Token] | tuple[type[cst.CSTNode] | type[Token], ...],
    words: tuple[str, ...],
    fix: FixLevel,
    why: str,
    examples: tuple[Example, ...],
    quiet: bool = False,
    since: str = "2.1.0",
    default: bool = True,
    targets: tuple[Target, ...] = (Target.NPU,),
    source: str = "",
    missed_by_shim: bool = False,
) -> Callable[[RuleFunction], Rule]:
    """Make a :class:`Rule` of the decorated function."""

    def decorate(function: RuleFunction) -> Rule:
        return Rule(
            code=code,
            name=name,
            on=on if isinstance(on, tuple) else (on,),
            words=words,
            fix=fix,
            quiet=quiet,
            why=why,
            examples=examples,
            function=function,
            since=since,
            default=default,
            targets=frozenset(targets),
            source=source,
            missed_by_shim=missed_by_shim,
        )

    return decorate


class FileView(Protocol):
    """Facts about the whole file, complete before the first rule runs."""

    @property
    def path(self) -> str: ...

    @property
    def text(self) -> str: ...

    @property
    def tree(self) -> ast.Module: ...

    @property
    def project(self) -> Knowledge:
        """What the other files of the project say; empty when the file stands alone."""

    def imports(self, module: str) -> bool:
        """Whether the file imports this module, something below it or something from it.

        torch_npu stands for torch, too.
        """

    def defines_method(self, name: str) -> bool:
        """Whether a class in the file defines a method; ``project`` knows those of other files."""

    def stores_attribute(self, name: str) -> bool:
        """Whether the file assigns ``anything.name``: then it is the user's own attribute."""

    def functions(self, name: str) -> tuple[ast.FunctionDef | ast.AsyncFunctionDef, ...]:
        """The functions and methods of this name that the file defines."""

    def flows(self, name: str) -> frozenset[str]:
        """Where values of this variable or attribute are used as an argument.

        The entries are callee names with a position or keyword: ``to/0``, ``*/device=``.
        """


class Site(Protocol):
    """The place a rule is asked about: one statement, or the header of a compound one."""

    @property
    def file(self) -> FileView: ...

    @property
    def options(self) -> Options: ...

    @property
    def statement(self) -> ast.AST:
        """The statement, with its body, as an ``ast`` node."""

    @property
    def enclosing(self) -> tuple[ast.AST, ...]:
        """The functions and classes around the statement, innermost first."""

    @property
    def following(self) -> tuple[ast.stmt, ...]:
        """The statements after this one in the same block."""

    def name(self, node: cst.CSTNode) -> str | None:
        """What a name or attribute chain means, as a dotted name from its import.

        ``th.cuda.amp`` is ``torch.cuda.amp`` after ``import torch as th``. A name that the
        file never binds stands for itself. None when it is a user's variable, may mean
        several things, or the node is no such chain.
        """

    def binding(self, name: str) -> ast.expr | None:
        """The expression a variable is bound to, when it is bound exactly once."""

    def bindings(self, name: str) -> tuple[ast.expr | None, ...]:
        """What a variable is bound to, each time; None for a parameter or loop variable."""

    def meaning(self, name: str) -> str | None:
        """What a plain name means here; see ``name``."""

    def is_bound(self, name: str) -> bool:
        """Whether the file binds this name where the statement stands."""

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None: ...

    def ancestors(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The parent, its parent, and so on up to the statement."""

    def argument(self, call: cst.Call, keyword: str, position: int | None = None) -> cst.Arg | None:
        """The argument by keyword, else by position; None behind a ``*`` argument."""

    def code(self, node: cst.CSTNode) -> str: ...

    def spell(self, dotted: str) -> cst.BaseExpression:
        """An expression for a ``torch.…`` or ``torch_npu.…`` name through the file's imports."""

    def exists(self, dotted: str) -> bool:
        """Whether the targeted torch_npu release has this name."""

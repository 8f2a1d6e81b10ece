"""Which program a command line runs, and whether the project is known to take an option of it."""

from __future__ import annotations

import re
from collections.abc import Sequence

import libcst as cst

from cuda2npu.knowledge import Knowledge
from cuda2npu.rule import Site
from cuda2npu.tokens import Command
from cuda2npu_codemods.expressions import string, terminal

WRAPPERS = frozenset(
    "sudo env nohup exec nice ionice stdbuf timeout xargs srun mpirun mpiexec watch command".split()
)
"""Programs that run the one that is named behind them."""
_RUNNERS = frozenset("uv poetry pdm pipenv hatch rye run".split())
_PYTHON = re.compile(r"(\S*/)?python[\d.]*|\$[({]?PYTHON\d?[)}]?|sys\.executable")
_LAUNCHER = re.compile(r"(\S*/)?(torchrun|accelerate|deepspeed)")
_LAUNCHING_MODULES = frozenset(
    "torch.distributed.run torch.distributed.launch accelerate.commands.launch debugpy".split()
)
_FOLDER = re.compile(r"\b(?:cd|pushd)\s+[\"']?[\w-]")

_SHELL = re.compile(
    r"(\w*_)?(system|run|popen|call|check_call|check_output|getoutput|exec\w*|shell|submit"
    r"|cmds?|commands?)(_\w*)?",
    re.I,
)
"""Functions that start a command, and variables that hold one."""


def runs(site: Site, node: cst.CSTNode) -> bool:
    """Whether a text or list goes to a function or variable that holds commands."""
    for ancestor in site.ancestors(node):
        names: list[cst.CSTNode] = []
        if isinstance(ancestor, cst.Call):
            names = [ancestor.func]
            if isinstance(ancestor.func, cst.Attribute) and terminal(ancestor.func) == "extend":
                names = [ancestor.func.value]
        elif isinstance(ancestor, cst.Assign):
            names = [target.target for target in ancestor.targets]
        elif isinstance(ancestor, cst.AugAssign):
            names = [ancestor.target]
        if any(_SHELL.fullmatch(terminal(name) or "") for name in names):
            return True
    return False


def words_before(site: Site, element: cst.CSTNode | None) -> list[str] | None:
    """What a command in a list says in front of an item; None where the list is no command."""
    container = site.parent(element) if isinstance(element, cst.Element) else None
    if not isinstance(container, (cst.List, cst.Tuple)):
        return None
    words = [_word(site, each.value) for each in container.elements]
    holder = site.parent(container)
    call = site.parent(holder) if isinstance(holder, cst.Arg) else None
    if words[0].startswith("-") and isinstance(call, cst.Call) and isinstance(call.func, cst.Name):
        return None  # run(["--device", "cuda"]): a function of the project that is given options
    starts = _PYTHON.fullmatch(words[0]) or _LAUNCHER.fullmatch(words[0])
    if not (starts or runs(site, container)):
        return None
    return words[: [each is element for each in container.elements].index(True)]


def _word(site: Site, node: cst.BaseExpression) -> str:
    if isinstance(node, cst.FormattedString):
        parts = (p.value if isinstance(p, cst.FormattedStringText) else "$X" for p in node.parts)
        return "".join(parts)
    return string(node) or ("sys.executable" if site.name(node) == "sys.executable" else "$X")


def starts_elsewhere(site: Site, node: cst.CSTNode) -> bool:
    """Whether a call runs the command in another folder, where a path means another file."""
    calls = (a for a in site.ancestors(node) if isinstance(a, cst.Call))
    return any(site.argument(call, "cwd") is not None for call in calls)


def takes(project: Knowledge, words: Sequence[str], option: str, kind: str) -> bool:
    """Whether the words before an option run a program of the project that takes it as a ``kind``.

    >>> takes(Knowledge(), ["whisper", "a.mp3"], "--device", "device")
    False
    """
    program = script(words)
    return program is not None and project.takes(program, option, kind)


def changes_folder(text: str) -> bool:
    """Whether commands go to a folder with a name, so that a path may mean another file.

    >>> [changes_folder(t) for t in ("cd tools && python a.py", "cd .. ; x", 'cd "$(dirname $0)"')]
    [True, False, False]
    """
    return _FOLDER.search(text) is not None


def script(words: Sequence[str]) -> str | None:
    """The script or module that a command runs, as a path without ``.py``.

    >>> [script(c.split()) for c in ("python -u a/b.py", "torchrun -m pkg.train", "srun ./a.py")]
    ['a/b', 'pkg/train', 'a']
    >>> [script(c.split()) for c in ("python -m torch.distributed.run --n 2 a.py", "uv run a.py")]
    ['a', 'a']
    >>> [script(c.split()) for c in ("whisper a.py", "python -c x a.py", "python tool a.py")]
    [None, None, None]
    """
    rest = list(words)
    while rest and not (_PYTHON.fullmatch(rest[0]) or _LAUNCHER.fullmatch(rest[0])):
        word = rest.pop(0)
        if word.endswith(".py") and "=" not in word:
            return _path(word)
        passed = word in WRAPPERS | _RUNNERS or re.match(r"-|\w+=|[\d.]+[smh]?$", word)
        if not passed:
            return None
    return _launched(rest[1:], is_python=bool(rest and _PYTHON.fullmatch(rest[0])))


def _launched(words: list[str], *, is_python: bool) -> str | None:
    """The script behind an interpreter or a launcher with options of its own."""
    before = ""
    for word in words:
        if before in ("-m", "--module"):
            if word not in _LAUNCHING_MODULES:
                return word.replace(".", "/")
            is_python = False
        elif word == "-c":
            return None
        elif word.endswith(".py") and before not in ("-W", "-X"):
            return _path(word)
        elif is_python and not word.startswith("-") and before not in ("-W", "-X"):
            return None
        before = word
    return None


def _path(word: str) -> str:
    """``$ROOT/../tools/a.py`` as ``tools/a``: from the right, as far as it is known."""
    return re.sub(r"^(?:\$(?:\w+|\{\w+\}|\(\w+\))/|\.{1,2}/)*", "", word).removesuffix(".py")


_RUNS_PYTHON = re.compile(
    r".*\.py|.*(python|PYTHON)[\d.]*[)}]?|(.*/)?(torchrun|accelerate|deepspeed)"
)


def overrides_of(command: Command) -> int:
    """The offset behind which ``key=value`` is an argument of a Python program."""
    runs = (word.end for word in command.words if _RUNS_PYTHON.fullmatch(word.text))
    return command.start if command.in_string else next(runs, command.end)

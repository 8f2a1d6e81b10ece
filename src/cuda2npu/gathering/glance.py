"""What the bytes of a file say without a parse, to know which files are worth one.

Most files of a project say nothing that others want to know. A glance costs a few byte
searches; it may see too much, which :mod:`cuda2npu.gathering.outline` then sorts out, but not
too little.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from cuda2npu.words import names_backend, names_device

WATCHED: Final = {"cuda": "npu", "is_cuda": "is_npu", "double": ""}
"""Methods and properties of tensors that rules edit, each with its twin for the NPU."""

_VALUE = re.compile(rb"""["'](?:cuda(?::\d+)?|npu(?::\d+)?|[nh]ccl|[NH]CCL)["']""")
_WINDOW = 400
"""Bytes before a value in which the name that it is given to is looked for."""
_BEHIND = (
    rb"=(?!=)[ \t(]*(?:[^\n]*\b(?:else|or)[ \t]+"
    rb"|[\w.]*(?:[fF]ield|get|getenv|Option|Argument)\((?:[^()\n]*[=,])?[ \t]*)?$"
)
"""From the sign of an assignment to a value that is assigned by itself or as a default."""
_LISTED = rb"=\s*(?:frozenset\(|set\()?[\[({]\s*(?:[\"'][\w:]*[\"']\s*,\s*)*$"
"""From the sign of an assignment to a value in a list of names."""
_CONSTANT = re.compile(rb"(?:^|\n)([A-Za-z_]\w*)[ \t]*(?::[^=\n]*)?(?:%s|%s)" % (_BEHIND, _LISTED))
_FIELD = re.compile(rb"\n[ \t]+(?:\w+\.)*(\w+)[ \t]*(?::[^=\n]*)?" + _BEHIND)
_LONG_FIELD = re.compile(rb"\n[ \t]+(\w+)[ \t]*:[^=\n]*=\s*[\w.]*[fF]ield\([^()]*$")
_OPTION = re.compile(rb"""(?:add_argument|add_option|option|\.add(?=\(\s*["']-))\(([^()]*)$""")
_FLAG = re.compile(rb"""["']--?([\w-]+)["']|dest\s*=\s*["'](\w+)""")
_KEY = re.compile(rb"""["'](\w+)["'][ \t]*:[ \t]*$""")
_OWN = re.compile(rb"\n([ \t]+)(?:async +)?def +(?:%s)\(" % "|".join(WATCHED).encode())
_HEAD = re.compile(rb"(?:^|\n)([ \t]*)class +(\w+)[ \t]*[(:]")
_CALLS = tuple(
    re.compile(callee + rb"\(\s*(?:\w+\s*=\s*)?(?:\w+\.)*\w+[.\[]")
    for callee in (b"device", b"init_process_group", b"init_device_mesh", b"DeviceMesh",
                   b"init_distributed")
)  # fmt: skip
_SETTINGS = (
    rb"(?:\w+\.)*"
    rb"(?:args|opts?|options|cfg|conf|config|hparams|params|flags|FLAGS|settings)"
)
"""Names of what options and configurations are read into."""
_MOVES = (
    re.compile(rb"device=(?<=\bdevice=)\s*(?:%s\.\w|%s\[[\"'])" % (_SETTINGS, _SETTINGS)),
    re.compile(rb"\.to\(\s*%s\.\w+[,)]" % _SETTINGS),
    *(
        re.compile(
            start + rb"\s*(?:(?!torch\.)(?:\w+\.)+(?!\w*(?:device|type|float|rank))\w+[,)]"
            rb"|[\w.]+\[[\"'])"
        )
        for start in (rb"\.to\(", b"map_location=")
    ),
)
"""Each begins with plain letters, for which the search is fast."""
_DEVICE_NAMES = frozenset(
    "cuda npu hpu mps xpu cpu CUDA NPU is_cuda is_npu _ default type name value arg key".split()
)
"""Keys of tables by device, and keys that mean anything: what they are given is no setting."""
_PATCHED = re.compile(rb"""["']((?:\w+\.)+)torch\.cuda\.\w""")
_COMMANDS = ("subprocess", "os.system", "os.popen")


class Glance(NamedTuple):
    """The names of one file that other files may have to do with."""

    constants: frozenset[str] = frozenset()
    """Names at module level that are given a device or a backend."""
    attributes: frozenset[str] = frozenset()
    """Fields, options and keys that are, and, seen in haste, local variables."""
    owners: frozenset[str] = frozenset()
    """Classes with a method that torch's tensors have."""
    patched: frozenset[str] = frozenset()
    """Modules in which a test replaces a name of torch.cuda."""
    has_sink: bool = False
    """Whether an attribute or key goes to a function of torch that takes a device."""


def glance(data: bytes) -> Glance:
    """Look at one file. Pure."""
    constants: set[str] = set()
    attributes: set[str] = set()
    if b"cuda" in data or b"ccl" in data or b"CCL" in data or b"npu" in data:
        for match in _VALUE.finditer(data):
            before = data[max(0, match.start() - _WINDOW) : match.start()]
            constant = _CONSTANT.search(before)
            if constant:
                constants.add(constant[1].decode())
            else:
                attributes.update(_given(before))
    return Glance(
        frozenset(constants),
        frozenset(attributes - _DEVICE_NAMES),
        frozenset(_owners(data)),
        frozenset(m[1].decode().rstrip(".") for m in _PATCHED.finditer(data))
        if b".torch.cuda." in data
        else frozenset(),
        any(each.search(data) for each in (*_CALLS, *_MOVES)),
    )


def speaks(name: str) -> bool:
    """Whether a name says by itself that it holds a device or a backend."""
    return names_device(name) or names_backend(name)


def _given(before: bytes) -> Iterator[str]:
    """The field, option or key that a value behind these bytes is given to."""
    option = _OPTION.search(before)
    if option:
        for flag, dest in _FLAG.findall(option[1]):
            yield (flag or dest).decode().replace("-", "_")
        return
    for pattern in (_KEY, _FIELD, _LONG_FIELD):
        found = pattern.search(before)
        if found:
            yield found[1].decode()
            return


def _owners(data: bytes) -> Iterator[str]:
    if not any(b"def " + method.encode() + b"(" in data for method in WATCHED):
        return
    heads = list(_HEAD.finditer(data))
    for match in _OWN.finditer(data):
        for head in reversed(heads):
            if head.start() < match.start() and len(head[1]) < len(match[1]):
                yield head[2].decode()
                break


class Search:
    """Says which files speak of the names that the glances at a project found."""

    def __init__(
        self,
        constants: Iterable[str],
        attributes: Iterable[str],
        foreign: Iterable[str],
    ) -> None:
        given = {*constants, *attributes}
        quiet = {name for name in given if not speaks(name)}
        self._quiet = Words(quiet)
        self._loud = Words(given - quiet)
        self._others = re.compile(
            rb"\b(?:import|from)[ \t]+(?:%s)\b|%s"
            % ("|".join(sorted(foreign)).encode(), "|".join(map(re.escape, _COMMANDS)).encode())
        )

    def wants(self, data: bytes) -> bool:
        """Whether a file has to be parsed for what it says of these names."""
        if self._quiet.stand_in(data) or (self._quiet and b"import *" in data):
            return True
        return self._loud.stand_in(data) and bool(self._others.search(data))


class Words:
    """Names that are searched for in many files."""

    def __init__(self, names: Iterable[str]) -> None:
        ordered = sorted(names)
        self._plain = [name.encode() for name in ordered]
        self.pattern = re.compile((rf"\b(?:{'|'.join(ordered)})\b" if ordered else "(?!)").encode())

    def __bool__(self) -> bool:
        return bool(self._plain)

    def stand_in(self, data: bytes) -> bool:
        """Whether a file holds one of them; the plain search rules most files out."""
        return any(name in data for name in self._plain) and bool(self.pattern.search(data))

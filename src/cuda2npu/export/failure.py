"""Why user code or the exporter failed, in the user's own lines. Child side."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from pathlib import Path

from cuda2npu.running.source import is_installed

_CAUSES = 4
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_PLACE = re.compile(r'^ *File "([^"]+)", line \d+.*\n(?:    .*\n?)?', re.MULTILINE)
"""A line of code, in a traceback or in the message of an error of torch.export."""
_HIDDEN = "import of torch_npu halted"
_ADVICE = {
    "GuardOnDataDependentSymNode": "a branch in Python depends on the values of a tensor: compute "
    "both ways with torch.where, or use torch.cond. --exporter trace would keep the one way that "
    "the example goes",
    "UnsupportedOperatorError": "another --opset may have it, and --exporter dynamo takes most "
    "operators of torch apart",
}
"""By the name of an error: what to do."""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it comes of, the cause last."""
    found: BaseException | None = error
    for _ in range(_CAUSES):
        if found is None:
            return
        yield found
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)


def told(error: BaseException) -> str:
    """The errors, each by its first line, and what to do where that is known."""
    lines = [_first_line(each) for each in _chain(error)]
    advice = [_ADVICE.get(type(each).__name__, "") for each in _chain(error)]
    if any(_HIDDEN in line for line in lines):
        advice.append("torch_npu cannot be loaded without CANN: --device npu simulates an NPU here")
    return "\n  ".join([*dict.fromkeys(lines), *filter(None, advice)])


def _first_line(error: BaseException) -> str:
    text = _COLOR.sub("", str(error)).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}".rstrip(": ")


def own_lines(error: BaseException) -> str:
    """The traceback in the user's own files: neither ours nor of installed packages."""
    frames = traceback.format_list(traceback.extract_tb(error.__traceback__))
    texts = [*frames, *map(str, _chain(error))]
    places = (match for text in texts for match in _PLACE.finditer(text))
    return "\n".join(dict.fromkeys(place[0].rstrip() for place in places if is_own(place[1])))


def is_own(file: str) -> bool:
    """Whether a file is the user's: neither ours, nor of an installed package, nor of Python."""
    path = Path(file)
    folders = Path(__file__).parent.parent, Path(traceback.__file__).parent
    return not (
        file.startswith("<") or is_installed(file) or any(map(path.is_relative_to, folders))
    )

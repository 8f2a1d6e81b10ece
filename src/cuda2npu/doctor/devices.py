"""Checks of the devices: what npu-smi tells of them, and who may open their files."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cuda2npu.doctor.ascend import HAND_IN, MANAGERS, NO_NPU
from cuda2npu.doctor.check import Check, Status, ok, unchecked, warning, wrong
from cuda2npu.doctor.failures import DRIVER_PATH
from cuda2npu.doctor.machine import Machine
from cuda2npu.doctor.smi import Chip, Listing, parse

PLACES = ("/usr/local/sbin/npu-smi", "/usr/local/bin/npu-smi")
"""Where the driver puts the tool; sbin is not on the PATH of every user."""
BOARD_MEMORY = "/dev/svm0"
LITTLE = 10
"""Percent of a chip's memory below which little is free."""
LONGEST = 120
"""Characters of a line of npu-smi that the report shows."""
_SECONDS = 30.0
_HEALTHY = "OK"
_DOUBTFUL = ("WARNING", "ALARM", "NA", "-")
"""Health with which programs were seen to run (vllm-project/vllm-ascend#9554), or that is not
told. The others are Critical, and UNKNOWN for a chip that is not there or has not started; source:
npu-smi's guide."""

_SMI_FAILURES = (
    # vllm-project/vllm-ascend#2698, Ascend/cann-container-image#46
    (
        "-8020",
        "another container holds the device",
        "end the other container, or hand another device into this one",
    ),
    (
        "-8005",
        "the driver does not answer",
        "restart the machine after an update of driver or firmware; in a container see that no "
        "other one holds the device, and that /usr/local/Ascend/driver and "
        f"{', '.join(MANAGERS)} are handed in; some systems let only root ask",
    ),
    (
        "cannot open shared object",
        "it lacks a library of the driver",
        DRIVER_PATH,
    ),
)


class Devices(NamedTuple):
    """What is known of the NPUs of the machine."""

    listing: Listing | None
    """None where npu-smi could not be asked."""
    files: tuple[Path, ...]
    checks: tuple[Check, ...]

    @property
    def number(self) -> int | None:
        """How many NPUs a process finds: those that are handed into a container."""
        if self.files:
            return len(self.files)
        if self.listing is None or self.listing.unread:
            return None
        return len(self.listing.chips)

    @property
    def chips(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(c.name for c in self.listing.chips)) if self.listing else ()


def look(machine: Machine, visible: tuple[int, ...] | None) -> Devices:
    """Ask npu-smi and look at the device files; ``visible`` are the devices that are in use."""
    files = tuple(sorted(machine.at("/dev").glob("davinci[0-9]*")))
    listing, failed = _ask(machine, files)
    if listing and listing.unread:
        visible = None  # chips are counted through, and one is missing
    found = list(_chips(listing, visible)) if listing else [failed] if failed else []
    return Devices(listing, files, (*found, *_files(machine, files, listing)))


def _ask(machine: Machine, files: tuple[Path, ...]) -> tuple[Listing | None, Check | None]:
    """The listing, or the row that tells why there is none."""
    name = "npu-smi info"
    program = machine.program("npu-smi", *PLACES)
    if program is None:
        text = f"there is no npu-smi on PATH, nor in {' or '.join(PLACES)}"
        if files:
            return None, unchecked(name, f"{text}: health and memory of the NPUs")
        return None, warning(name, text, NO_NPU)
    try:
        ran = machine.run([program, "info"], _SECONDS)
    except OSError as error:
        return None, _not_started(program, error)
    if ran.timed_out:
        todo = "let the administrator read dmesg, and restart the machine"
        return None, wrong(name, f"gave no answer in {_SECONDS:.0f} s: the driver hangs", todo)
    listing = parse(ran.output)
    if listing.chips:
        return listing, None
    for sign, cause, todo in _SMI_FAILURES:
        if sign in ran.output:
            return None, wrong(name, f"{_last(ran.output)}: {cause}", todo)
    if ran.code:
        todo = "run npu-smi info by hand, and let the administrator read dmesg"
        return None, wrong(name, f"ended with code {ran.code}: {_last(ran.output)}", todo)
    if listing.unread:
        return None, _not_understood(listing)
    todo = "see that the NPU is in the machine (lspci), and that its driver is loaded (lsmod)"
    return None, wrong(name, "lists no NPU", todo)


def _not_started(program: str, error: OSError) -> Check:
    if error.errno == errno.EACCES:
        todo = f"let this user run it: chmod a+rx {program}"
    else:
        todo = "put the npu-smi of this machine's driver in its place, or take it from PATH"
    why = str(error.strerror)
    if error.errno == errno.ENOENT:
        why = "what runs it, its interpreter or loader, is not here"
    return warning("npu-smi info", f"{program} does not start: {why}", todo)


def _not_understood(listing: Listing, found: str = "") -> Check:
    first = _shortened(listing.unread[0]) or "it printed nothing"
    todo = "run npu-smi info by hand, and see for yourself that the NPUs are healthy and free"
    return warning("npu-smi info", f"{found}not understood: {first}", todo)


def _last(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return _shortened(lines[-1]) if lines else "it printed nothing"


def _shortened(line: str) -> str:
    return line if len(line) <= LONGEST else f"{line[:LONGEST]} …"


def _chips(listing: Listing, visible: tuple[int, ...] | None) -> Iterator[Check]:
    chips = listing.chips
    names = ", ".join(dict.fromkeys(chip.name for chip in chips))
    found = f"{len(chips)} x {names}, driver tool {listing.version}"
    if listing.unread:
        yield _not_understood(listing, f"{found}; ")
    else:
        yield ok("npu-smi info", found)
    for index, chip in enumerate(chips):
        if chip.health.upper() != _HEALTHY:
            yield _unhealthy(chip, visible is None or index in visible)
    if chips:
        yield _memory(listing, visible)


def _memory(listing: Listing, visible: tuple[int, ...] | None) -> Check:
    """How much is free on the chips that are in use."""
    name, chips = "NPU memory", listing.chips
    used = [c for index, c in enumerate(chips) if visible is None or index in visible]
    if not used:
        return unchecked(name, "no NPU of the list is visible")
    told = [chip for chip in used if chip.total]
    if not told:
        return unchecked(name, "npu-smi info does not tell it of the visible NPUs")
    full = [chip for chip in told if chip.free * 100 < chip.total * LITTLE]
    if full:
        text = "; ".join(f"NPU {c.npu} chip {c.chip}: {c.free} of {c.total} MB free" for c in full)
        where = {(chip.npu, chip.chip) for chip in full}
        holding = (p for p in listing.processes if (p.npu, p.chip) in where)
        held = ", ".join(f"{p.pid} {p.name}".strip() for p in holding)
        todo = "end the processes that hold it, or make other NPUs visible: "
        return warning(name, text, f"{todo}processes {held}" if held else todo.rstrip(": "))
    free = min(chip.free for chip in told)
    holders = {(one.npu, one.chip) for one in listing.processes}
    busy = sum((chip.npu, chip.chip) in holders for chip in used)
    text = f"at least {free} MB free on each" + ("" if told == used else " that tells it")
    return ok(name, f"{text}; {busy} of {len(used)} held by processes" if busy else text)


def _unhealthy(chip: Chip, in_use: bool) -> Check:
    name = f"NPU {chip.npu} chip {chip.chip}"
    text = f"{chip.name}: health is {chip.health}"
    todo = (
        f"ask what is wrong: npu-smi info -t health -i {chip.npu} -c {chip.chip}; "
        "until then make other NPUs visible with ASCEND_RT_VISIBLE_DEVICES"
    )
    bad = in_use and chip.health.upper() not in _DOUBTFUL
    return Check(name, Status.WRONG if bad else Status.WARNING, text, todo)


def _files(machine: Machine, files: tuple[Path, ...], listing: Listing | None) -> Iterator[Check]:
    name = "device files"
    if not files:
        todo = HAND_IN if listing else NO_NPU
        yield wrong(name, "there is no /dev/davinci0 nor another NPU", todo)
        return
    # A board whose NPU has no host beside it, such as the Atlas 200I DK, has other files.
    on_a_board = machine.at(BOARD_MEMORY).exists()
    paths = (MANAGERS[0], BOARD_MEMORY) if on_a_board else MANAGERS
    needed = [machine.at(path) for path in paths]
    missing = [machine.shown(path) for path in needed if not path.exists()]
    if missing:
        todo = "hand them into the container: " + " ".join(f"--device {one}" for one in missing)
        yield wrong(name, f"not here: {', '.join(missing)}", todo)
        return
    closed = [path for path in (*files, *needed) if not machine.may_use(path)]
    if closed:
        group = _group(closed[0])
        text = f"this user may not open {', '.join(machine.shown(path) for path in closed)}"
        todo = f"let root do: usermod -aG {group} {_user()}; then log in again"
        yield wrong(name, text, todo)
        return
    yield ok(name, f"{len(files)} NPUs and what goes with them may be opened")


def _group(path: Path) -> str:
    """The group of a device file; that of the driver is HwHiAiUser."""
    import grp  # not there on Windows

    try:
        return grp.getgrgid(path.stat().st_gid).gr_name
    except (OSError, KeyError):
        return "HwHiAiUser"


def _user() -> str:
    return os.environ.get("USER") or "$USER"

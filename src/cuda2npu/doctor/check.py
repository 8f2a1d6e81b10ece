"""What one thing that was looked at is found to be."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Status(str, Enum):
    """How a check came out."""

    OK = "ok"
    WARNING = "warning"
    """NPU code may run all the same."""
    WRONG = "wrong"
    UNCHECKED = "not checked"


class Check(NamedTuple):
    """One row of the report."""

    name: str
    status: Status
    found: str
    """What was found; of what was not checked, why."""
    todo: str = ""
    """What a person should do, in the imperative; with a warning or where something is wrong."""


def ok(name: str, found: str) -> Check:
    return Check(name, Status.OK, found)


def warning(name: str, found: str, todo: str) -> Check:
    return Check(name, Status.WARNING, found, todo)


def wrong(name: str, found: str, todo: str) -> Check:
    return Check(name, Status.WRONG, found, todo)


def unchecked(name: str, why: str) -> Check:
    return Check(name, Status.UNCHECKED, why)

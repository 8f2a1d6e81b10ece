"""Running a script of the user's in a process of its own: what smoke and bench have in common.

A child leaves a record in its folder; its parent reads that, shows how far the run is, and sees to
it that no process of it is left.
"""

from __future__ import annotations


class RunError(Exception):
    """Something that keeps a script from being run. The text says what to do."""

    trace = ""
    """Where the script itself failed: its traceback, or what it printed last."""

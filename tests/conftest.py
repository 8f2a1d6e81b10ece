"""Settings of a test run; shows what the laws ran over at its end."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

collect_ignore = [str(Path(__file__).with_name("laws.py"))]


def pytest_configure() -> None:
    """What is ignored here, as nohup does it, would be by the commands under test, too."""
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, text in getattr(report, "user_properties", ()):
                if name == "laws" and getattr(report, "when", "") == "call":
                    terminalreporter.write_line(f"laws: {text}")

"""Shows what the laws ran over at the end of a test run."""

from __future__ import annotations

from pathlib import Path

import pytest

collect_ignore = [str(Path(__file__).with_name("laws.py"))]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, text in getattr(report, "user_properties", ()):
                if name == "laws" and getattr(report, "when", "") == "call":
                    terminalreporter.write_line(f"laws: {text}")

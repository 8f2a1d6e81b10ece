"""``cuda2npu`` and ``python -m cuda2npu``."""

from __future__ import annotations

import signal
import sys

INTERRUPTED = 130


def main() -> None:
    """The entry point. Ctrl-C ends a command without a traceback while it is being loaded, too."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: sys.exit(INTERRUPTED))
    from cuda2npu.cli import main as run

    run()


if __name__ == "__main__":
    main()

"""``cuda2npu`` and ``python -m cuda2npu``."""

from __future__ import annotations

import gc
import signal
import sys

INTERRUPTED = 130
COLLECT_AFTER = 100_000
"""Objects made before the collector looks: classes and trees, nearly all without cycles."""


def main() -> None:
    """The entry point. Ctrl-C ends a command without a traceback while it is being loaded, too.

    The collector's default threshold would cost a fifth of a short run.
    """
    gc.set_threshold(COLLECT_AFTER)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: sys.exit(INTERRUPTED))
    from cuda2npu.cli import main as run

    run()


if __name__ == "__main__":
    main()

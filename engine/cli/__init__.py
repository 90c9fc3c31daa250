"""The command line: ``chunkmill convert`` and ``chunkmill inspect``.

Exit codes: 0 done, 1 failed, 2 bad usage, 130 interrupted, 143 terminated. This package is the top of the tree: it
imports readers, and nothing imports it.
"""

from __future__ import annotations

import signal
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and leave the process with its exit code."""
    from ..spark import INTERRUPTED, interruptible

    try:
        with interruptible():
            from .command import commands

            commands(prog_name="chunkmill")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    finally:
        # What is left to do is to clear up, in which a signal would leave something behind. Not by SIG_IGN: processes
        # that are started now would inherit that.
        for kind in (signal.SIGINT, signal.SIGTERM):
            signal.signal(kind, lambda *_: None)

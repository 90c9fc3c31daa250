"""The command line: the commands of ``chunkmill``.

Exit codes: 0 done, 1 failed, 2 bad usage, 130 interrupted, 143 terminated. This package is the top of the tree: it
imports readers, and nothing imports it.
"""

from __future__ import annotations

import gc
import signal
import sys

__all__ = ["main"]

_INTERRUPTED = 130  # repeated here, as Ctrl-C may come before anything else is imported
_NEW_OBJECTS = 50_000
"""New objects before the garbage collector runs. With its default, 700, it runs hundreds of times for nothing during
imports: 0.06 of 0.65 s of CPU of a cold ``convert`` of the demo recording (2 cores, the least of nine in turns)."""


def main() -> None:
    """Run the command line and leave the process with its exit code."""
    gc.set_threshold(_NEW_OBJECTS)
    try:
        from ..limits import keep_freed_memory
        from ..spark import interruptible

        keep_freed_memory()
        with interruptible():
            from .commands import commands

            commands(prog_name="chunkmill")
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    finally:
        # Only cleaning up is left, which a signal would cut short. SIG_IGN is not used: processes started now would
        # inherit it.
        for kind in (signal.SIGINT, signal.SIGTERM):
            signal.signal(kind, lambda *_: None)

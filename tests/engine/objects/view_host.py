"""Refreshes a view as a process of another host would; prints how many rows it has computed.

HOST=name CALLS=FILE python view_host.py CONNECTION VIEW SECONDS_OF_A_CALL [ROWS_UNTIL_DEATH]

One that is to die is believed to live for a second.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path

from chunkmill import udf
from chunkmill.engine.execution import Lease
from chunkmill.engine.tables import connect


@udf(version="1")
def watched(v: int) -> int:
    """The square; each call is a line of a file. It may take its time, and end the process."""
    with Path(os.environ["CALLS"]).open("a") as calls:
        calls.write(f"{v}\n")
    _pace()
    return v * v


_seconds, _left = 0.0, -1


def _pace() -> None:
    global _left
    time.sleep(_seconds)
    _left -= 1
    if _left == 0:
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> int:
    """Refresh the view once."""
    global _seconds, _left
    uri, view, *more = sys.argv[1:]
    _seconds, _left = (*map(float, more[:1]), 0.0)[0], (*map(int, more[1:]), -1)[0]
    socket.gethostname = lambda: os.environ["HOST"]
    if _left > 0:
        Lease.take.__func__.__kwdefaults__["ttl_seconds"] = 1.0  # type: ignore[attr-defined]
    tables = connect(uri, executor="inline", udf_modules=["view_host"])
    every = {"checkpoint_size": 1, "batch_checkpoint_flush_interval_seconds": 0}
    print(tables.open_table(view).refresh(**every).rows_refreshed)
    return 0


if __name__ == "__main__":
    import view_host

    sys.exit(view_host.main())

"""Memory that was freed, and what glibc and Arrow do with it; nothing is said to another C library."""

from __future__ import annotations

import ctypes
import os
from typing import Final

_MMAP_THRESHOLD, _TRIM_THRESHOLD, _MOST_ARENAS = -3, -1, -8
"""Numbers of glibc's ``mallopt``."""
_ARROW_POOL: Final = "ARROW_DEFAULT_MEMORY_POOL"


def keep_freed_memory(arenas: int | None = None, most: int = 64 << 20) -> None:
    """Let glibc hand out again what was freed, up to so many bytes, instead of giving it back to the system at once.

    Buffers of a few hundred kB come and go with every chunk, and each page of them cost a fault again: 74,000 in an
    optimised collect of 400 MB, now 12,000 (``benchmarks/bench_rrd.py``). Each of glibc's arenas keeps so much, which
    :func:`give_back_freed_memory` does not reach in any but the first. It makes up to eight for each core, as threads
    need them, unless ``arenas`` says how many it may.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return
    mallopt(_MMAP_THRESHOLD, 32 << 20)
    mallopt(_TRIM_THRESHOLD, most)
    if arenas is not None:
        mallopt(_MOST_ARENAS, arenas)


def let_glibc_serve_arrow() -> None:
    """Let Arrow take its memory from glibc; call it before anything imports pyarrow.

    Arrow's own pool, mimalloc, keeps what was freed for the thread that had it, and gives back nothing of other
    threads: 400 MiB for each handler that decompressed 200 (``tests/fuzz/bombs_at_once.py``). A pool that the
    environment names stays.
    """
    os.environ.setdefault(_ARROW_POOL, "system")


def give_back_freed_memory() -> None:
    """Give what was freed, and is kept for later, back to the system: that of Arrow's pool, and that of glibc."""
    import pyarrow as pa

    pool = pa.default_memory_pool()
    pool.release_unused()
    if pool.backend_name == "system":  # which has trimmed glibc
        return
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):  # another C library
        return
